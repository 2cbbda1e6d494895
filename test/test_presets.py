"""Every preset that comes with the program says what it is for and is ready to start once model and pictures are named."""

from pathlib import Path

import pytest

from sd_scripts.options.build import build
from sd_scripts.options.config_file import read_config_file
from sd_scripts.options.preset_files import load_file
from sd_scripts.options.recipes import recipe_for
from sd_scripts.plan import make_plan

PRESETS = Path(__file__).resolve().parents[1] / "presets"
METHODS = {"lora": "adapter", "dreambooth": "dreambooth", "finetune": "full", "textual_inversion": "textual_inversion"}
FAMILIES = {"sd15": "sd1", "sd21": "sd2", "sdxl": "sdxl"}
MEMORY_GB = ("8gb", "12gb", "16gb", "24gb")
SHIPPED = sorted(path for path in PRESETS.glob("*/*.toml") if path.stem != "demo")  # the demo has a test of its own


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    from test.tiny import tiny_model

    folder = tmp_path_factory.mktemp("preset_models")
    return {family: tiny_model(family, folder / f"{family}.safetensors") for family in FAMILIES.values()}


def test_there_are_enough():
    assert len(SHIPPED) >= 8


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_preset_is_ready_once_model_and_pictures_are_named(path, tiny_models, pictures, tmp_path):
    family, memory = FAMILIES[path.stem.split("_")[0]], path.stem.split("_")[-1]
    recipe = recipe_for(METHODS[path.parent.name], family)
    assert memory in MEMORY_GB
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and memory.removesuffix("gb") in first
    given = {
        "pretrained_model_name_or_path": str(tiny_models[family]),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "bucket_no_upscale": False,  # the test's pictures are smaller than any training size
    }
    assert load_file(path).architecture == family
    values, remarks = read_config_file(path)
    assert remarks == []
    options = build(recipe.options, values | given)
    plan = make_plan(recipe, options)
    assert [problem for problem in plan.problems if problem.level != "note"] == []
    assert plan.steps is not None and plan.steps.total > 0
    assert any(part.learning_rate for part in plan.trained)
