"""Classes of libraries that may be missing: found by name and path, checked by their source alone."""

import sys
from types import SimpleNamespace

import pytest

from sd_scripts.errors import ConfigError
from sd_scripts.options import class_files
from sd_scripts.options.optimizer_names import choose_optimizer

PYTORCH_OPTIMIZER = {
    "__init__.py": "from pytorch_optimizer.optimizer import CAME, AdaPNM\n",
    "optimizer/__init__.py": """
from typing import Callable
from pytorch_optimizer.optimizer.came import CAME
from pytorch_optimizer.optimizer.adapnm import AdaPNM
from pytorch_optimizer.optimizer.others import AdaHessian, Lookahead, Muon, Ranger21, SAM, ScheduleFreeAdamW
""",
    "optimizer/base.py": "class BaseOptimizer:\n    def __init__(self, params, defaults):\n        pass\n",
    "optimizer/came.py": """
from pytorch_optimizer.optimizer.base import BaseOptimizer

class CAME(BaseOptimizer):
    def __init__(self, params, lr=2e-4, betas=(0.9, 0.999, 0.9999), weight_decay=0.0, ams_bound: bool = False, **kwargs):
        pass
""",
    "optimizer/adapnm.py": """
class AdaPNM:
    def __init__(self, params, lr=1e-3, weight_decay=0.0, ams_bound=True):
        pass
""",
    "optimizer/others.py": """
class AdaHessian:
    def __init__(self, params, lr=1e-1): ...
class Lookahead:
    def __init__(self, optimizer, k=5, alpha=0.5, **kwargs): ...
class Muon:
    def __init__(self, params, lr=2e-2): ...
class Ranger21:
    def __init__(self, params, num_iterations, lr=1e-3): ...
class SAM:
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs): ...
class ScheduleFreeAdamW:
    def __init__(self, params, lr=2.5e-3, weight_decay=0.0): ...
""",
}
DADAPTATION = {
    "__init__.py": "from .dadapt_adam import DAdaptAdam\n",
    "dadapt_adam.py": "class DAdaptAdam:\n    def __init__(self, params, lr=1.0, decouple=False, d0=1e-6):\n        pass\n",
}
PRODIGY_PLUS = {
    "__init__.py": "from .prodigy_plus_schedulefree import ProdigyPlusScheduleFree\n",
    "prodigy_plus_schedulefree.py": """
class ProdigyPlusScheduleFree:
    def __init__(self, params, lr=1.0, split_groups=True, weight_decay=0.0):
        pass
""",
}


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """Stand-ins with the layout of the real ones; nothing may import them."""
    for package, files in (
        ("pytorch_optimizer", PYTORCH_OPTIMIZER), ("dadaptation", DADAPTATION), ("prodigyplus", PRODIGY_PLUS),
    ):  # fmt: skip
        for name, text in files.items():
            path = tmp_path / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = [class_files.signature, class_files.class_names]
    for cached in caches:
        cached.cache_clear()
    yield
    assert not {"pytorch_optimizer", "dadaptation", "prodigyplus"} & set(sys.modules)
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def no_libraries(monkeypatch):
    """None of them is installed."""
    there = class_files._top_spec
    missing = ("pytorch_optimizer", "dadaptation", "prodigyplus")
    monkeypatch.setattr(class_files, "_top_spec", lambda name: None if name in missing else there(name))
    class_files.class_names.cache_clear()
    yield
    class_files.class_names.cache_clear()


def options(name, arguments=None, **more):
    values = {"use_8bit_adam": False, "use_lion_optimizer": False, "learning_rate": 1.0, "max_grad_norm": 1.0}
    return SimpleNamespace(optimizer_type=name, optimizer_args=arguments, **values | more)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("CAME", "pytorch_optimizer.CAME"),
        ("came", "pytorch_optimizer.CAME"),
        ("pytorch_optimizer.CAME", "pytorch_optimizer.CAME"),
        ("AdaPNM", "pytorch_optimizer.optimizer.AdaPNM"),
        ("adapnm", "pytorch_optimizer.optimizer.AdaPNM"),
        ("ScheduleFreeAdamW", "pytorch_optimizer.optimizer.ScheduleFreeAdamW"),
        ("DAdaptAdam", "dadaptation.DAdaptAdam"),
        ("SGD", "torch.optim.SGD"),
    ],
)
def test_names_are_found_in_any_case(libraries, name, path):
    choice = choose_optimizer(options(name))
    assert choice.path == path and choice.arguments == {}
    assert choice.is_schedule_free == ("ScheduleFree" in path)
    assert choice.is_adaptive == path.startswith("dadaptation")


def test_arguments_are_checked_by_the_class_itself(libraries):
    assert choose_optimizer(options("CAME", ["weight_decay=0.1"])).arguments == {"weight_decay": 0.1}
    with pytest.raises(ConfigError, match='no such argument, did you mean "weight_decay"'):
        choose_optimizer(options("AdaPNM", ["weight_deca=0.1"]))
    with pytest.raises(ConfigError, match="takes no text there"):
        choose_optimizer(options("AdaPNM", ["ams_bound=yes"]))
    with pytest.raises(ConfigError, match="needs num_iterations"):
        choose_optimizer(options("Ranger21"))
    assert choose_optimizer(options("Ranger21", ["num_iterations=100"])).arguments == {"num_iterations": 100}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("AdaHessian", "second derivatives"),
        ("Lookahead", "made from optimizer, not from weights"),
        ("pytorch_optimizer.optimizer.SAM", "made from base_optimizer"),
        ("pytorch_optimizer.optimizer.Muon", "groups of a special kind"),
    ],
)
def test_what_cannot_work_here_is_refused_with_the_reason(libraries, name, why):
    with pytest.raises(ConfigError, match=why) as failure:
        choose_optimizer(options(name))
    assert failure.value.option == "optimizer_type"


def test_prodigy_plus_takes_several_rates_unless_it_is_told_not_to_split(libraries):
    path = "prodigyplus.prodigy_plus_schedulefree.ProdigyPlusScheduleFree"
    choice = choose_optimizer(options(path))
    assert choice.is_adaptive and choice.is_schedule_free and not choice.takes_one_rate
    assert choose_optimizer(options(path, ["split_groups=False"])).takes_one_rate


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("CAME", "pytorch-optimizer"),
        ("pytorch_optimizer.AdaPNM", "pytorch-optimizer"),
        ("DAdaptSGD", "dadaptation"),
        ("DAdaptation", "dadaptation"),
        ("prodigyplus.ProdigyPlusScheduleFree", "prodigy-plus-schedule-free"),
        ("AdaPNM", "pytorch-optimizer"),
    ],
)
def test_a_missing_package_is_named_as_installers_know_it(no_libraries, name, install):
    with pytest.raises(ConfigError, match=f"pip install {install}$"):
        choose_optimizer(options(name))
