"""What the two caching commands have in common: options as the trainers have them, a plan, the filling, the upkeep."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sd_scripts.console import console
from sd_scripts.entry import say_failure, speak_utf8
from sd_scripts.errors import UserError
from sd_scripts.options.cli import parse
from sd_scripts.options.problems import CheckFailed, Problem, error
from sd_scripts.options.recipes import RECIPES, Recipe, TrainingOptions
from sd_scripts.options.schema import Options, OptionSpec, option, specs
from sd_scripts.plan import Plan, make_plan

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan

# Titles of the groups of options that do something here. The others are taken, as a trainer's file may be given whole.
SHOWN = (
    "Model", "Text encoders", "Pictures", "Captions", "Size and buckets", "Caching", "Validation", "Precision and memory",
    "Several devices", "Logging", "Cache command",
)  # fmt: skip
SECONDS_BETWEEN_LINES = 2.0


class CacheCommand(Options):
    title: ClassVar[str] = "Cache command"
    order: ClassVar[int] = 1

    verify: bool = option(
        False, help="Read every entry of the caches beside these pictures and drop damaged ones; then stop."
    )
    purge: bool = option(
        False,
        help="Drop the entries that come from none of these pictures and captions; then stop. Not while a run uses them.",
    )
    for_full_training: bool = option(
        False,
        help="Cache for the trainers of all weights (fine_tune, train_db and their like), which keep the networks in full "
        "precision, instead of for those of a LoRA.",
    )
    skip_existing: bool = option(
        False, level="expert", help="Known from earlier settings: what is there and valid is never made again."
    )
    sdxl: bool = option(False, level="expert", help="Known from earlier settings: the model tells what it is.")
    flux: bool = option(False, level="expert", help="Known from earlier settings: the model tells what it is.")


class CacheOptions(CacheCommand, TrainingOptions):
    """All options of the trainers, so that a trainer's settings file can be given as it is."""


@dataclass(frozen=True)
class CacheRecipe(Recipe):
    """A caching command, as the command line takes it."""

    def takes(self, spec: OptionSpec) -> bool:
        return spec.group in SHOWN and super().takes(spec)


@dataclass(frozen=True)
class Command:
    """What a command caches, and the options that say so."""

    summary: str
    switches: tuple[str, str]


COMMANDS = {
    "cache_latents": Command("Encode pictures once.", ("cache_latents", "cache_latents_to_disk")),
    "cache_text_encoder_outputs": Command(
        "Encode captions once.", ("cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk")
    ),
}


def recipe_of(command: str) -> Recipe:
    """The options and model families of a caching command: those for which there is a trainer."""
    available = [recipe for recipe in RECIPES.values() if recipe.available]
    families = tuple(dict.fromkeys(family for recipe in available for family in recipe.architectures))
    return CacheRecipe(f"tools/{command}", "cache", families, CacheOptions, COMMANDS[command].summary)


def main(command: str, arguments: Sequence[str] | None = None) -> int:
    """Run a caching command. Returns the exit code: 0 done, 1 failed or damage found, 130 interrupted."""
    speak_utf8()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return run(command, arguments)
    except UserError as failure:
        return say_failure(failure)
    except KeyboardInterrupt:
        print("interrupted; what was stored so far is used by the next start", file=sys.stderr)
        return 130


def run(command: str, arguments: Sequence[str]) -> int:
    """As `main`, with what a user can mend as UserError."""
    recipe = recipe_of(command)
    given = parse(recipe, arguments).options
    options = given.model_copy(update=dict.fromkeys(COMMANDS[command].switches, True))
    is_first = os.environ.get("RANK", "0") == "0"
    with console(options, is_first):
        plan = make_plan(recipe, options)
        _require(plan, needs_model=not (options.verify or options.purge))
        assert plan.data is not None
        if options.verify or options.purge:
            return _look_after(plan.data, options)
        _fill(command, plan, options, is_first)
    return 0


def _require(plan: Plan, *, needs_model: bool) -> None:
    """Stop on what keeps this command from working; what concerns training alone does not."""
    concerned = [problem for problem in plan.errors if _is_concerned(problem)]
    if not needs_model:
        concerned = [problem for problem in concerned if problem.option != "pretrained_model_name_or_path"]
    if not concerned and plan.data is None:
        concerned = [error("train_data_dir", "no pictures are given", "name a picture folder or a dataset file")]
    if concerned:
        raise CheckFailed(concerned)


def _is_concerned(problem: Problem) -> bool:
    spec = specs(CacheOptions).get(problem.option or "")
    return spec is None or spec.group in SHOWN


def _look_after(data: DataPlan, options: CacheOptions) -> int:
    from sd_scripts.data.cache_upkeep import purge, verify

    damaged = []
    if options.verify:
        entries, damaged = verify(data)
        print(f"whole entries: {entries:,}; damaged files: {len(damaged)}")
        for path in damaged:
            print(f"damaged entries were dropped from {path}; the next run makes them anew")
    if options.purge:
        purged = purge(data)
        freed = f"{purged.bytes_freed / 1e6:,.1f} MB"
        print(f"entries dropped: {purged.dropped:,}; kept: {purged.kept:,}; freed: {freed}")
    return 1 if damaged else 0


def _fill(command: str, plan: Plan, options: CacheOptions, is_first: bool) -> None:
    from sd_scripts.models.registry import load_architecture
    from sd_scripts.models.vae_tiles import use_tiles
    from sd_scripts.training.caching import cache_latents, encode_texts
    from sd_scripts.training.devices import make_accelerator
    from sd_scripts.training.residence import use_at
    from sd_scripts.training.setup import WEIGHT_DTYPES

    assert plan.model is not None and plan.data is not None
    accelerator = make_accelerator(options)
    dtype = WEIGHT_DTYPES["no" if options.for_full_training else options.mixed_precision]
    architecture = load_architecture(options, plan.model, accelerator.device, dtype)
    use_at(architecture, accelerator.device)
    if options.vae_chunk_size:
        use_tiles(architecture.vae, options.vae_chunk_size, architecture.latent.downscale)
    phase = _Lines() if is_first else _say_nothing
    for data in filter(None, (plan.data, plan.data.validation)):
        if command == "cache_latents":
            cache_latents(options, data, architecture, accelerator, phase)
        else:
            encode_texts(options, data, architecture, accelerator, phase)
    accelerator.end_training()


class _Lines:
    """Progress in lines on the console."""

    def __init__(self) -> None:
        self._began = self._last = 0.0

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not done:
            self._began = now
        if not total or (now - self._last < SECONDS_BETWEEN_LINES and done < total):
            return
        self._last = now
        rate = done / max(now - self._began, 1e-9)
        left = f", {(total - done) / rate:,.0f} s left" if done < total and rate else ""
        speed = f", {rate:,.1f} a second" if done else ""
        print(f"{name}: {done:,} of {total:,}{speed}{left}", file=sys.stderr, flush=True)


def _say_nothing(name: str, done: int, total: int) -> None:
    """The other processes of a run."""
