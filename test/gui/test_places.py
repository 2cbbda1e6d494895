"""Every field of the known GUI has its place in our forms, or a reason that the guide names."""

import json
import re
from pathlib import Path

import pytest

from kohya_gui.forms import FORMS
from kohya_gui.paths import PROJECT_ROOT
from sd_scripts.options.gui_presets import keys_of, table_of
from sd_scripts.options.gui_presets.omitted import OMITTED

FIELDS = json.loads((Path(__file__).parents[1] / "data" / "gui_keys.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_field_has_its_place_or_a_reason(form):
    assert len(FIELDS[form.name]) > 100
    assert [key for key in FIELDS[form.name] if key not in keys_of(form.method) and key not in OMITTED] == []


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_a_field_sets_is_a_field_here(form):
    wanted = {rule.option for key, rule in table_of(form.method).items() if key not in OMITTED}
    assert wanted - set(form.specs) == set()


def test_the_guide_lists_what_was_left_out_with_its_reason():
    guide = (PROJECT_ROOT / "docs" / "gui.md").read_text(encoding="utf-8")
    section = guide.split("## Fields of earlier interfaces without a place")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, flags=re.MULTILINE))
    assert rows == dict(OMITTED)
