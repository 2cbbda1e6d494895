"""The reference page of all options, made from the schema.

python -m sd_scripts.options.page            write docs/options.md
python -m sd_scripts.options.page --check    exit with 1 when that file is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sd_scripts.options.build import expected
from sd_scripts.options.recipes import RECIPES, TrainingOptions
from sd_scripts.options.schema import Options, OptionSpec, groups, specs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def page() -> str:
    """The page as Markdown: the sections that all trainers share, then what each trainer adds or changes."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "Made from the option schema by `python -m sd_scripts.options.page`; change the declarations, not this page."
    yield ""
    yield "Every option has the same name on the command line (`--name value`), in a TOML file (`name = value`) and in the"
    yield "GUI. A value on the command line beats the file. An empty value is unset; zero is a value."
    yield ""
    yield "| trainer | what it does |"
    yield "| --- | --- |"
    for recipe in RECIPES.values():
        yield f"| `{recipe.script}.py` | {recipe.summary} |"
    common = specs(TrainingOptions)
    yield from _sections(TrainingOptions, common)
    for recipe in RECIPES.values():
        own = {name: spec for name, spec in specs(recipe.options).items() if common.get(name) != spec}
        yield ""
        yield f"## Only `{recipe.script}.py`"
        yield from _table(list(own.values()))


def _sections(model: type[Options], known: dict[str, OptionSpec]) -> Iterator[str]:
    for group in groups(model):
        yield ""
        yield f"## {group.title}"
        yield from _table([spec for spec in known.values() if spec.group == group.title])


def _table(rows: list[OptionSpec]) -> Iterator[str]:
    yield ""
    yield "| option | takes | default | level | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for spec in rows:
        default = (
            "unset" if spec.default is None else f"`{str(spec.default).lower() if spec.is_flag else spec.default}`"
        )
        unit = f" ({spec.unit})" if spec.unit else ""
        takes = _cell(expected(spec).replace("one of ", "") + unit)
        yield f"| `{spec.name}` | {takes} | {default} | {spec.level} | {_cell(spec.help)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write or check the page; the exit code says whether it is up to date."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} is not up to date: run python -m sd_scripts.options.page", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
