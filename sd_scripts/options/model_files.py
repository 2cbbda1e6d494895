"""Options: the files of the model to train on."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class ModelFiles(Options):
    title: ClassVar[str] = "Model"
    order: ClassVar[int] = 10

    pretrained_model_name_or_path: str | None = option(
        None,
        label="Base model",
        level="essential",
        path="model",
        help="The model to train on: a .safetensors or .ckpt file, or a diffusers folder. What kind of model it "
        "is, is read from the file.",
    )
    clip_l: str | None = option(
        None,
        label="CLIP-L file",
        level="essential",
        path="file",
        only_for=("flux", "sd3"),
        available=False,
        help="The CLIP-L text encoder, a .safetensors file. FLUX needs it; SD 3 takes the one inside the base model when "
        "this is unset.",
    )
    clip_g: str | None = option(
        None,
        label="CLIP-G file",
        level="essential",
        path="file",
        only_for=("sd3",),
        available=False,
        help="The CLIP-G text encoder, a .safetensors file; unset: the one inside the base model.",
    )
    t5xxl: str | None = option(
        None,
        label="T5-XXL file",
        level="essential",
        path="file",
        only_for=("t5",),
        available=False,
        help="The T5-XXL text encoder, a .safetensors file of about 10 GB in 16 bits or 5 GB in 8. FLUX and Chroma need "
        "it; SD 3 takes the one inside the base model when this is unset.",
    )
    gemma2: str | None = option(
        None,
        label="Gemma 2 file",
        level="essential",
        path="file",
        only_for=("lumina",),
        available=False,
        help="The Gemma 2 2B text encoder, a .safetensors file of about 5 GB; unset: the one inside the base model.",
    )
    qwen3: str | None = option(
        None,
        label="Qwen3 file",
        level="essential",
        path="model",
        only_for=("anima",),
        available=False,
        help="The Qwen3 0.6B text encoder that Anima reads prompts with: a .safetensors file or a folder.",
    )
    text_encoder: str | None = option(
        None,
        label="Qwen2.5-VL file",
        level="essential",
        path="file",
        only_for=("hunyuan_image",),
        available=False,
        help="The Qwen2.5-VL 7B text encoder of HunyuanImage, a .safetensors file of about 15 GB.",
    )
    byt5: str | None = option(
        None,
        label="ByT5 file",
        level="essential",
        path="file",
        only_for=("hunyuan_image",),
        available=False,
        help="The ByT5 encoder with which HunyuanImage reads the letters of texts to draw, a .safetensors file.",
    )
    ae: str | None = option(
        None,
        label="Auto-encoder file",
        level="essential",
        path="file",
        only_for=("flux", "chroma", "lumina"),
        available=False,
        help="The auto-encoder (often named ae.safetensors) that FLUX, Chroma and Lumina turn pictures into latents with.",
    )
    vae: str | None = option(
        None,
        label="Separate VAE",
        path="model",
        only_for=("unet", "sd3", "anima", "hunyuan_image"),
        help="A VAE file or folder to use instead of the one inside the base model. Anima and HunyuanImage have none "
        "inside, so they need it.",
    )
    v_parameterization: bool = option(
        False,
        label="V-prediction model",
        only_for=("noise",),
        help="The base model predicts velocity instead of noise (SD 2.x 768-v and other v-prediction models). The "
        "file does not say it, so tick it for those.",
    )
    v2: bool = option(
        False,
        label="SD 2.x model",
        level="expert",
        only_for=("noise",),
        help="The base model is Stable Diffusion 2.x. It is recognised without this; the option only makes a run "
        "stop when the file is something else.",
    )
    model_type: Literal["flux", "chroma"] | None = option(
        None,
        label="FLUX or Chroma",
        level="expert",
        only_for=("flux", "chroma"),
        available=False,
        help="Which of the two the base model is. It is recognised without this; the option only makes a run stop when "
        "the file is the other one.",
    )
    no_half_vae: bool = option(
        False,
        label="VAE in full precision",
        level="expert",
        help="Run the VAE in 32 bits. Needed for VAEs that give black pictures in fp16; costs memory while encoding.",
    )
    disable_mmap_load_safetensors: bool = option(
        False,
        label="Read files without mapping",
        level="expert",
        help="Read .safetensors files the ordinary way instead of mapping them into memory. Faster on network drives and "
        "in WSL, where mapping is slow; the time of everything else stays the same.",
    )
    tokenizer_cache_dir: str | None = option(
        None,
        label="Tokenizer folder",
        level="expert",
        path="folder",
        help="Where tokenizers are kept that would be fetched from the network. SD and SDXL need none of it: theirs are "
        "part of this program.",
    )
    t5_tokenizer_path: str | None = option(
        None,
        label="T5 tokenizer folder",
        level="expert",
        path="folder",
        only_for=("anima",),
        available=False,
        help="Folder of the T5 tokenizer whose token numbers go into Anima's adapter; unset: the usual one.",
    )
    llm_adapter_path: str | None = option(
        None,
        label="LLM adapter file",
        level="expert",
        path="file",
        only_for=("anima",),
        available=False,
        help="Weights of the adapter between Qwen3 and the transformer, to use instead of those inside the base model.",
    )
