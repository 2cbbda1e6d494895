"""Options: number formats, memory, speed."""

from typing import Any, ClassVar, Literal

from sd_scripts.options.schema import Options, option

COMPILE: dict[str, Any] = {"compile": True}


class Precision(Options):
    title: ClassVar[str] = "Precision and memory"
    order: ClassVar[int] = 90

    mixed_precision: Literal["no", "fp16", "bf16"] = option(
        "no",
        help="Number format of the computation. bf16 for GPUs since 2020 (RTX 30 and newer), fp16 for older ones, "
        "no on a CPU.",
    )
    full_fp16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in fp16 too. Saves memory, costs accuracy; needs mixed precision fp16.",
    )
    full_bf16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in bf16 too. Saves memory, costs some accuracy; needs mixed precision bf16.",
    )
    stochastic_rounding: bool = option(
        True,
        level="expert",
        only_with={"full_bf16": True},
        help="Round bf16 weights up or down at random after a step that is computed in 32 bits, so that steps too small for "
        "bf16 still add up. Off: such steps are lost, and averages that the optimizer keeps take half the memory.",
    )
    fp8_base: bool = option(
        False,
        label="Base model in 8 bits",
        help="Keep the frozen weights of the base model, text encoders included, in 8-bit floats: half the memory of 16 "
        "bits, a little slower, and each weight off by about 2.6 %. For adapters only; not together with mixed precision no.",
    )
    fp8_base_unet: bool = option(
        False,
        label="U-Net or transformer in 8 bits",
        level="expert",
        help="As above for the U-Net or transformer only; the text encoders stay in 16 bits.",
    )
    fp8_scaled: bool = option(
        False,
        label="8 bits with scales",
        only_for=("hunyuan_image",),
        help="Keep the transformer in 8-bit floats with a scale for each block of weights: about 17 GB less, and more "
        "exact than plain 8 bits.",
    )
    gradient_checkpointing: bool = option(
        False, help="Compute activations twice instead of keeping them: much less memory, about a quarter slower."
    )
    ema_decay: float | None = option(
        None,
        gt=0,
        lt=1,
        level="expert",
        help="Keep a running average of the trained weights with this decay (e.g. 0.999) and save that.",
    )


class Memory(Options):
    title: ClassVar[str] = "Speed and off-loading"
    order: ClassVar[int] = 95

    blocks_to_swap: int | None = option(
        None,
        ge=0,
        label="Blocks to swap",
        unit="blocks",
        help="Keep so many blocks of the U-Net or transformer in main memory and bring each to the GPU when its turn comes, "
        "forwards and backwards. More blocks: less GPU memory, slower steps. At most all but two.",
    )
    double_blocks_to_swap: int | None = option(
        None,
        ge=0,
        label="Double blocks to swap",
        unit="blocks",
        level="expert",
        only_for=("flux", "chroma"),
        help="Older way to give the number of swapped blocks: double-stream blocks. Used when blocks_to_swap is unset.",
    )
    single_blocks_to_swap: int | None = option(
        None,
        ge=0,
        label="Single blocks to swap",
        unit="blocks",
        level="expert",
        only_for=("flux", "chroma"),
        help="Older way to give the number of swapped blocks: single-stream blocks, two of which count as one. Used when "
        "blocks_to_swap is unset.",
    )
    split_mode: bool = option(
        False,
        level="expert",
        only_for=("flux", "chroma"),
        help="Older way to train in little memory; it now means 18 blocks to swap.",
    )
    cpu_offload_checkpointing: bool = option(
        False,
        label="Checkpoints in main memory",
        level="expert",
        help="Gradient checkpointing that keeps what it must in main memory instead of on the GPU: saves a few GB at large "
        "resolutions, slower steps. Turns gradient checkpointing on.",
    )
    unsloth_offload_checkpointing: bool = option(
        False,
        label="Checkpoints in main memory, copied alongside",
        level="expert",
        help="The same with copies that go on while the GPU computes, so that it costs less time. Turns gradient "
        "checkpointing on.",
    )
    fused_backward_pass: bool = option(
        False,
        label="Fused backward pass",
        level="expert",
        help="Step the optimizer weight by weight inside the backward pass, so that gradients need no memory: saves the "
        "size of the trained weights, which counts for whole models. Without gradient accumulation, on one GPU.",
    )
    fused_optimizer_groups: int | None = option(
        None,
        ge=0,
        label="Fused optimizer groups",
        level="expert",
        help="Step the optimizer in so many groups inside the backward pass: like the above with fewer, larger steps, which "
        "saves less and is faster. 4 to 10 is usual, 0 is off.",
    )
    blockwise_fused_optimizers: bool = option(
        False,
        label="One optimizer a block",
        level="expert",
        help="Step the optimizer block by block inside the backward pass: like the above, with the model's own blocks.",
    )
    mem_eff_save: bool = option(
        False,
        label="Save with little memory",
        level="expert",
        only_for=("flux", "chroma", "lumina"),
        available=False,
        help="Write a finished model tensor by tensor, so that saving needs no second copy of it in main memory.",
    )
    lowram: bool = option(
        False,
        label="Little main memory",
        level="expert",
        help="Keep nothing in main memory that fits on the GPU: models that are kept in 8 bits or swapped are read straight "
        "to it, and a VAE and text encoders that only samples still need stay there.",
    )
    highvram: bool = option(
        False,
        label="Much GPU memory",
        level="expert",
        help="The VAE and text encoders stay on the GPU when only samples still need them, instead of resting in main memory: "
        "samples begin sooner.",
    )
    sdpa: bool = option(
        False,
        label="PyTorch attention",
        level="expert",
        help="Attention by PyTorch's own fused function. It is what is used when nothing else is chosen.",
    )
    xformers: bool = option(
        False,
        label="xFormers attention",
        level="expert",
        only_for=("unet", "anima", "hunyuan_image"),
        help="Attention by the xFormers package, which has to be installed; for NVIDIA GPUs. On recent ones PyTorch's own "
        "is as fast and needs as little memory.",
    )
    diffusers_xformers: bool = option(
        False,
        label="xFormers through diffusers",
        level="expert",
        only_for=("unet",),
        help="Older name of the same switch.",
    )
    mem_eff_attn: bool = option(
        False,
        label="Memory-saving attention",
        level="expert",
        only_for=("unet",),
        help="Attention that never holds all scores at once. PyTorch's own does that too and is faster, so it is used.",
    )
    attn_mode: Literal["torch", "xformers", "flash", "sageattn", "sdpa"] | None = option(
        None,
        label="Attention",
        level="expert",
        only_for=("anima", "hunyuan_image"),
        help="Which package computes attention; PyTorch when unset (torch and sdpa are the same). The others have to be "
        "installed; sageattn cannot train.",
    )
    split_attn: bool = option(
        False,
        label="Attention one picture at a time",
        level="expert",
        only_for=("anima", "hunyuan_image"),
        available=False,
        help="Compute attention for each picture of a batch in turn: less memory, slower. xFormers needs it.",
    )
    use_flash_attn: bool = option(
        False,
        label="FlashAttention",
        level="expert",
        only_for=("lumina",),
        available=False,
        help="Attention by the flash-attn package, which has to be installed.",
    )
    use_sage_attn: bool = option(
        False,
        label="SageAttention",
        level="expert",
        only_for=("lumina",),
        available=False,
        help="Attention by the sageattention package. It computes in 8 bits and cannot train; for samples only.",
    )
    torch_compile: bool = option(
        False,
        label="Compile the model",
        level="expert",
        help="Translate the U-Net or transformer into faster code with torch.compile. The first steps take minutes, once "
        "for each picture size; later ones are faster.",
    )
    dynamo_backend: Literal[
        "no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt",
        "onnxrt", "tensort", "tensorrt", "ipex", "tvm",
    ] = option(
        "inductor",
        label="Compiler",
        level="expert",
        only_with={"torch_compile": True},
        help="What compiles for torch.compile. inductor is the usual one; eager and aot_eager only help to find faults; "
        '"no" does not compile. Most others need a package of their own.',
    )  # fmt: skip
    compile: bool = option(
        False,
        label="Compile block by block",
        level="expert",
        help="Compile each transformer block by itself: the first step takes seconds instead of minutes. Not together "
        "with compiling the whole model.",
    )
    compile_backend: str = option(
        "inductor",
        level="expert",
        suggestions=("inductor", "eager", "aot_eager", "cudagraphs"),
        only_with=COMPILE,
        help="What compiles the blocks.",
    )
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = option(
        "default",
        level="expert",
        only_with=COMPILE,
        help="How much the compiler tries out; the max-autotune ones take many minutes at the start.",
    )
    compile_dynamic: Literal["true", "false", "auto"] | None = option(
        None,
        label="Compile for all sizes",
        level="expert",
        only_with=COMPILE,
        help="Compile once for all picture sizes (true), once for each (false), or decide when a second size comes (auto, "
        "as when unset).",
    )
    compile_fullgraph: bool = option(
        False,
        label="Whole graph",
        level="expert",
        only_with=COMPILE,
        help="Stop when a block cannot be compiled as a whole instead of compiling pieces of it.",
    )
    compile_cache_size_limit: int | None = option(
        None,
        ge=1,
        label="Compiled versions",
        level="expert",
        only_with=COMPILE,
        help="How many versions of a block are kept, one for each picture size; unset: 256. A lower number leaves what is "
        "beyond it uncompiled.",
    )
    cuda_allow_tf32: bool = option(
        False,
        label="Allow TF32",
        level="expert",
        help="Let NVIDIA GPUs since 2020 multiply 32-bit numbers with 10 bits after the point: faster where mixed "
        "precision is off, a little less exact.",
    )
    cuda_cudnn_benchmark: bool = option(
        False,
        label="Try out convolutions",
        level="expert",
        help="Let cuDNN measure which way of convolving is fastest, once for each picture size. Faster with few buckets; "
        "runs can no longer be repeated to the bit.",
    )
    vae_chunk_size: int | None = option(
        None,
        ge=2,
        label="VAE chunk",
        unit="px",
        level="expert",
        suggestions=(16, 32, 64, 96),
        help="Run the VAE on overlapping pieces of this many latent pixels (an even number; a latent pixel is 8 px of a "
        "picture) and blend the seams: less memory for large pictures, slower, latents that differ a little. 64 and more for "
        "SD, 16 is usual for HunyuanImage. Unset: all at once.",
    )
    vae_disable_cache: bool = option(
        False,
        label="VAE without cache",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Run the VAE without its inner cache: less memory, and latents that differ very slightly.",
    )
    qwen_image_vae_2d: bool = option(
        False,
        label="Flat VAE",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Use the VAE's weights for single pictures without the time axis: the same latents in less time.",
    )
