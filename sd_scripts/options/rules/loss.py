"""Rules: loss, noise and timesteps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sd_scripts.options.families import acts_for
from sd_scripts.options.model_files import ModelFiles
from sd_scripts.options.objective import Flow, Noise
from sd_scripts.options.problems import Problem, error, warning
from sd_scripts.options.rules.base import Families, Rule, all_are
from sd_scripts.options.schema import specs
from sd_scripts.options.sizes import parse_resolution


def noise_options_fit(options: Noise, families: Families) -> Iterator[Problem]:
    if options.adaptive_noise_scale is not None and options.noise_offset is None and acts_for(("noise",), families):
        yield error("adaptive_noise_scale", "works only together with noise_offset", "set noise_offset too")


def timesteps_leave_a_range(options: Noise) -> Iterator[Problem]:
    low, high = options.min_timestep or 0, 1000 if options.max_timestep is None else options.max_timestep
    if low > high:
        yield error("min_timestep", f"{low} is above max_timestep {high}", "leave a range between them")


def loss_options_fit_prediction(options: ModelFiles, families: Families) -> Iterator[Problem]:
    if not acts_for(("noise",), families):
        return
    predicts_velocity = options.v_parameterization
    if getattr(options, "scale_v_pred_loss_like_noise_pred", False) and not predicts_velocity:
        yield error(
            "scale_v_pred_loss_like_noise_pred", "is for v-prediction models", "set v_parameterization, or leave it off"
        )
    if getattr(options, "v_pred_like_loss", None) and predicts_velocity:
        yield error("v_pred_like_loss", "is for noise-prediction models", "leave it out with v_parameterization")
    if getattr(options, "zero_terminal_snr", False) and not predicts_velocity:
        yield warning(
            "zero_terminal_snr", "is meant for v-prediction models", "set v_parameterization if the model is one"
        )


def nextdit_shift_is_for_lumina(options: Flow, families: Families) -> Iterator[Problem]:
    is_other = all_are(families, "flux", "chroma", "anima", "hunyuan_image")
    if options.timestep_sampling == "nextdit_shift" and is_other:
        yield error("timestep_sampling", "nextdit_shift is for Lumina", 'set it to "shift" or "flux_shift"')


def weighting_acts(options: Flow, families: Families) -> Iterator[Problem]:
    """Densities act on the sampler's table, weights on a loss that is scaled by sigma; SD 3 does both, Anima weighs."""
    scheme = options.weighting_scheme
    if not all_are(families, "flow"):
        return
    used = [family for family in families if _scheme_acts(options, scheme, family)]
    if used or scheme in ("uniform", "none"):
        return
    if scheme in ("logit_normal", "mode"):
        yield warning(
            "weighting_scheme", f"{scheme} has no effect unless timestep_sampling is sigma", "set that, or leave it out"
        )
    else:
        yield warning(
            "weighting_scheme",
            f"{scheme} has no effect unless model_prediction_type is sigma_scaled",
            "set that, or leave it out",
        )


def _scheme_acts(options: Flow, scheme: str, family: str) -> bool:
    if family == "sd3":
        return True
    if scheme in ("logit_normal", "mode"):
        return _chosen(options, "timestep_sampling", family) == "sigma"
    return family == "anima" or _chosen(options, "model_prediction_type", family) == "sigma_scaled"


def _chosen(options: Flow, name: str, family: str) -> Any:
    """The value of an option whose default depends on the family."""
    value = getattr(options, name)
    return specs(Flow)[name].default_for(family) if value is None else value


def shown_size_is_a_size(options: Flow, families: Families) -> Iterator[Problem]:
    text = options.show_timesteps_resolution
    if all_are(families, "flow") and options.show_timesteps is not None and parse_resolution(text) is None:
        yield error("show_timesteps_resolution", f"{text!r} is no size", "write 1024, or width,height as in 1024,768")


RULES: tuple[Rule, ...] = (
    noise_options_fit,
    timesteps_leave_a_range,
    loss_options_fit_prediction,
    nextdit_shift_is_for_lumina,
    weighting_acts,
    shown_size_is_a_size,
)
