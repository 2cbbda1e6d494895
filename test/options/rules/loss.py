"""Cases of `rules.loss`; see `test_rules_cases`."""

from sd_scripts.options.rules import loss

SD = ("sd1", "sd2")

CASES = [
    (loss.noise_options_fit, "adapter", "sd1", {"adaptive_noise_scale": 0.1}, ("adaptive_noise_scale", "error")),
    (loss.noise_options_fit, "adapter", "sd1", {"adaptive_noise_scale": 0.1, "noise_offset": 0.1}, None),
    (loss.noise_options_fit, "adapter", "flux", {"adaptive_noise_scale": 0.1}, None),
    (
        loss.timesteps_leave_a_range, "adapter", SD, {"min_timestep": 501, "max_timestep": 500},
        ("min_timestep", "error"),
    ),
    (loss.timesteps_leave_a_range, "adapter", SD, {"min_timestep": 500, "max_timestep": 500}, None),
    (
        loss.loss_options_fit_prediction, "adapter", SD, {"scale_v_pred_loss_like_noise_pred": True},
        ("scale_v_pred_loss_like_noise_pred", "error"),
    ),
    (
        loss.loss_options_fit_prediction, "adapter", "sdxl", {"v_pred_like_loss": 0.1, "v_parameterization": True},
        ("v_pred_like_loss", "error"),
    ),
    (loss.loss_options_fit_prediction, "adapter", SD, {"zero_terminal_snr": True}, ("zero_terminal_snr", "warning")),
    (
        loss.loss_options_fit_prediction, "adapter", SD,
        {"scale_v_pred_loss_like_noise_pred": True, "zero_terminal_snr": True, "v_parameterization": True}, None,
    ),
    (loss.loss_options_fit_prediction, "adapter", "flux", {"scale_v_pred_loss_like_noise_pred": True}, None),
    (
        loss.nextdit_shift_is_for_lumina, "adapter", "flux", {"timestep_sampling": "nextdit_shift"},
        ("timestep_sampling", "error"),
    ),
    (loss.nextdit_shift_is_for_lumina, "adapter", "lumina", {"timestep_sampling": "nextdit_shift"}, None),
    (
        loss.weighting_acts, "adapter", "flux", {"weighting_scheme": "logit_normal", "timestep_sampling": "sigmoid"},
        ("weighting_scheme", "warning"),
    ),
    (loss.weighting_acts, "adapter", "anima", {"weighting_scheme": "mode"}, ("weighting_scheme", "warning")),
    (loss.weighting_acts, "adapter", "lumina", {"weighting_scheme": "cosmap"}, ("weighting_scheme", "warning")),
    (loss.weighting_acts, "adapter", "flux", {"weighting_scheme": "logit_normal"}, None),
    (loss.weighting_acts, "adapter", "sd3", {"weighting_scheme": "logit_normal"}, None),
    (loss.weighting_acts, "adapter", "anima", {"weighting_scheme": "cosmap"}, None),
    (loss.weighting_acts, "adapter", "flux", {"weighting_scheme": "none", "timestep_sampling": "shift"}, None),
    (
        loss.shown_size_is_a_size, "adapter", "flux",
        {"show_timesteps": "console", "show_timesteps_resolution": "big"}, ("show_timesteps_resolution", "error"),
    ),
    (loss.shown_size_is_a_size, "adapter", "flux", {"show_timesteps": "image"}, None),
]  # fmt: skip
