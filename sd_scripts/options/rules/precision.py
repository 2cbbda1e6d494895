"""Rules: number formats, memory, attention, compiling, several devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from sd_scripts.options.distributed import Distributed
from sd_scripts.options.implied import WITHOUT_PLAIN_8_BITS, swapped_blocks
from sd_scripts.options.memory import Memory, Precision
from sd_scripts.options.methods import Network
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.rules.base import FUSED, Families, Rule, all_are, some_are

EIGHT_BITS = ("fp8_base", "fp8_base_unet")
# Most blocks that can be swapped: two must stay. FLUX has 19 and 38 blocks, HunyuanImage 20 and 40; there one swapped
# block is a double one or two single ones in turn. SD 3 has 24 or 38 blocks, by its size. The blocks of a U-Net are its
# levels, down and up, and what is between.
MOST_BLOCKS = {
    "sd1": 7,
    "sd2": 7,
    "sdxl": 5,
    "sd3": 36,
    "flux": 35,
    "chroma": 35,
    "lumina": 24,
    "anima": 26,
    "hunyuan_image": 37,
}
PACKAGES = {"xformers": "xformers", "flash": "flash_attn", "sageattn": "sageattention"}  # of the values of attn_mode


def full_precision_fits_mixed(options: Precision) -> Iterator[Problem]:
    for kind in ("fp16", "bf16"):
        if getattr(options, f"full_{kind}") and options.mixed_precision != kind:
            yield error(f"full_{kind}", f"needs mixed_precision {kind}", f'set mixed_precision = "{kind}"')


def eight_bits_compute_in_sixteen(options: Precision) -> Iterator[Problem]:
    for name in EIGHT_BITS:
        if getattr(options, name) and options.mixed_precision == "no":
            yield error(name, "computes in 16 bits", 'set mixed_precision = "bf16"')


def eight_bits_fit_the_family(options: Precision, families: Families) -> Iterator[Problem]:
    for name in EIGHT_BITS:
        if not getattr(options, name) or not all_are(families, *WITHOUT_PLAIN_8_BITS):
            continue
        if all_are(families, "anima"):
            yield warning(name, "has no effect: Anima is not made for it", "leave it out")
        elif options.fp8_scaled:
            yield note(name, "has no effect: fp8_scaled decides", "leave it out")
        elif all_are(families, "hunyuan_image"):
            yield error(name, "HunyuanImage needs scales with 8 bits", "set fp8_scaled = true instead")


def eight_bits_are_for_adapters(options: Precision) -> Iterator[Problem]:
    for name in EIGHT_BITS:
        if getattr(options, name) and not isinstance(options, Network):
            yield warning(name, "has no effect: weights that are trained cannot be kept in 8 bits", "leave it out")


def fp16_is_enough(options: Precision, families: Families) -> Iterator[Problem]:
    if options.mixed_precision == "fp16" and all_are(families, "hunyuan_image"):
        yield warning("mixed_precision", "HunyuanImage can overflow in fp16", 'set it to "bf16"')


def activations_are_kept_once(options: Memory) -> Iterator[Problem]:
    """Ways to keep activations or blocks in main memory that exclude each other."""
    if options.unsloth_offload_checkpointing and options.cpu_offload_checkpointing:
        yield error("unsloth_offload_checkpointing", "excludes cpu_offload_checkpointing", "choose one of them")
    if not swapped_blocks(options):
        return
    for name in ("cpu_offload_checkpointing", "unsloth_offload_checkpointing"):
        if getattr(options, name):
            yield error(name, "excludes swapping blocks", "set blocks_to_swap = 0, or leave it off")


def offloading_means_checkpointing(options: Memory) -> Iterator[Problem]:
    name = "gradient_checkpointing"
    if name not in options.model_fields_set or getattr(options, name):
        return
    for implying in ("cpu_offload_checkpointing", "unsloth_offload_checkpointing"):
        if getattr(options, implying):
            yield note(name, f"is on, because {implying} is", "leave one of the two out")


def enough_blocks_stay(options: Memory, families: Families) -> Iterator[Problem]:
    swapped = swapped_blocks(options)
    most = max(MOST_BLOCKS.get(family, 0) for family in families)
    if most and swapped > most:
        yield error("blocks_to_swap", f"{swapped} is more than this model can swap", f"set it to {most} or less")


def blocks_are_counted_once(options: Memory) -> Iterator[Problem]:
    older = ("double_blocks_to_swap", "single_blocks_to_swap", "split_mode")
    for name in older:
        if not getattr(options, name):
            continue
        if options.blocks_to_swap is not None:
            yield warning(name, "not used, because blocks_to_swap is set", "leave it out")
        elif name == "split_mode" and not (options.double_blocks_to_swap or options.single_blocks_to_swap):
            yield note(name, f"means blocks_to_swap = {swapped_blocks(options)} now", "set that instead")
        elif name != "split_mode":
            yield note(name, f"together they mean blocks_to_swap = {swapped_blocks(options)}", "set that instead")


def the_whole_model_is_not_compiled_with_swapped_blocks(options: Memory) -> Iterator[Problem]:
    if options.torch_compile and options.dynamo_backend != "no" and swapped_blocks(options):
        yield error(
            "torch_compile", "does not fit swapped blocks", "set compile = true instead, which compiles block by block"
        )


def fused_passes_fit(options: Memory) -> Iterator[Problem]:
    """Steps inside the backward pass leave no gradients to collect."""
    accumulates = getattr(options, "gradient_accumulation_steps", 1) > 1
    needs_scaling = getattr(options, "mixed_precision", "no") == "fp16"
    chosen = [name for name in FUSED if getattr(options, name)]
    for name in chosen:
        if accumulates:
            yield error(name, "excludes gradient accumulation", "set gradient_accumulation_steps = 1")
        if needs_scaling:
            yield error(
                name, "excludes fp16, where all gradients are checked before a step", 'set mixed_precision = "bf16"'
            )
        if getattr(options, "deepspeed", False):
            yield error(name, "excludes DeepSpeed, which steps by itself", "choose one of them")
        if isinstance(options, Network):
            yield note(name, "saves little with an adapter, whose gradients are small", "leave it off")
    if len(chosen) > 1:
        yield error(chosen[1], f"excludes {chosen[0]}", "choose one of them")


def xformers_is_installed(options: Memory, families: Families) -> Iterator[Problem]:
    if not some_are(families, "unet", "anima", "hunyuan_image"):
        return
    for name in ("xformers", "diffusers_xformers"):
        if getattr(options, name) and importlib.util.find_spec("xformers") is None:
            used = "the package xformers is not installed: PyTorch's own attention is used, with the same result"
            yield warning(name, used, "leave it off, or install the package")


def one_attention_is_chosen(options: Memory, families: Families) -> Iterator[Problem]:
    """mem_eff_attn wins over xFormers, that over sdpa, and attn_mode over all."""
    if all_are(families, "unet"):
        for name in ("xformers", "diffusers_xformers"):
            if getattr(options, name) and options.mem_eff_attn:
                yield warning(name, "not used, because mem_eff_attn is set", "choose one of them")
    if options.xformers and options.sdpa and not options.mem_eff_attn:
        yield warning("sdpa", "not used, because xformers is set", "choose one of them")
    if options.attn_mode is not None and some_are(families, "anima", "hunyuan_image"):
        for name in ("xformers", "sdpa"):
            if getattr(options, name) and options.attn_mode != name:
                yield warning(name, f"not used, because attn_mode is {options.attn_mode}", "choose one of them")
    if options.use_flash_attn and options.use_sage_attn and some_are(families, "lumina"):
        yield error("use_sage_attn", "excludes use_flash_attn", "choose one of them")


def attention_can_train(options: Memory, families: Families) -> Iterator[Problem]:
    if some_are(families, "anima", "hunyuan_image"):
        mode = options.attn_mode
        if mode == "sageattn":
            yield error("attn_mode", "sageattn can draw but not train", 'set it to "torch"')
        elif mode in PACKAGES and importlib.util.find_spec(PACKAGES[mode]) is None:
            yield error("attn_mode", f"the package {PACKAGES[mode]} is not installed", 'install it, or choose "torch"')
        is_xformers = mode == "xformers" or (mode is None and options.xformers)
        if is_xformers and not options.split_attn:
            yield error("split_attn", "xFormers needs it with this model", "set split_attn = true")
    if all_are(families, "lumina"):
        for name, package in (("use_flash_attn", "flash_attn"), ("use_sage_attn", "sageattention")):
            if getattr(options, name) and importlib.util.find_spec(package) is None:
                yield error(name, f"the package {package} is not installed", "install it, or leave this off")


def one_compiler_is_chosen(options: Memory) -> Iterator[Problem]:
    if options.torch_compile and options.dynamo_backend == "no":
        yield note("torch_compile", 'does nothing with dynamo_backend = "no"', "choose another, such as inductor")
    if not options.compile:
        return
    if options.torch_compile:
        yield error("compile", "excludes torch_compile", "choose one of them")
    if options.compile_fullgraph and options.split_attn:
        yield error("compile_fullgraph", "excludes split_attn, which splits the graph", "choose one of them")


def vae_chunks_are_even(options: Memory) -> Iterator[Problem]:
    size = options.vae_chunk_size
    if size is not None and size % 2:
        yield error("vae_chunk_size", f"{size} is not even", f"nearest are {size - 1} and {size + 1}")


def deepspeed_is_ready(options: Distributed) -> Iterator[Problem]:
    if not options.deepspeed:
        return
    if importlib.util.find_spec("deepspeed") is None:
        yield error("deepspeed", "the package deepspeed is not installed", "install it, or leave this off")
    for part in ("optimizer", "param"):
        is_on_disk = getattr(options, f"offload_{part}_device") == "nvme"
        if is_on_disk and getattr(options, f"offload_{part}_nvme_path") is None:
            yield error(f"offload_{part}_nvme_path", f"offload_{part}_device nvme needs a folder", "name one")


def static_graph_fits(options: Distributed) -> Iterator[Problem]:
    """torch fails where the first backward pass does not exchange gradients."""
    if options.ddp_static_graph and getattr(options, "gradient_accumulation_steps", 1) > 1:
        yield error("ddp_static_graph", "excludes gradient accumulation", "set gradient_accumulation_steps = 1")


RULES: tuple[Rule, ...] = (
    full_precision_fits_mixed,
    eight_bits_compute_in_sixteen,
    eight_bits_fit_the_family,
    eight_bits_are_for_adapters,
    fp16_is_enough,
    activations_are_kept_once,
    offloading_means_checkpointing,
    enough_blocks_stay,
    blocks_are_counted_once,
    the_whole_model_is_not_compiled_with_swapped_blocks,
    fused_passes_fit,
    xformers_is_installed,
    one_attention_is_chosen,
    attention_can_train,
    one_compiler_is_chosen,
    vae_chunks_are_even,
    deepspeed_is_ready,
    static_graph_fits,
)
