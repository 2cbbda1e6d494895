"""A declaration is the only place of an option: what is read back from it, and what its values become."""

from typing import Annotated, ClassVar, Literal

import pytest
from annotated_types import Ge

from sd_scripts.options.build import build, try_build
from sd_scripts.options.problems import CheckFailed
from sd_scripts.options.recipes import RECIPES
from sd_scripts.options.schema import Options, groups, option, specs


class Speed(Options):
    title: ClassVar[str] = "Speed"
    order: ClassVar[int] = 2
    workers: Annotated[int, Ge(0)] | Literal["auto"] = option("auto", help="Workers.")
    rate: float = option(0.5, ge=0, le=1, unit="share", help="Rate.")
    kind: Literal["a", "bb"] | None = option(None, level="expert", help="Kind.")


class Extras(Options):
    title: ClassVar[str] = "Extras"
    order: ClassVar[int] = 1
    names: list[str] | None = option(None, help="Names.")
    quick: bool = option(False, help="Quick.")
    rate: float = option(0.25, ge=0, help="Rate of a method.")


class Both(Extras, Speed):
    pass


def test_spec_says_what_the_declaration_says():
    spec = specs(Speed)["rate"]
    assert (spec.type, spec.default, spec.minimum, spec.maximum, spec.unit) == (float, 0.5, 0, 1, "share")
    assert specs(Speed)["workers"].words == ("auto",)
    assert specs(Speed)["kind"].choices == ("a", "bb") and specs(Speed)["kind"].nullable
    assert specs(Extras)["names"].is_list and specs(Extras)["names"].type is str


def test_sections_come_in_their_order_and_a_method_may_change_a_default():
    assert [group.title for group in groups(Both)] == ["Extras", "Speed"]
    assert specs(Both)["rate"].default == 0.25
    assert specs(Both)["rate"].group == "Extras"
    assert Both().rate == 0.25


@pytest.mark.parametrize(
    ("values", "name", "result"),
    [
        ({"workers": "3"}, "workers", 3),
        ({"workers": "auto"}, "workers", "auto"),
        ({"workers": 4.0}, "workers", 4),
        ({"rate": "1e-4"}, "rate", 1e-4),
        ({"rate": 0}, "rate", 0.0),
        ({"rate": ""}, "rate", 0.25),
        ({"rate": None}, "rate", 0.25),
        ({"quick": "true"}, "quick", True),
        ({"quick": 1}, "quick", True),
        ({"quick": "false"}, "quick", False),
        ({"names": "a=1 'b=x y'"}, "names", ["a=1", "b=x y"]),
        ({"names": ["a", "b"]}, "names", ["a", "b"]),
        ({"kind": " "}, "kind", None),
    ],
)
def test_loose_values_are_converted_and_only_empty_is_unset(values, name, result):
    assert getattr(build(Both, values), name) == result


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"rate": -1}, "rate: -1 is not a number of at least 0"),
        ({"workers": "many"}, "workers: 'many' is not a whole number of at least 0 or \"auto\""),
        ({"workers": -1}, "workers: -1 is not a whole number of at least 0"),
        ({"workers": 2.5}, "workers: 2.5 is not a whole number of at least 0"),
        ({"kind": "b"}, "kind: 'b' is not one of a, bb - did you mean bb?"),
        ({"wrokers": 1}, "wrokers: unknown option - did you mean workers?"),
        ({"quick": "perhaps"}, "quick: 'perhaps' is not true or false"),
        ({"rate": float("nan")}, "rate: nan is not"),
        ({"names": {"a": 1}}, "names: "),
    ],
)
def test_wrong_values_name_option_value_and_legal_values(values, text):
    with pytest.raises(CheckFailed) as caught:
        build(Both, values)
    assert str(caught.value).startswith(text)


def test_all_problems_are_reported_at_once():
    options, problems = try_build(Both, {"rate": "x", "wrokers": 1, "kind": 3})
    assert options is None
    assert {problem.option for problem in problems} == {"rate", "wrokers", "kind"}


def test_options_are_immutable():
    with pytest.raises(ValueError, match="frozen"):
        Both().rate = 1


@pytest.mark.parametrize("script", RECIPES)
def test_every_option_has_help_label_and_a_valid_default(script):
    model = RECIPES[script].options
    for spec in specs(model).values():
        assert len(spec.help) > 10 and spec.help.endswith((".", "…"))
        assert spec.label
        if spec.default is not None:
            assert getattr(build(model, {spec.name: spec.default}), spec.name) == spec.default
        if spec.choices and spec.default is not None:
            assert spec.default in spec.choices
