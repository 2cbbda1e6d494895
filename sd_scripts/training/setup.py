"""From a plan to a run: loads the model, fills the cache, builds the parts, resumes."""

from __future__ import annotations

import logging
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

from sd_scripts.data.loader import Loader
from sd_scripts.methods.registry import METHODS
from sd_scripts.models.base import Architecture
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.models.registry import load_architecture
from sd_scripts.models.vae_tiles import use_tiles
from sd_scripts.options.implied import checkpoints_gradients
from sd_scripts.options.recipes import Recipe, TrainingOptions
from sd_scripts.plan import Plan
from sd_scripts.training.caching import cache_latents, cache_texts
from sd_scripts.training.compilation import compile_denoiser
from sd_scripts.training.devices import choose_attention
from sd_scripts.training.ema import Ema
from sd_scripts.training.guards import NanGuard
from sd_scripts.training.optimizers import make_optimizer
from sd_scripts.training.outputs import add_outputs
from sd_scripts.training.processes import Processes
from sd_scripts.training.report import Report
from sd_scripts.training.residence import loading_device, release_unused, settle, use_at
from sd_scripts.training.resuming import begin, state_to_resume
from sd_scripts.training.run import Run
from sd_scripts.training.run_folder import RunFolder
from sd_scripts.training.schedulers import make_scheduler, try_out
from sd_scripts.training.state import Trained
from sd_scripts.training.state_folder import read_position
from sd_scripts.training.state_record import record_of
from sd_scripts.training.stepping import check_stepping, stepping_of
from sd_scripts.training.validation import Validator

logger = logging.getLogger(__name__)

WEIGHT_DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def load_model(recipe: Recipe, options: TrainingOptions, plan: Plan, accelerator: Accelerator) -> Architecture:
    """The model in the number format that its training needs, set up as the options say."""
    assert plan.model is not None
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
    return architecture


def build_run(
    recipe: Recipe,
    options: TrainingOptions,
    plan: Plan,
    accelerator: Accelerator,
    processes: Processes,
    folder: RunFolder,
    report: Report,
) -> Run:
    """Load and connect all parts; the model is then ready for its first step."""
    assert plan.model is not None and plan.data is not None
    seed = options.seed
    check_stepping(options, accelerator.num_processes)
    state = state_to_resume(options, processes)
    steps = plan.steps_for(processes.count, read_position(state).step if state else 0)
    try_out(options, steps.total)
    architecture = load_model(recipe, options, plan, accelerator)
    cache = cache_latents(options, plan.data, architecture, accelerator, report.phase)
    held_out = plan.data.validation
    held_out_cache = cache_latents(options, held_out, architecture, accelerator, report.phase) if held_out else None
    method = METHODS[recipe.method](architecture, options, seed)
    if options.full_fp16 or options.full_bf16:
        method.trainee.to(WEIGHT_DTYPES[options.mixed_precision])
    texts = cache_texts(options, plan, architecture, method, accelerator, report.phase)
    is_main = accelerator.is_main_process
    release_unused(options, architecture, method, draws_samples=is_main and bool(plan.prompts), writes_model=is_main)
    is_sharded = accelerator.distributed_type in (DistributedType.DEEPSPEED, DistributedType.FSDP)
    is_placed = settle(options, architecture, method, is_sharded=is_sharded)
    stepping = stepping_of(options, method.trained_parameters(), seed, is_sharded=is_sharded)
    optimizer, optimizer_name = make_optimizer(options, method.parameter_groups(), stepping)
    scheduler = make_scheduler(options, optimizer, steps.total)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    ema = Ema(parameters, options.ema_decay) if options.ema_decay else None
    compile_denoiser(options, architecture)
    trainee, optimizer = accelerator.prepare(method.trainee, optimizer, device_placement=[not is_placed, True])
    load = partial(
        Loader,
        tokenizer=architecture.tokenizer,
        texts=texts,
        workers=options.max_data_loader_n_workers,
        total_steps=steps.total,
        pin_memory=accelerator.device.type == "cuda",
        warn=report.warning,
    )
    loader = load(
        plan.data,
        cache=cache,
        rank=processes.rank,
        world_size=processes.count,
        seed=seed,
        accumulation=steps.accumulation,
        persistent=options.persistent_data_loader_workers,
    )
    run = Run(
        options, seed, steps, accelerator, processes, plan.data, architecture, method, trainee, parameters, optimizer,
        scheduler, ema, loader, report, folder,
    )  # fmt: skip
    report.measures(steps, lambda: loader.wait_seconds, loader.meter.since_last)
    if held_out is not None:
        own_seed = seed if options.validation_seed is None else options.validation_seed
        run.validator = Validator(
            run, options, load(held_out, cache=held_out_cache, seed=own_seed, persistent=False), own_seed
        )
    run.guard = NanGuard(options.max_nan_steps) if options.max_nan_steps else None
    trained = Trained(method.trained_parameters(), optimizer, scheduler, accelerator.scaler, ema)
    record = record_of(options, plan.data)
    begin(run, trained, state, record)
    if processes.is_first:
        add_outputs(run, plan, trained, optimizer_name, record)
    for part in method.parts():
        size = f"{part.modules} modules, {part.parameters:,} parameters"
        logger.info("training %s: %s, rate %g", part.name, size, part.learning_rate)
    return run
