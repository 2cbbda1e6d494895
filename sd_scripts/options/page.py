"""The reference page of all options, made from the schema.

python -m sd_scripts.options.page            write docs/options.md
python -m sd_scripts.options.page --check    exit with 1 when that file is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sd_scripts.options.build import expected
from sd_scripts.options.dataset_keys import KEYS, KINDS
from sd_scripts.options.families import FAMILIES, labels
from sd_scripts.options.launch import Launch
from sd_scripts.options.network_arguments import NetworkArguments, kinds_with
from sd_scripts.options.recipes import RECIPES, CommonOptions, TrainingOptions
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
    yield "Options that act only for some model families say so; for others they are left aside with a warning. Those marked"
    yield "*not yet available* are known and checked, but refused when they are used."
    yield ""
    yield "| trainer | what it does |"
    yield "| --- | --- |"
    for recipe in RECIPES.values():
        later = "" if recipe.available else " *Not yet available.*"
        yield f"| `{recipe.script}.py` | {recipe.summary}{later} |"
    common = specs(CommonOptions)
    pictures = specs(TrainingOptions)
    yield from _sections(CommonOptions, common)
    yield from _sections(TrainingOptions, {name: spec for name, spec in pictures.items() if name not in common})
    for method, model in {recipe.method: recipe.options for recipe in RECIPES.values()}.items():
        own = [spec for name, spec in specs(model).items() if pictures.get(name) != spec]
        if own:
            yield ""
            yield f"## Only {_scripts(method)}"
            yield from _table(own)
    yield from _network_arguments()
    yield from _dataset_file()
    yield ""
    yield "## Launch"
    yield ""
    yield "How the GUI starts a trainer with `accelerate launch`; forms and presets hold these options, trainers do not."
    yield from _table(list(specs(Launch).values()))


def _network_arguments() -> Iterator[str]:
    yield ""
    yield "## Items of network_args"
    yield ""
    yield "Each a text `name=value` in the list `network_args`; forms show them as fields."
    rows = specs(NetworkArguments).values()
    yield from _table([replace(spec, help=f"{spec.help} For {', '.join(kinds_with(spec))}.") for spec in rows])


def _dataset_file() -> Iterator[str]:
    yield ""
    yield "## Keys of a dataset file"
    yield ""
    yield "In `dataset_config`, TOML or JSON. A key holds for all that its table holds; the innermost one counts. What no table"
    yield "says comes from the options above. A size may also be a number or a list, as in `resolution = [512, 768]`."
    yield ""
    yield "| key | takes | tables | for | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for key in KEYS.values():
        takes = _cell(expected(key.spec).replace("one of ", ""))
        kinds = "all" if key.kinds == tuple(KINDS) else ", ".join(KINDS[kind] for kind in key.kinds)
        about = f"as `{key.option}`" if key.option != key.name else _cell(_about(key.spec))
        yield f"| `{key.name}` | {takes} | {key.tables.replace(' or ', ', ')} | {kinds} | {about} |"


def _scripts(method: str) -> str:
    return ", ".join(f"`{recipe.script}.py`" for recipe in RECIPES.values() if recipe.method == method)


def _sections(model: type[Options], chosen: dict[str, OptionSpec]) -> Iterator[str]:
    for group in groups(model):
        rows = [spec for spec in chosen.values() if spec.group == group.title]
        if rows:
            yield ""
            yield f"## {group.title}"
            yield from _table(rows)


def _table(rows: list[OptionSpec]) -> Iterator[str]:
    yield ""
    yield "| option | takes | default | level | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for spec in rows:
        unit = f" ({spec.unit})" if spec.unit else ""
        takes = _cell(expected(spec).replace("one of ", "") + unit)
        yield f"| `{spec.name}` | {takes} | {_defaults(spec)} | {spec.level} | {_cell(_about(spec))} |"


def _defaults(spec: OptionSpec) -> str:
    own = "".join(f", {FAMILIES[name].label} `{value}`" for name, value in spec.defaults.items())
    if spec.default is None:
        return own.removeprefix(", ") or "unset"
    return f"`{str(spec.default).lower() if spec.is_flag else spec.default}`{own}"


def _about(spec: OptionSpec) -> str:
    families = f" For {labels(spec.only_for)}." if spec.only_for else ""
    later = " *Not yet available.*" if not spec.available else ""
    former = f" Once called {', '.join(spec.formerly)}." if spec.formerly else ""
    return f"{spec.help}{families}{former}{later}"


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
