"""The plan of a run: all that is known before a model is loaded, and every problem that can be found by then. No
torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.family import DENOISER
from sd_scripts.options.dataset import DatasetSource
from sd_scripts.options.effect import check_effect
from sd_scripts.options.implied import block_rates, full_rates
from sd_scripts.options.methods import Network
from sd_scripts.options.network_arguments import check_items
from sd_scripts.options.problems import CheckFailed, Problem, as_problem, error, note, warning
from sd_scripts.options.recipes import FullModelTraining, Recipe, TrainingOptions
from sd_scripts.options.rules import check_options
from sd_scripts.options.sizes import divisor_of
from sd_scripts.training.memory_estimate import MemoryNeed, memory_need
from sd_scripts.training.state_folder import find_state, read_position
from sd_scripts.training.steps import Steps, count_steps

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan
    from sd_scripts.models.detect import CheckpointInfo
    from sd_scripts.training.prompts import SamplePrompt


@dataclass(frozen=True)
class Trained:
    """What is trained of one part of the model; `learning_rate` None: nothing, for the reason given."""

    part: str
    label: str
    modules: int
    parameters: int
    learning_rate: float | None
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """What a run will do. Parts that could not be worked out because of an error are None or empty."""

    options: TrainingOptions
    model: CheckpointInfo | None = None
    data: DataPlan | None = None
    steps: Steps | None = None
    trained: tuple[Trained, ...] = ()
    prompts: tuple[SamplePrompt, ...] = ()
    memory: MemoryNeed | None = None
    problems: tuple[Problem, ...] = field(default=())

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]

    def require_no_errors(self) -> None:
        if self.errors:
            raise CheckFailed(self.errors)

    def steps_for(self, world_size: int, resumed_at: int = 0) -> Steps:
        """Steps with so many processes, for a run that goes on from a state of so many steps."""
        assert self.data is not None
        return count_steps(self.options, self.data.batches_per_epoch(world_size), resumed_at)

    def summary(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "model": self._model_summary(),
            "data": self.data.summary() if self.data else None,
            "steps": asdict(self.steps) if self.steps else None,
            "trained": [asdict(part) for part in self.trained],
            "samples": len(self.prompts),
            "memory": asdict(self.memory) if self.memory else None,
            "problems": [asdict(problem) for problem in self.problems],
        }

    def _model_summary(self) -> dict[str, Any] | None:
        if self.model is None:
            return None
        return {
            "path": str(self.model.path),
            "architecture": self.model.architecture,
            "label": self.model.label,
            "parameters": self.model.parameters(),
        }


def make_plan(
    recipe: Recipe, options: TrainingOptions, world_size: int = 1, known_problems: Sequence[Problem] = ()
) -> Plan:
    """Look at the options, the model's header, the pictures and the prompts. Never raises for what a user can mend.

    Args:
        known_problems: warnings about how the options were given; they become part of the plan's.
    """
    model, found = _look_at_model(recipe, options)
    if model is not None and model.predicts_v:
        options = options.model_copy(update={"v_parameterization": True})
    families = (model.architecture,) if model else recipe.architectures
    problems = [*known_problems, *check_options(options, families), *found]
    if recipe.available:
        problems += check_effect(options, families)
    else:
        problems.append(error(None, f"{recipe.script}.py is not yet available", "choose another trainer or model"))
    data, found = _look_at_data(recipe, options, families)
    problems += found
    prompts, found = _look_at_prompts(options, model)
    problems += found
    steps = None
    if data is not None and (batches := data.batches_per_epoch(world_size)) > 0:
        steps = count_steps(options, batches, _resumed_at(options))
    trained, found = _look_at_trained(options, model if recipe.available else None, families)
    problems += found
    need = None
    if model is not None and recipe.available:
        need = memory_need(options, model, {part.part: part.parameters for part in trained}, data)
    return Plan(
        options=options,
        model=model,
        data=data,
        steps=steps,
        trained=trained,
        prompts=prompts,
        memory=need,
        problems=tuple(_sorted(problems)),
    )


def _resumed_at(options: TrainingOptions) -> int:
    """Steps of the state that the run goes on from, where it lies on this machine."""
    if options.resume is None or find_state(Path(options.resume)) is None:
        return 0
    try:
        return read_position(Path(options.resume)).step
    except UserError:  # told when it is read
        return 0


def _sorted(problems: list[Problem]) -> list[Problem]:
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(dict.fromkeys(problems), key=lambda problem: order[problem.level])


def _look_at_model(recipe: Recipe, options: TrainingOptions) -> tuple[CheckpointInfo | None, list[Problem]]:
    from sd_scripts.models.detect import inspect, require_architecture, with_separate_files

    if options.pretrained_model_name_or_path is None:
        return None, []
    name = "pretrained_model_name_or_path"
    try:
        info = inspect(Path(options.pretrained_model_name_or_path))
        require_architecture(info, recipe.architectures, recipe.method)
        info.parameters()
    except UserError as failure:
        return None, [error(name, str(failure))]
    problems = []
    try:
        info = with_separate_files(info, options)
    except UserError as failure:
        option = getattr(failure, "option", None) or name
        problems.append(error(option, getattr(failure, "reason", str(failure))))
    if options.v2 and info.architecture != "sd2":
        problems.append(error("v2", f"{info.path.name} is {info.label}", "leave v2 out"))
    if info.predicts_v and not options.v_parameterization:
        problems.append(
            note("v_parameterization", f"{info.path.name} says that it predicts velocity, so it is trained to")
        )
    if options.v_parameterization and info.architecture == "sd1":
        problems.append(
            note("v_parameterization", "few SD 1.x models predict velocity", "make sure that this one does")
        )
    return info, problems


def _look_at_data(
    recipe: Recipe, options: TrainingOptions, families: Collection[str]
) -> tuple[DataPlan | None, list[Problem]]:
    from sd_scripts.data.plan import plan_data

    sources = ("dataset_config", "dataset_class", "in_json", "train_data_dir")
    source = next((name for name in sources if getattr(options, name, None)), None)
    if not isinstance(options, DatasetSource) or source is None:
        return None, []
    has_guides = recipe.method in ("controlnet", "lllite")
    divisor = divisor_of(families)
    try:
        data = plan_data(options, divisor=divisor, seed=options.seed or 0, has_guides=has_guides)
    except ConfigError as failure:
        return None, [as_problem(failure)]
    except UserError as failure:
        return None, [error(source, str(failure))]
    return data, list(data.problems)


def _look_at_prompts(
    options: TrainingOptions, model: CheckpointInfo | None
) -> tuple[tuple[SamplePrompt, ...], list[Problem]]:
    from sd_scripts.training.prompts import read_prompts

    if options.sample_prompts is None:
        return (), []
    source = options.prompt_lines or Path(options.sample_prompts)
    if isinstance(source, Path) and not source.is_file():
        return (), []
    try:
        prompts = read_prompts(source, divisor=model.family.divisor if model else 8)
    except UserError as failure:
        return (), [error("sample_prompts", str(failure))]
    notes = [note("sample_prompts", text) for prompt in prompts for text in prompt.notes]
    unused = sorted({name for prompt in prompts for name in prompt.extra})
    if unused:
        notes.append(note("sample_prompts", f"{', '.join(unused)}: without effect for this model", "remove the marks"))
    if not prompts:
        notes.append(warning("sample_prompts", "holds no prompts", "write one prompt a line"))
    return tuple(prompts), notes


def _look_at_trained(
    options: TrainingOptions, model: CheckpointInfo | None, families: Sequence[str]
) -> tuple[tuple[Trained, ...], list[Problem]]:
    try:
        if isinstance(options, Network):
            problems = list(check_items(options.network_module, options.network_args or [], families))
            fits = all(problem.level != "error" for problem in problems)
            return (_trained_by_adapter(options, model) if fits else ()), problems
        if isinstance(options, FullModelTraining):
            return _trained_in_full(options, model), []
    except UserError as failure:
        return (), [as_problem(failure)]
    return (), []


def _trained_by_adapter(options: Network, model: CheckpointInfo | None) -> tuple[Trained, ...]:
    from sd_scripts.adapters.settings import adapter_settings, part_rates
    from sd_scripts.models.targets import adapter_counts

    settings = adapter_settings(options, model.family if model else None)
    if model is None:
        return ()
    counts = adapter_counts(model.family, model.shapes, settings.rank_of)
    return tuple(
        Trained(rate.part, rate.label, *(counts[rate.part] if rate.lr is not None else (0, 0)), rate.lr, rate.reason)
        for rate in part_rates([model.family.part(name) for name in counts], options)
    )


def _trained_in_full(options: FullModelTraining, model: CheckpointInfo | None) -> tuple[Trained, ...]:
    if model is None:
        return ()
    rates = full_rates(options, model.family)
    by_block = block_rates(options, model.family)
    return tuple(
        _trained_by_block(model, by_block)
        if part == DENOISER and by_block
        else _trained_part(model, part, rate, options)
        for part, rate in rates.items()
    )


def _trained_part(model: CheckpointInfo, part: str, rate: float, options: FullModelTraining) -> Trained:
    label = model.family.part(part).label
    if rate == 0:
        is_off = part != DENOISER and not options.train_text_encoder
        return Trained(part, label, 0, 0, None, "train_text_encoder is off" if is_off else "rate 0")
    modules = sum(1 for name in model.shapes[part] if name.endswith(".weight"))
    return Trained(part, label, modules, model.parts[part].numbers, rate)


def _trained_by_block(model: CheckpointInfo, rates: list[float]) -> Trained:
    """The denoiser with a rate for each block; the highest one stands for it."""
    shapes = model.shapes[DENOISER]
    learning = [name for name, block in model.family.weight_blocks(shapes).items() if rates[block]]
    modules = sum(1 for name in learning if name.endswith(".weight"))
    label = model.family.part(DENOISER).label
    return Trained(DENOISER, label, modules, sum(math.prod(shapes[n]) for n in learning), max(rates), "block_lr")
