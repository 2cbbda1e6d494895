import pytest

from sd_scripts.errors import ConfigError
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.options.scheduler_names import SCHEDULES, check_scheduler, count_steps


def options(**given):
    given.setdefault("lr_scheduler_min_lr_ratio", 0.1)
    return NetworkTraining(**given)


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n not in ("adafactor", "piecewise_constant")])
def test_known_names_are_no_problem_in_any_case(name):
    assert check_scheduler(options(lr_scheduler=name.upper()), total_steps=100) == []


@pytest.mark.parametrize(
    ("cfg", "option", "words"),
    [
        (options(lr_scheduler="cosin"), "lr_scheduler", ["cosin", 'did you mean "cosine"']),
        (options(lr_scheduler="xyz"), "lr_scheduler", ["unknown", "constant_with_warmup", "polynomial"]),
        (options(lr_scheduler="adafactor"), "lr_scheduler", ["AdaFactor"]),
        (options(lr_scheduler="linear", lr_scheduler_args=["power=2"]), "lr_scheduler_args", ["power", "nothing"]),
        (options(lr_scheduler="polynomial", lr_scheduler_args=["power=high"]), "lr_scheduler_args", ["number"]),
        (options(lr_scheduler="piecewise_constant"), "lr_scheduler_args", ["step_rules"]),
        (
            options(lr_scheduler="piecewise_constant", lr_scheduler_args=["step_rules='1,2:3'"]),
            "lr_scheduler_args",
            ["1,2:3", "1:10,0.1:20,0.01"],
        ),
        (
            options(lr_scheduler="cosine_with_min_lr", lr_scheduler_args=["min_lr=1e-6"]),
            "lr_scheduler_args",
            ["lr_scheduler_min_lr_ratio"],
        ),
        (options(lr_scheduler_type="CosineAnealingLR"), "lr_scheduler_type", ["CosineAnnealingLR"]),
        (options(lr_scheduler_type="CosineAnnealingLR"), "lr_scheduler_args", ["T_max"]),
        (options(lr_scheduler_type="LambdaLR"), "lr_scheduler_type", ["Python functions"]),
        (options(lr_scheduler_type="nowhere.Schedule"), "lr_scheduler_type", ["nowhere"]),
        (
            options(lr_scheduler_type="StepLR", lr_scheduler_args=["step_size=3"], lr_warmup_steps="10%"),
            "lr_warmup_steps",
            ["StepLR", "no warm-up"],
        ),
        (options(lr_warmup_steps="soon"), "lr_warmup_steps", ["soon", "10%"]),
        (options(lr_decay_steps=-1), "lr_decay_steps", ["negative"]),
        (
            options(lr_scheduler="warmup_stable_decay", lr_warmup_steps=60, lr_decay_steps=0.5),
            "lr_decay_steps",
            ["60", "100"],
        ),
    ],
)
def test_mistakes_are_named_with_the_way_out(cfg, option, words):
    (problem,) = check_scheduler(cfg, total_steps=100)
    assert (problem.level, problem.option) == ("error", option)
    assert all(word in str(problem) for word in words), str(problem)


@pytest.mark.parametrize(
    ("value", "steps"),
    [(0, 0), (10, 10), ("10", 10), (0.15, 30), ("15%", 30), ("0.5", 100), (25.0, 25), ("100%", 200), (0.0, 0)],
)
def test_steps_are_numbers_shares_or_percentages(value, steps):
    assert count_steps("lr_warmup_steps", value, total=200) == steps


@pytest.mark.parametrize("value", [1.5, "1.5", -1, "-10%", "150%", "x", "nan", "inf"])
def test_other_steps_are_refused(value):
    with pytest.raises(ConfigError, match="lr_warmup_steps"):
        count_steps("lr_warmup_steps", value, total=200)


def test_what_does_not_act_is_said():
    def found(**given):
        return [(p.level, p.option) for p in check_scheduler(options(**given))]

    assert found(optimizer_type="AdamWScheduleFree", lr_scheduler="cosine") == [("note", "lr_scheduler")]
    assert found(optimizer_type="AdamWScheduleFree", lr_warmup_steps=5) == [("note", "lr_warmup_steps")]
    assert found(lr_scheduler="reduce_lr_on_plateau", lr_warmup_steps=5) == [("warning", "lr_warmup_steps")]
    assert found(lr_scheduler="cosine_with_min_lr", lr_scheduler_min_lr_ratio=None) == [
        ("note", "lr_scheduler_min_lr_ratio")
    ]
    assert found(optimizer_type="AdaFactor", lr_scheduler="adafactor") == []
