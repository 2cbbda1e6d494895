"""From a plan to a run: loads the model, fills the cache, builds the parts, resumes."""

from __future__ import annotations

import logging
import secrets
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast_object_list

from sd_scripts.data.loader import Loader
from sd_scripts.errors import UserError
from sd_scripts.methods.registry import METHODS
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.models.registry import load_architecture
from sd_scripts.models.vae_tiles import use_tiles
from sd_scripts.options.implied import checkpoints_gradients
from sd_scripts.options.recipes import Recipe, TrainingOptions
from sd_scripts.options.toml_files import write_settings
from sd_scripts.plan import Plan
from sd_scripts.training.caching import cache_latents
from sd_scripts.training.compilation import compile_denoiser
from sd_scripts.training.devices import choose_attention, make_accelerator
from sd_scripts.training.ema import Ema
from sd_scripts.training.loop import fit
from sd_scripts.training.model_writer import ModelWriter
from sd_scripts.training.optimizers import make_optimizer
from sd_scripts.training.report import Report
from sd_scripts.training.residence import loading_device, release_unused, settle, use_at
from sd_scripts.training.run import Run
from sd_scripts.training.run_folder import RunFolder, Status, new_run_path, write_json
from sd_scripts.training.samples import SampleDrawer
from sd_scripts.training.saving import FileNames, Saver
from sd_scripts.training.schedulers import make_scheduler, try_out, use_rates
from sd_scripts.training.state import Position, Trained, read_position, read_state, write_state
from sd_scripts.training.stepping import check_stepping, stepping_of
from sd_scripts.versions import version_lines

logger = logging.getLogger(__name__)

WEIGHT_DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def run_plan(recipe: Recipe, plan: Plan) -> None:
    """Train as planned; the run folder says at any time how it stands, and at the end how it went.

    Raises:
        UserError: anything a user can mend, out of memory included.
    """
    accelerator = make_accelerator(plan.options)
    plan = with_seed(plan, accelerator)
    options = plan.options
    if not accelerator.is_main_process:
        fit(build_run(recipe, options, plan, accelerator, RunFolder(Path()), Report(None, Status("starting"))))
        return
    folder = open_run_folder(options, plan)
    with logged_to(folder.log):
        report = make_report(options, folder)
        try:
            with stopped_by_signals(folder):
                state = fit(build_run(recipe, options, plan, accelerator, folder, report))
        except torch.OutOfMemoryError as failure:
            message = (
                "out of memory: choose gradient_checkpointing, a smaller train_batch_size or resolution, mixed_precision, "
                "or an 8-bit optimizer"
            )
            report.ended("failed", message)
            raise UserError(message) from failure
        except KeyboardInterrupt:
            report.ended("stopped", "interrupted")
            raise
        except Exception as failure:
            report.ended("failed", str(failure))
            raise
        report.ended(state)
    accelerator.end_training()


def with_seed(plan: Plan, accelerator: Accelerator) -> Plan:
    """The plan with a seed: the one given, or one drawn now for all processes, which the run folder then records."""
    assert plan.data is not None
    seed = plan.options.seed
    if seed is None:
        (seed,) = (
            broadcast_object_list([secrets.randbits(31)]) if accelerator.num_processes > 1 else (secrets.randbits(31),)
        )
    options = plan.options.model_copy(update={"seed": seed})
    return replace(plan, options=options, data=replace(plan.data, seed=seed))


def open_run_folder(options: TrainingOptions, plan: Plan) -> RunFolder:
    """The run's folder with its settings, plan, command and versions."""
    name = options.output_name or "last"
    path = Path(options.run_dir) if options.run_dir else new_run_path(Path(options.output_dir) / "runs", name)
    folder = RunFolder(path).make()
    write_settings(folder.config, options, leave_out=frozenset({"run_dir"}))
    write_json(folder.plan, plan.summary())
    if not folder.command.exists():
        folder.command.write_text(shlex.join([sys.executable, *sys.argv]) + "\n", encoding="utf-8")
    folder.versions.write_text("\n".join(version_lines()) + "\n", encoding="utf-8")
    return folder


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Within it the log also goes to this file; unless it exists: whoever redirected the output there has made it."""
    if path.exists():
        yield
        return
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def stopped_by_signals(folder: RunFolder) -> Iterator[None]:
    """Within it the first Ctrl-C or termination asks for a stop, so that the weights are written; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: object) -> None:
        logger.warning("stopping after this step; once more ends at once")
        folder.request("stop")
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_report(options: TrainingOptions, folder: RunFolder) -> Report:
    """Where the run tells of itself: events, status, TensorBoard."""
    process = psutil.Process()
    status = Status("starting", "loading", pid=process.pid, created=process.create_time())
    board = None
    if options.log_with == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        name = f"{options.log_prefix or ''}{time.strftime('%Y%m%d%H%M%S')}"
        place = Path(options.logging_dir) / name if options.logging_dir else folder.tensorboard
        board = SummaryWriter(
            str(place / (options.log_tracker_name or "network_train") if options.logging_dir else place)
        )
    report = Report(folder, status, board)
    report.phase("loading the model")
    return report


def build_run(
    recipe: Recipe, options: TrainingOptions, plan: Plan, accelerator: Accelerator, folder: RunFolder, report: Report
) -> Run:
    """Load and connect all parts; the model is then ready for its first step."""
    assert plan.model is not None and plan.data is not None
    seed = options.seed
    check_stepping(options, accelerator.num_processes)
    try_out(options, plan.steps_for(accelerator.num_processes).total)
    trains_base = METHODS[recipe.method].trains_base_weights
    dtype = (
        torch.float32
        if trains_base and not (options.full_fp16 or options.full_bf16)
        else WEIGHT_DTYPES[options.mixed_precision]
    )
    place = loading_device(options, plan.model.architecture, accelerator.device)
    architecture = load_architecture(options, plan.model, place, dtype)
    use_at(architecture, accelerator.device)
    if options.vae_chunk_size:
        use_tiles(architecture.vae, options.vae_chunk_size, architecture.latent.downscale)
    if options.zero_terminal_snr and isinstance(architecture.schedule, NoiseSchedule):
        architecture.schedule = architecture.schedule.with_zero_terminal_snr()
    choose_attention(options, architecture)
    if checkpoints_gradients(options):
        architecture.set_gradient_checkpointing(True)
    cache = cache_latents(options, plan.data, architecture, accelerator, report.phase)
    method = METHODS[recipe.method](architecture, options, seed)
    if options.full_fp16 or options.full_bf16:
        method.trainee.to(WEIGHT_DTYPES[options.mixed_precision])
    is_main = accelerator.is_main_process
    draws = is_main and bool(plan.prompts)
    release_unused(options, architecture, method, draws_samples=draws, writes_model=is_main)
    is_placed = settle(options, architecture, method)
    is_sharded = accelerator.distributed_type in (DistributedType.DEEPSPEED, DistributedType.FSDP)
    stepping = stepping_of(options, method.trained_parameters(), seed, is_sharded=is_sharded)
    optimizer, optimizer_name = make_optimizer(options, method.parameter_groups(), stepping)
    steps = plan.steps_for(accelerator.num_processes)
    scheduler = make_scheduler(options, optimizer, steps.total)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    ema = Ema(parameters, options.ema_decay) if options.ema_decay else None
    compile_denoiser(options, architecture)
    trainee, optimizer = accelerator.prepare(method.trainee, optimizer, device_placement=[not is_placed, True])
    loader = Loader(
        plan.data,
        architecture.tokenizer,
        cache=cache,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        seed=seed,
        workers=options.max_data_loader_n_workers,
        total_steps=steps.total,
        pin_memory=accelerator.device.type == "cuda",
        accumulation=steps.accumulation,
        persistent=options.persistent_data_loader_workers,
    )
    run = Run(
        options, seed, steps, accelerator, architecture, method, trainee, parameters, optimizer, scheduler, ema, loader,
        report, folder,
    )  # fmt: skip
    report.measures(steps, lambda: loader.wait_seconds)
    trained = Trained(method.trained_parameters(), optimizer, scheduler, accelerator.scaler, ema)
    if options.resume:
        resume(run, trained, Path(options.resume))
    if accelerator.is_main_process:
        _add_outputs(run, plan, trained, optimizer_name)
    for part in method.parts():
        logger.info(
            "training %s: %d modules, %s parameters, rate %g",
            part.name,
            part.modules,
            f"{part.parameters:,}",
            part.learning_rate,
        )
    return run


def resume(run: Run, trained: Trained, folder: Path) -> None:
    """Go on from a state.

    Raises:
        UserError: it belongs to another run, or that run was finished already.
    """
    position = read_position(folder)
    if position.step >= run.steps.total:
        raise UserError(
            f"{folder}: was saved after step {position.step}, and this run ends at step {run.steps.total}; "
            "raise max_train_epochs or max_train_steps (they count from the start) to train on"
        )
    changes = [
        f"{name} was {before}, is {now}"
        for name, before, now in (
            ("the seed", position.seed, run.seed),
            ("batches per epoch", position.batches_per_epoch, run.steps.batches_per_epoch),
            ("gradient_accumulation_steps", position.accumulation, run.steps.accumulation),
        )
        if before != now
    ]
    if changes:
        run.report.warning(f"resuming with changes, so the result differs from an unbroken run: {'; '.join(changes)}")
    wanted = run.learning_rates_at_full()
    read_state(folder, trained)
    if run.options.resume_learning_rate == "settings":
        use_rates(run.scheduler, list(wanted.values()))
    elif run.learning_rates_at_full() != wanted:
        kept = ", ".join(f"{name} {rate:g}" for name, rate in run.learning_rates_at_full().items())
        run.report.warning(f"the learning rates of the state are kept ({kept}), not those of the settings")
    run.step = run.first_step = position.step
    logger.info("resumed from %s after step %d", folder, run.step)


def _add_outputs(run: Run, plan: Plan, trained: Trained, optimizer_name: str) -> None:
    """What only the first process does: write files and draw samples."""
    options = run.options
    names = FileNames(Path(options.output_dir), options.output_name, f".{options.save_model_as}")
    writer = ModelWriter(run, plan, optimizer_name)

    def write_model(path: Path) -> None:
        run.report.fetch()
        run.report.phase("saving")
        with run.final_weights():
            writer.write(path)
        run.report.checkpoint("model", run.step, run.epoch, path)
        run.report.phase("training")

    def save_state(path: Path) -> None:
        position = Position(run.step, run.epoch, run.seed, run.steps.batches_per_epoch, run.steps.accumulation)
        write_state(path, position, trained)
        run.report.checkpoint("state", run.step, run.epoch, path)

    run.saver = Saver(options, run.steps, names, write_model, save_state)
    run.samples = SampleDrawer(options, plan.prompts, run.architecture, names, run.report, run.seed, run.final_weights)
