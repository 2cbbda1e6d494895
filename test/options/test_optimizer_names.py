import subprocess
import sys
from pathlib import Path

import pytest

from sd_scripts.options.optimizer_names import OPTIMIZERS, check_optimizer, choose_optimizer
from sd_scripts.options.recipes import FullModelTraining, NetworkTraining


def options(name=None, arguments=None, **others):
    others.setdefault("learning_rate", 1e-4)
    return NetworkTraining(optimizer_type=name, optimizer_args=arguments, **others)


def found(cfg):
    return [(problem.level, problem.option) for problem in check_optimizer(cfg)]


@pytest.mark.parametrize("name", ["", None, "AdamW", "adamw8BIT", "LION", "Adagrad", "torch.optim.RAdam"])
def test_known_names_are_no_problem(name):
    assert check_optimizer(options(name)) == []


@pytest.mark.parametrize(
    ("cfg", "option", "words"),
    [
        (options("AdamW8bits"), "optimizer_type", ["AdamW8bits", "AdamW8bit"]),
        (options("xyz"), "optimizer_type", ["unknown", "AdamW", "Prodigy"]),
        (options("torch.optim.AdamWX"), "optimizer_type", ["no such class", "AdamW"]),
        (options("nowhere.CAME"), "optimizer_type", ["missing", "pip install nowhere"]),
        (options("SparseAdam"), "optimizer_type", ["sparse gradients"]),
        (options("torch.optim.LBFGS"), "optimizer_type", ["several times per step"]),
        (options("AdamW", ["betas"]), "optimizer_args", ["betas", "name=value"]),
        (options("AdamW", ["eps=1e-8", "eps=1e-9"]), "optimizer_args", ["eps", "twice"]),
        (options("AdamW", ["eps=1e-8)"]), "optimizer_args", ["1e-8)", "quotes"]),
        (options("AdamW", ["eps=tiny"]), "optimizer_args", ["eps=tiny", "number"]),
        (options("AdamW", ["beta=0.9,0.99"]), "optimizer_args", ["beta", "betas", "weight_decay"]),
        (options("Lion8bit", ["eps=1"]), "optimizer_args", ["Lion8bit", "betas"]),
        (options("AdamW", ["lr=1"]), "optimizer_args", ["learning_rate"]),
        (options(use_8bit_adam=True, use_lion_optimizer=True), "use_lion_optimizer", ["use_8bit_adam"]),
    ],
)
def test_mistakes_are_named_with_the_way_out(cfg, option, words):
    (problem,) = check_optimizer(cfg)
    assert (problem.level, problem.option) == ("error", option)
    assert all(word in str(problem) for word in words), str(problem)


def test_arguments_are_python_literals_or_plain_words():
    arguments = ["betas=0.9,0.99", "weight_decay=1e-2", "amsgrad=true", "fused=None"]
    assert choose_optimizer(options("AdamW", arguments)).arguments == {
        "betas": (0.9, 0.99),
        "weight_decay": 0.01,
        "amsgrad": True,
        "fused": None,
    }


def test_adaptive_optimizers_refuse_parts_with_different_rates_and_doubt_small_ones():
    assert found(options("Prodigy", learning_rate=1.0, unet_lr=None, text_encoder_lr=[])) == []
    assert found(options("Prodigy")) == [("warning", "learning_rate")]
    assert found(options("Prodigy", learning_rate=1.0, unet_lr=0.5, text_encoder_lr=None)) == [
        ("error", "optimizer_type")
    ]
    assert found(options("Prodigy", learning_rate=1.0, unet_lr=None, text_encoder_lr=[0.0])) == []  # 0: not trained
    only = {"network_train_unet_only": True, "unet_lr": 1.0, "text_encoder_lr": [0.5]}
    assert found(options("Prodigy", **only)) == []


def test_rates_of_a_whole_model_s_parts_are_compared_too():
    full = {"optimizer_type": "Prodigy", "learning_rate": 1.0, "train_text_encoder": True}
    assert found(FullModelTraining(**full)) == []
    assert found(FullModelTraining(**full, learning_rate_te=0.5)) == [("error", "optimizer_type")]
    assert found(FullModelTraining(**full, learning_rate_te=0.0)) == []  # 0: not trained


def test_adafactor_says_which_options_do_not_act():
    assert found(options("AdaFactor")) == []
    assert found(options("AdaFactor", lr_scheduler="cosine")) == [("warning", "lr_scheduler")]
    assert found(options("AdaFactor", unet_lr=1e-3, text_encoder_lr=[1e-4])) == [("warning", "optimizer_type")]
    assert found(options("AdaFactor", ["relative_step=False"], lr_scheduler="cosine")) == [("note", "max_grad_norm")]


def test_every_class_of_the_table_is_found_where_its_package_is_installed():
    from sd_scripts.options.class_files import is_installed, signature

    for known in OPTIMIZERS.values():
        assert signature(known.path) or not is_installed(known.path), known


def test_checks_do_not_import_torch():
    code = """
import sys
from types import SimpleNamespace
from sd_scripts.options.optimizer_names import OPTIMIZERS, check_optimizer
from sd_scripts.options.scheduler_names import check_scheduler
cfg = SimpleNamespace(
    optimizer_args=["a=1"], use_8bit_adam=False, use_lion_optimizer=False, learning_rate=1.0, max_grad_norm=1.0,
    lr_scheduler="", lr_scheduler_type="StepLR", lr_scheduler_args=["step_size=3"], lr_warmup_steps=0,
    lr_decay_steps=0, lr_scheduler_num_cycles=1, lr_scheduler_power=1.0, lr_scheduler_timescale=None,
    lr_scheduler_min_lr_ratio=None)
for cfg.optimizer_type in [known.name for known in OPTIMIZERS.values()]:
    assert check_optimizer(cfg)
cfg.optimizer_type = ""
assert check_scheduler(cfg) == []
heavy = {"torch", "transformers", "bitsandbytes", "prodigyopt", "schedulefree"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
