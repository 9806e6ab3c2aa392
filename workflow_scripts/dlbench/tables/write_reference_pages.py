"""The pages of docs/ that list everything: each key of a config, each column of each table; and the
schema of the config.

- config.schema.json: what it has of the fields of a run is from their declarations in
  dlbench/run_fields/, and the names of columns from dlbench/tables/table_columns.py; all else in it
  is written by hand.
- config.md: from config.schema.json; defaults are those of config.yaml, and for fields of a run
  those of their declarations.
- tables.md: from dlbench/tables/table_columns.py and others beside it, with units; columns that say
  no more there than their name are described in dlbench/tables/meanings.py, fields of a run by
  their declarations.
- commands.md: from the parsers of the commands, by dlbench/command/commands_page.py.
- workflow_scripts/README.md: the map, from dlbench/tables/house_map.py.
"""

import copy
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from dlbench.common.files import atomic_write
from dlbench.run_fields.fields import DECLARED, DEFAULTS
from dlbench.study import config, config_schema, yaml_files
from dlbench.study import config_schema as config_schema_module
from dlbench.study.config_schema import schema
from dlbench.tables import (
    baseline_columns,
    history_columns,
    house_map,
    run_columns,
    table_columns,
)
from dlbench.tables.meanings import MEANINGS, TABLES

_ENDS = ("_ci95_low", "_ci95_high")  # of the columns of an interval
SCHEMA = "workflow_scripts/dlbench/study/config.schema.json"
DEFAULT_STUDY = Path(__file__).parents[3] / "config.yaml"
MADE_BY = "Made by `workflow_scripts/write_reference_pages.py` from"
SCHEMAS = {
    **table_columns.STUDY_TABLES,
    **run_columns.RUN_TABLES,
    **baseline_columns.MACHINE_TABLES,
    **history_columns.HISTORY_TABLES,
}
DEFAULTS_IN_WORDS = {
    "framework": "tensorflow",
    "environment": "the framework's own",
    "launcher": "the strategy's own",
    "repeats": "the study's",
}
CONFIG_HEAD = f"""# Config

Every key of a study, with its values, its default and its meaning.
{MADE_BY} [config.schema.json](../workflow_scripts/dlbench/study/config.schema.json).

Files are merged in this order: `config.yaml`, `site.yaml` if it exists, and those given with
`--configfile`. A later file replaces mappings key by key, and everything else as a whole. Defaults
are those of `config.yaml`. Unknown keys and impossible values are reported before any training.

A file has at most {yaml_files.MAX_VALUES} values, where each alias (`*`) counts as what it stands
for, and a study at most {config_schema.MAX_RUNS} runs. More is refused, with number and key,
before it is unfolded; of a file given with `--configfile` once Snakemake has read it.
"""
AXES_HEAD = """## Axes

The fields of a run, in a block of `matrix` and in its `include` and `exclude`. Each takes one value
or a list without repetitions; all combinations of the lists are trained. Required: `model`,
`dataset`, one of `batch_per_device` and `global_batch`, one of `steps` and `epochs`.
"""
TABLES_HEAD = f"""# Tables

Every column of every table, with its unit and its meaning.
{MADE_BY} [table_columns.py](../workflow_scripts/dlbench/tables/table_columns.py).
[results.md](results.md) says how to read them; [notebooks.md](notebooks.md) opens them in pandas,
whose `attrs["units"]` then has the units.

They lie in `results/tables/` as Parquet, all but `evals` as CSV as well. Each Parquet file has the
digest of itself in its metadata (`file_sha256`, with zeros in its place), which dlbench compares
whenever it reads one: a damaged table is refused, with the command that makes it again.

Dates are UTC. Missing values are null, never a placeholder. `1` is the unit of a share or ratio.
`_ci95_low` and `_ci95_high` are the ends of a 95 % interval and are not listed apart; columns of
settings mean in every table what they mean in `runs`.
"""


def write(folder: Path, further: Mapping[str, str]) -> None:
    """Write the pages into a checkout of dlbench.

    Args:
        further: texts of pages that rooms above this one make, by their paths.
    """
    for name, text in {**pages(), **further}.items():
        with atomic_write(folder / name) as part:
            part.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Texts of the pages by their paths in a checkout."""
    return {
        SCHEMA: schema_text(),
        "docs/config.md": config_page(),
        "docs/tables.md": tables_page(),
        "workflow_scripts/README.md": house_map.map_page(),
    }


def schema_text() -> str:
    """The schema of a config as JSON."""
    top = copy.deepcopy(schema())
    top["$defs"]["axes"]["properties"] = config_schema_module.axes()
    imports = top["properties"]["imports"]["items"]["properties"]
    imports["fields"]["propertyNames"]["enum"] = table_columns.IMPORTABLE
    return json.dumps(top, indent=2, ensure_ascii=False) + "\n"


def config_page() -> str:
    """Every key of a config as Markdown."""
    top, defaults = schema(), config.read(DEFAULT_STUDY)
    plain = {name: part for name, part in top["properties"].items() if not _parts(part)}
    sections = [CONFIG_HEAD, _section("Keys", "", plain, defaults)]
    for name, part in top["properties"].items():
        sections += _sections(name, part, defaults.get(name))
    axes = config_schema_module.axes()
    sections.append(f"{AXES_HEAD}\n{_table(axes, DEFAULTS | DEFAULTS_IN_WORDS, of_axis=True)}\n")
    sections.append("Next: [training.md](training.md), what the fields of a run do.\n")
    return "\n".join(sections)


def _sections(name, part, default):
    """A section for a key that has keys of its own, and one for each such key in it."""
    keys, inside = _parts(part), default if isinstance(default, dict) else {}
    if not keys:
        return
    defaults = inside | (DEFAULTS_IN_WORDS if name == "matrix" else {})
    yield _section(_title(name, part), part["description"], keys, defaults)
    for key, further in keys.items():
        # A block's repeats are described already.
        if name != "matrix" or key not in schema()["properties"]:
            yield from _sections(f"{name}.{key}", further, inside.get(key))


def _title(name, part):
    """The heading of a key: its name, and what stands between it and the keys in the table."""
    if part.get("type") == "array":
        return f"{name}[]"
    return f"{name}.NAME" if isinstance(part.get("additionalProperties"), dict) else name


def _section(title, text, keys, defaults):
    return f"## {title}\n\n{text and text + chr(10) * 2}{_table(keys, defaults)}\n"


def _table(keys, defaults, of_axis=False):
    lines = ["| Key | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
    for name, part in keys.items():
        value = _value(part["items"] if of_axis and "items" in part else part)
        default = _default(
            "" if _parts(part) else defaults.get(name, ""), name in DEFAULTS_IN_WORDS
        )
        lines.append(f"| `{name}` | {value} | {default} | {_cell(part['description'])} |")
    return "\n".join(lines)


def _default(value, is_text):
    if value == "" or is_text:
        return value
    return "none" if value is None else f"`{_cell(json.dumps(value).strip(chr(34)))}`"


def _parts(part):
    """The keys below a key of the schema; {} if it has none."""
    part = _resolved(part)
    keys = dict(part.get("properties", {}))
    for below in (part.get("items"), part.get("additionalProperties"), *part.get("anyOf", ())):
        if isinstance(below, dict):
            keys |= _parts(below)
    return keys


def _resolved(part):
    """A part of the schema without the axes that a block refers to; they are a section apart."""
    reference = part.get("$ref", "")
    if not reference or reference.endswith("/axes"):
        return part
    if reference.rsplit("/", 1)[1] == "combination":
        return {"type": "object"}
    return schema()["$defs"][reference.rsplit("/", 1)[1]]


def _value(part):
    """The values that a key takes, in words."""
    if "anyOf" in part:
        return " or ".join(_value(option) for option in part["anyOf"])
    if "const" in part or "enum" in part:
        return ", ".join(f"`{option}`" for option in part.get("enum", [part.get("const")]))
    kinds = part.get("type", "object")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(_kind(kind, part) for kind in kinds if kind != "null") + (
        " or `null`" if "null" in kinds else ""
    )


def _kind(kind, part):
    if kind == "array":
        below = _resolved(part.get("items", {}))
        return "list of mappings" if below.get("type") == "object" else f"list: {_value(below)}"
    if kind == "object":
        further = part.get("additionalProperties")
        return f"mapping: {_value(further)}" if _plain(further) else "mapping"
    literal = re.fullmatch(r"\^(\w+)\$", part.get("pattern", ""))
    if kind == "string" and literal:
        return f"`{literal[1]}`"
    phrases = {"boolean": "`true`, `false`", "string": "text", "integer": "whole number"}
    phrases = [phrases.get(kind, kind)]
    phrases += [f"at least {part['minimum']}"] if part.get("minimum") is not None else []
    phrases += [f"above {part['exclusiveMinimum']}"] if "exclusiveMinimum" in part else []
    phrases += [f"at most {part['maximum']}"] if "maximum" in part else []
    phrases += [f"below {part['exclusiveMaximum']}"] if "exclusiveMaximum" in part else []
    return ", ".join(phrases)


def _plain(part):
    return isinstance(part, dict) and part.get("type") != "object"


def tables_page() -> str:
    """Every column of every table as Markdown."""
    sections = [TABLES_HEAD]
    for name, text in TABLES.items():
        columns = SCHEMAS[name]
        settings = {}
        for column in columns:
            if not column.name.endswith(_ENDS) and (base := _described_in(name, column)):
                settings.setdefault(base, []).append(column.name)
        lines = [f"## {name}", "", text]
        for base, alike in settings.items():
            lines += ["", f"As in `{base}`: {', '.join(f'`{name}`' for name in alike)}."]
        lines += ["", "| Column | Kind | Unit | Meaning |", "| --- | --- | --- | --- |"]
        apart = set(itertools.chain(*settings.values()))
        lines += [_row(name, column) for column in columns if _listed(column, apart)]
        sections.append("\n".join(lines) + "\n")
    sections.append("Next: [results.md](results.md), how to read them.\n")
    return "\n".join(sections)


def _described_in(table, column):
    """The table before this one in which a column is described; None if it is in none."""
    is_described = _metadata(column, b"description") or f"{table}.{column.name}" in MEANINGS
    if table != "runs" and column.name in table_columns.RUNS.names and not is_described:
        return "runs"
    before = itertools.takewhile(lambda name: name != table, TABLES)
    alike = (name for name in before if _has(SCHEMAS[name], column))
    return next(alike, None) if is_described else None


def _has(schema, column):
    return column.name in schema.names and schema.field(column.name).equals(column, True)


def _listed(column, settings):
    return column.name not in settings and not column.name.endswith(_ENDS)


def _row(table, column):
    unit = _metadata(column, b"unit")
    return f"| `{column.name}` | {_type(column.type)} | {unit} | {_cell(meaning(table, column))} |"


def meaning(table: str, column: pa.Field) -> str:
    """The meaning of a column of a table; "" if it has none."""
    declared = DECLARED.get(column.name)
    return (
        _metadata(column, b"description")
        or MEANINGS.get(f"{table}.{column.name}")
        or MEANINGS.get(column.name)
        or (declared.meaning if declared else "")
    )


def _metadata(column, key):
    return (column.metadata or {}).get(key, b"").decode()


def _type(type_):
    if pa.types.is_boolean(type_):
        return "true, false"
    if pa.types.is_integer(type_):
        return "whole number"
    if pa.types.is_floating(type_):
        return "number"
    return "date" if pa.types.is_timestamp(type_) else "text"


def _cell(text):
    return text.replace("|", "\\|")
