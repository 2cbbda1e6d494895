"""Pictures from a latent diffusion model: classifier-free guidance with the schedulers of diffusers."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.base import Architecture, Text
from sd_scripts.models.noise_schedule import NoiseSchedule

if TYPE_CHECKING:
    from diffusers import SchedulerMixin
    from PIL import Image

# sampler name to diffusers' class and its settings besides the noise schedule
SAMPLERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ddim": ("DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1}),
    "pndm": ("PNDMScheduler", {"skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1}),
    "lms": ("LMSDiscreteScheduler", {}),
    "euler": ("EulerDiscreteScheduler", {}),
    "euler_a": ("EulerAncestralDiscreteScheduler", {}),
    "heun": ("HeunDiscreteScheduler", {}),
    "dpm_2": ("KDPM2DiscreteScheduler", {}),
    "dpm_2_a": ("KDPM2AncestralDiscreteScheduler", {}),
    "dpmsolver": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}),
    "dpmsolver++": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++"}),
    "dpmsingle": ("DPMSolverSinglestepScheduler", {}),
}
ALIASES = {f"k_{name}": name for name in ("lms", "euler", "euler_a", "dpm_2", "dpm_2_a")}
TINY = 2.0**-24  # the smallest alpha_bar that the sigma samplers take


@dataclass(frozen=True)
class SampleSettings:
    """One picture: size in px, number of steps, guidance scale, seed of the noise, sampler's name."""

    width: int
    height: int
    steps: int
    scale: float
    seed: int
    sampler: str = "ddim"


def make_scheduler(sampler: str, schedule: NoiseSchedule) -> SchedulerMixin:
    """diffusers' scheduler of this name, for a model's noise schedule.

    Raises:
        ConfigError: unknown name.
    """
    import diffusers

    name = ALIASES.get(sampler, sampler)
    if name not in SAMPLERS:
        raise ConfigError("sample_sampler", sampler, f"choose one of {', '.join([*SAMPLERS, *ALIASES])}")
    if name == "lms" and importlib.util.find_spec("scipy") is None:
        raise ConfigError("sample_sampler", sampler, "needs the package scipy: install it, or choose euler")
    cls, settings = SAMPLERS[name]
    prediction = "v_prediction" if schedule.prediction == "v" else "epsilon"
    return getattr(diffusers, cls)(**_schedule_settings(schedule), prediction_type=prediction, **settings)


def _schedule_settings(schedule: NoiseSchedule) -> dict[str, Any]:
    standard = NoiseSchedule.scaled_linear()
    if schedule.steps == standard.steps and torch.equal(schedule.betas.cpu(), standard.betas):
        return {
            "num_train_timesteps": standard.steps,
            **{"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"},
        }
    alpha_bar = schedule.alphas_cumprod.cpu().clamp(min=TINY)
    before = torch.cat([alpha_bar.new_ones(1), alpha_bar[:-1]])
    betas = (1 - alpha_bar / before).tolist()
    # a model trained down to pure noise has to start there
    return {"num_train_timesteps": schedule.steps, "trained_betas": betas, "timestep_spacing": "trailing"}


def sample_picture(
    architecture: Architecture, prompt: str, negative_prompt: str, settings: SampleSettings
) -> Image.Image:
    """Draw one picture with the networks as they are.

    All noise comes from a CPU generator of the seed, so a seed gives the same start on every device; the global random
    state is neither used nor changed. Networks are in evaluation mode meanwhile.
    """
    networks = (architecture.denoiser, architecture.vae, *architecture.text_encoders)
    with torch.no_grad(), evaluating(*networks):
        text = _guidance_texts(architecture, prompt, negative_prompt, settings)
        latents = _sample_latents(architecture, text, settings)
        with architecture.at_hand(architecture.vae):
            return to_picture(architecture.decode_latents(latents)[0])


def _guidance_texts(architecture: Architecture, prompt: str, negative: str, settings: SampleSettings) -> Text:
    """The prompt alone, or with guidance the negative prompt and the prompt as a batch of two."""
    captions = [prompt] if settings.scale == 1 else [negative, prompt]
    return architecture.encode_prompts(captions)


def _sample_latents(architecture: Architecture, text: Text, settings: SampleSettings) -> Tensor:
    device = text.hidden.device
    generator = torch.Generator("cpu").manual_seed(settings.seed)
    scheduler = make_scheduler(settings.sampler, architecture.schedule)
    scheduler.set_timesteps(settings.steps, device=device)
    latents = torch.randn(_latent_shape(architecture, settings), generator=generator).to(device)
    latents = latents * scheduler.init_noise_sigma
    guided = len(text.hidden)  # 1, or 2 with guidance
    extra = {"generator": generator} if _takes_generator(scheduler) else {}
    for timestep in scheduler.timesteps:
        noisy = scheduler.scale_model_input(latents, timestep)
        predicted = architecture.predict(noisy.expand(guided, -1, -1, -1), timestep.expand(guided), text).float()
        if guided == 2:
            without, with_prompt = predicted.chunk(2)
            predicted = without + settings.scale * (with_prompt - without)
        latents = scheduler.step(predicted, timestep, latents, return_dict=False, **extra)[0]
    return latents


def _latent_shape(architecture: Architecture, settings: SampleSettings) -> tuple[int, int, int, int]:
    latent = architecture.latent
    return 1, latent.channels, settings.height // latent.downscale, settings.width // latent.downscale


def _takes_generator(scheduler: SchedulerMixin) -> bool:
    return "generator" in inspect.signature(scheduler.step).parameters


def to_picture(pixels: Tensor) -> Image.Image:
    """An RGB picture from pixels (3, h, w) in -1…1."""
    from PIL import Image

    levels = ((pixels.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).cpu().numpy())


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Evaluation mode for every module of these networks; each gets its own mode back."""
    modes = [(module, module.training) for network in networks for module in network.modules()]
    for network in networks:
        network.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training
