"""Every option of every trainer that people use today: known here, with the same type, choices and meaning of a default."""

import json
import re
from pathlib import Path

import pytest

from sd_scripts.options.build import build, try_build
from sd_scripts.options.cli import parse
from sd_scripts.options.recipes import RECIPES, Recipe
from sd_scripts.options.schema import OptionSpec, specs
from sd_scripts.options.toml_files import read_settings, write_settings

ROOT = Path(__file__).resolve().parents[2]
KNOWN = json.loads((ROOT / "test" / "data" / "known_options.json").read_text(encoding="utf-8"))
OF_THE_COMMAND_LINE = {"config_file", "output_config"}  # `sd_scripts.options.cli` has them for every trainer
LECO = {"train_leco", "sdxl_train_leco"}
ANIMA = {"anima_train_network", "anima_train_control_net_lllite"}
# Accepted there and without effect in these trainers: here a warning says so.
WITHOUT_EFFECT = {
    "cache_latents": LECO, "cache_latents_to_disk": LECO, "train_batch_size": LECO, "max_data_loader_n_workers": LECO,
    "persistent_data_loader_workers": LECO,
    "controlnet_model_name_or_path": {"flux_train_network", "flux_train"},
    "self_attn_lr": ANIMA, "cross_attn_lr": ANIMA, "mlp_lr": ANIMA, "mod_lr": ANIMA, "llm_adapter_lr": ANIMA,
}  # fmt: skip
# Choices accepted there although the trainer cannot do it.
IMPOSSIBLE = {
    ("save_model_as", script): {"diffusers", "diffusers_safetensors"}
    for script in ("flux_train_control_net", "anima_train_control_net_lllite")
}
TYPES = {"bool": bool, "int": int, "float": float, "int_or_float": float, "str": str}


def fact(script: str, name: str, what: str):
    entry = KNOWN["options"][name]
    return next((value for value, scripts in entry.get(f"{what}_of", ()) if script in scripts), entry.get(what))


def options_of(script: str) -> list[str]:
    """The names that a trainer has there."""
    return [
        name
        for name, entry in KNOWN["options"].items()
        if name not in OF_THE_COMMAND_LINE
        and script in entry.get("in", KNOWN["scripts"])
        and script not in entry.get("not_in", ())
    ]


def acting(script: str) -> dict[str, OptionSpec]:
    """Ours for those that act, by the name there, which may be a former one."""
    known = specs(RECIPES[script].options)
    former = {old: spec for spec in known.values() for old in spec.formerly}
    names = [name for name in options_of(script) if script not in WITHOUT_EFFECT.get(name, ())]
    missing = [name for name in names if name not in known and name not in former]
    assert not missing
    return {name: known.get(name) or former[name] for name in names}


def other_value(script: str, name: str, spec: OptionSpec):
    """A value that is legal there and not the default here."""
    choices = fact(script, name, "choices")
    if choices:
        return next(choice for choice in choices if choice != spec.default and choice in spec.choices)
    value = {
        "bool": not spec.default,
        "int": 8 if spec.default != 8 else 9,
        "float": 0.25,
        "int_or_float": 0.25,
        "str": 'büro "x" C:\\y\'z',
    }
    found = spec.choices[-1] if spec.choices else value[KNOWN["options"][name]["type"]]
    return [found, found] if KNOWN["options"][name].get("list") else found


def as_arguments(name: str, value) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [f"--{name}", *(str(item).lower() if isinstance(item, bool) else str(item) for item in items)]


every_trainer = pytest.mark.parametrize("script", KNOWN["scripts"])


@every_trainer
def test_types_are_those_that_people_know(script):
    for name, spec in acting(script).items():
        entry = KNOWN["options"][name]
        assert (spec.type, spec.is_list) == (TYPES[entry["type"]], entry.get("list", False)), name


@every_trainer
def test_all_options_mean_the_same_on_the_command_line_and_in_toml_and_read_back_equal(script, tmp_path):
    recipe = RECIPES[script]
    values = {name: other_value(script, name, spec) for name, spec in acting(script).items() if name == spec.name}
    from_command_line = parse(recipe, [text for name in values for text in as_arguments(name, values[name])]).options
    from_mapping = build(recipe.options, values)
    assert from_command_line == from_mapping
    assert {name: getattr(from_mapping, name) for name in values} == values
    secrets = {name for name in values if specs(recipe.options)[name].secret}
    write_settings(tmp_path / "all.toml", from_mapping)
    written = read_settings(tmp_path / "all.toml")
    assert set(written) == set(values) - secrets
    from_file = parse(recipe, ["--config_file", str(tmp_path / "all.toml")]).options
    assert from_file == build(recipe.options, {name: value for name, value in values.items() if name not in secrets})


@every_trainer
def test_former_names_mean_the_same(script):
    recipe = RECIPES[script]
    for name, spec in acting(script).items():
        if name != spec.name:
            value = other_value(script, name, spec)
            options = parse(recipe, as_arguments(name, value)).options
            assert getattr(options, spec.name) == getattr(build(recipe.options, {name: value}), spec.name) == value


@every_trainer
def test_every_choice_is_taken_and_anything_else_refused_with_the_nearest(script):
    model = RECIPES[script].options
    for name, spec in acting(script).items():
        choices = set(fact(script, name, "choices") or ()) - IMPOSSIBLE.get((name, script), set())
        for choice in choices:
            options, problems = try_build(model, {name: choice})
            assert options is not None and getattr(options, spec.name) == choice and not problems, (name, choice)
        if choices:
            wrong = f"{sorted(map(str, choices))[0]}x"
            options, (problem,) = try_build(model, {name: wrong})
            assert options is None and repr(wrong) in problem.message, name
            assert all(str(choice) in problem.message for choice in choices), name
            if spec.type is str:
                assert problem.remedy.startswith("did you mean "), name


@every_trainer
def test_what_has_no_effect_is_a_warning(script):
    names = [name for name, scripts in WITHOUT_EFFECT.items() if script in scripts]
    for name in names:
        options, (problem,) = try_build(RECIPES[script].options, {name: KNOWN["options"][name].get("default", 1)})
        assert options is not None and problem.level == "warning" and "no effect" in problem.message


@pytest.mark.parametrize("warm_up", [0, 100, 0.1, "10%"])
def test_forms_of_a_length_in_steps(warm_up):
    options = parse(RECIPES["train_network"], ["--lr_warmup_steps", str(warm_up)]).options
    assert options.lr_warmup_steps == build(type(options), {"lr_warmup_steps": warm_up}).lr_warmup_steps == warm_up


@pytest.mark.parametrize(
    ("given", "rates"), [(0, [0.0]), (1e-4, [1e-4]), ([1e-4], [1e-4]), ([0, 1e-5, 2e-5], [0, 1e-5, 2e-5])]
)
def test_rates_of_the_text_encoders_may_be_a_number_or_a_list(given, rates):
    recipe = RECIPES["sd3_train_network"]
    assert build(recipe.options, {"text_encoder_lr": given}).text_encoder_lr == rates
    assert parse(recipe, as_arguments("text_encoder_lr", given)).options.text_encoder_lr == rates


def shown(value) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def differing_defaults() -> set[tuple[str, str, str]]:
    found = set()
    for script in KNOWN["scripts"]:
        recipe: Recipe = RECIPES[script]
        for name, spec in acting(script).items():
            there = fact(script, name, "default")
            if name == spec.name:
                ours = {shown(spec.default_for(architecture)) for architecture in recipe.architectures}
                found |= {
                    (name, shown(there), here) for here in ours if here != shown(there) and not _equal(here, there)
                }
    return found


def _equal(here: str, there) -> bool:
    return (
        isinstance(there, (int, float))
        and not isinstance(there, bool)
        and re.fullmatch(r"[-\d.e]+", here)
        and float(here) == there
    )


def test_defaults_differ_only_where_the_documentation_says_so():
    text = (ROOT / "docs" / "coming_from_sd_scripts.md").read_text(encoding="utf-8")
    section = text.split("## Defaults")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert all(len(row) == 4 and row[3] for row in rows)
    assert {tuple(row[:3]) for row in rows} == differing_defaults()
