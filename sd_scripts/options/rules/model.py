"""Rules: the model and its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sd_scripts.options.families import FAMILIES, acts_for
from sd_scripts.options.methods import ControlNet
from sd_scripts.options.model_files import ModelFiles
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.rules.base import Families, Rule, all_are, is_given
from sd_scripts.options.schema import specs
from sd_scripts.options.text_encoders import TextEncoders

# Files that a family cannot do without; what the base model may hold itself is not among them.
NEEDED_FILES = {name: family.needs for name, family in FAMILIES.items() if family.needs}
LOOKED_AT_LATER = ("pretrained_model_name_or_path", "vae", "tokenizer_cache_dir")  # with their content, or made anew
ALWAYS_SO = {
    "mem_eff_attn": "PyTorch's own attention saves memory too and is used",
}


def model_is_given(options: ModelFiles) -> Iterator[Problem]:
    if options.pretrained_model_name_or_path is None:
        yield error("pretrained_model_name_or_path", "no model is given", "name the file or folder to train on")


def v2_fits(options: ModelFiles, families: Families) -> Iterator[Problem]:
    if options.v2 and all_are(families, "sdxl"):
        yield error("v2", "is for SD 2.x models, not for SDXL", "leave v2 out")


def model_type_fits(options: ModelFiles, families: Families) -> Iterator[Problem]:
    wanted = options.model_type
    if wanted is None or not acts_for(("flux", "chroma"), families) or wanted in families:
        return
    if isinstance(options, ControlNet):
        yield error("model_type", f"a ControlNet can be trained for FLUX only, not for {wanted}", "leave it out")
    else:
        found = " or ".join(FAMILIES[family].label for family in families)
        yield error("model_type", f"is {wanted}, but the base model is {found}", "leave it out")


def needed_files_are_given(options: ModelFiles, families: Families) -> Iterator[Problem]:
    needed = [set(NEEDED_FILES.get(family, ())) for family in families]
    labels = " or ".join(FAMILIES[family].label for family in families)
    for name in specs(ModelFiles):
        if all(name in names for names in needed) and getattr(options, name) is None:
            what = specs(ModelFiles)[name].label
            yield error(name, f"{labels} needs this file ({what}), and none is named", "name it")


def model_files_exist(options: ModelFiles, families: Families) -> Iterator[Problem]:
    for name, spec in specs(ModelFiles).items():
        path = getattr(options, name)
        if not spec.path or path is None or name in LOOKED_AT_LATER or not acts_for(spec.only_for, families):
            continue
        if spec.path == "file" and not Path(path).is_file():
            yield error(name, f"{path}: no such file", "check the path")
        elif not Path(path).exists():
            yield error(name, f"{path}: no such {'file or folder' if spec.path == 'model' else 'folder'}", "check it")


def clip_skip_fits(options: TextEncoders, families: Families) -> Iterator[Problem]:
    if options.clip_skip is not None and (all_are(families, "sd2") or getattr(options, "v2", False)):
        yield warning(
            "clip_skip", "SD 2.x models are made for their last layer but one, which is built in", "leave clip_skip out"
        )


def chroma_masks_its_padding(options: TextEncoders, families: Families) -> Iterator[Problem]:
    is_chroma = all_are(families, "chroma") or ("chroma" in families and getattr(options, "model_type", "") == "chroma")
    if is_chroma and not options.apply_t5_attn_mask:
        yield error("apply_t5_attn_mask", "Chroma needs it: it was made with masked captions", "set it to true")


def tokenizers_are_included(options: ModelFiles, families: Families) -> Iterator[Problem]:
    if options.tokenizer_cache_dir is not None and all_are(families, "clip"):
        yield note("tokenizer_cache_dir", "has no effect: the tokenizers are part of this program", "remove it")


def switches_that_are_always_on(options: ModelFiles) -> Iterator[Problem]:
    for name, why in ALWAYS_SO.items():
        if getattr(options, name, False) and is_given(options, name):
            yield note(name, f"changes nothing: {why}", "remove it")


RULES: tuple[Rule, ...] = (
    model_is_given,
    v2_fits,
    model_type_fits,
    needed_files_are_given,
    model_files_exist,
    clip_skip_fits,
    chroma_masks_its_padding,
    tokenizers_are_included,
    switches_that_are_always_on,
)
