"""Cases of `rules.optimizer`; see `test_rules_cases`."""

from sd_scripts.options.rules import optimizer

SD = ("sd1", "sd2")

CASES = [
    (optimizer.optimizer_is_known, "adapter", SD, {"optimizer_type": "AdmW"}, ("optimizer_type", "error")),
    (
        optimizer.optimizer_is_known, "adapter", SD, {"use_8bit_adam": True, "use_lion_optimizer": True},
        ("use_lion_optimizer", "error"),
    ),
    (
        optimizer.optimizer_is_known, "adapter", SD, {"use_8bit_adam": True, "optimizer_type": "Lion"},
        ("use_8bit_adam", "error"),
    ),
    (optimizer.optimizer_is_known, "adapter", SD, {"optimizer_type": "adamw"}, None),
    (optimizer.scheduler_is_known, "adapter", SD, {"lr_scheduler": "cosin"}, ("lr_scheduler", "error")),
    (optimizer.scheduler_is_known, "adapter", SD, {"lr_warmup_steps": 1.5}, ("lr_warmup_steps", "error")),
    (
        optimizer.scheduler_is_known, "adapter", SD, {"lr_scheduler_type": "CosineAnnealingLR", "lr_warmup_steps": 5,
        "lr_scheduler_args": ["T_max=5"]}, ("lr_warmup_steps", "error"),
    ),
    (optimizer.scheduler_is_known, "adapter", SD, {"lr_scheduler": "cosine", "lr_warmup_steps": "10%"}, None),
    (
        optimizer.epochs_decide_over_steps, "adapter", SD, {"max_train_epochs": 2, "max_train_steps": 5},
        ("max_train_steps", "note"),
    ),
    (optimizer.epochs_decide_over_steps, "adapter", SD, {"max_train_steps": 5}, None),
    (
        optimizer.adaptive_optimizers_take_one_rate, "adapter", SD,
        {"optimizer_type": "Prodigy", "network_args": ["loraplus_lr_ratio=16"]}, ("network_args", "error"),
    ),
    (
        optimizer.adaptive_optimizers_take_one_rate, "adapter", SD,
        {"optimizer_type": "Prodigy", "network_args": ["loraplus_lr_ratio=1", "conv_dim=4"]}, None,
    ),
    (
        optimizer.adaptive_optimizers_take_one_rate, "adapter", SD, {"network_args": ["loraplus_lr_ratio=16"]}, None,
    ),
    (
        optimizer.fused_passes_fit_the_optimizer, "full", "sdxl",
        {"fused_backward_pass": True, "optimizer_type": "Prodigy", "max_grad_norm": 0}, ("fused_backward_pass", "error"),
    ),
    (
        optimizer.fused_passes_fit_the_optimizer, "full", "flux",
        {"blockwise_fused_optimizers": True, "optimizer_type": "AdamWScheduleFree", "max_grad_norm": 0}, None,
    ),
    (
        optimizer.fused_passes_fit_the_optimizer, "full", "sdxl",
        {"fused_backward_pass": True, "optimizer_type": "adafactor", "max_grad_norm": 0}, None,
    ),
    (
        optimizer.fused_passes_fit_the_optimizer, "full", "sd1", {"fused_optimizer_groups": 4},
        ("max_grad_norm", "note"),
    ),
    (optimizer.fused_passes_fit_the_optimizer, "full", "flux", {"optimizer_type": "Prodigy"}, None),
]  # fmt: skip
