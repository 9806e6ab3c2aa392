"""The pages that list everything: keys of a config, columns of tables, and the map of the library.

- config.schema.json: what it has of the fields of a run is from their declarations, and the names
  of columns from table_columns.py; all else in it is written by hand.
- config.md: from config.schema.json; defaults are those of config.yaml, and for fields of a run
  those of their declarations.
- tables.md: from table_columns.py, with units. MEANINGS has columns that say
  no more there than their name; a key with a table before its dot is of that table only.
- commands.md: from the parsers of the commands, by dlbench/command/dispatch.py.
- workflow_scripts/README.md: rooms with the first sentence of their docstring, on the floors that
  pyproject.toml gives them, and the programs that call their files.
"""

import ast
import copy
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import tomllib

from dlbench.common.files import atomic_write
from dlbench.common.own_code import PROGRAMS
from dlbench.common.plugins import LIBRARY
from dlbench.common.run_fields import DECLARED, DEFAULTS
from dlbench.study import config, config_schema, yaml_files
from dlbench.study.config_schema import schema
from dlbench.tables import table_columns

PYPROJECT = PROGRAMS.parent / "pyproject.toml"
ALONE = "alone"  # programs that run under a stranger's Python, without the library
HEAD = """# The map

Made by `workflow_scripts/write_reference_pages.py` from the first lines of rooms.

A room is a folder of `dlbench/`. It imports rooms of lower floors, never one of its own floor or of
one above; `lint-imports` checks it. Folders in a room hold things that are found by name: one more
file there is one more of them ([docs/adding.md](../docs/adding.md)).

Users start one command, `dlbench` ([commands](../docs/commands.md)), whose functions are in
`dlbench/command/`. Programs, which rules start, some under another Python than the workflow's,
stand beside the highest room that they use; `--help` says what each takes.
"""


def floors() -> list[list[str]]:
    """The rooms of each floor, the highest floor first, as the contract in pyproject.toml has them.

    Rooms that one floor holds do not import one another.
    """
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def topic(program: Path) -> str:
    """The highest room that a program imports, or "alone" for one that needs no library."""
    modules = [
        node.module or ""
        for node in ast.walk(ast.parse(program.read_bytes()))
        if isinstance(node, ast.ImportFrom)
    ]
    imported = {module.split(".")[1] for module in modules if module.startswith("dlbench.")}
    return next((room for rooms in floors() for room in rooms if room in imported), ALONE)


def map_page() -> str:
    """The map as Markdown."""
    programs: dict[str, list[Path]] = {}
    for path in sorted(PROGRAMS.glob("*.py")):
        programs.setdefault(topic(path), []).append(path)
    rooms: list[tuple[object, str, str, str]] = [
        (floor, f"[{room}](dlbench/{room}/__init__.py)", _first_sentence(LIBRARY / room), room)
        for floor, rooms in reversed(list(enumerate(reversed(floors()))))
        for room in sorted(rooms)
    ]
    rooms.append(("", "none", "What runs without the library, under any Python", ALONE))
    rows = [
        (*row, ", ".join(f"[{path.stem}]({path.name})" for path in programs.get(room, ())))
        for *row, room in rooms
    ]
    return "\n".join([HEAD, *_grid(("Floor", "Room", "What it is for", "Programs"), rows), ""])


def _grid(headings, rows):
    """The lines of a table in Markdown; texts with bars are escaped before."""
    for row in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(map(str, row))} |"


def _first_sentence(room):
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_bytes())) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return _cell(re.split(r"(?<=\.)\s", paragraph)[0].rstrip("."))


TABLES = {
    "runs": "One row for each run: own, imported (`timing_source` names the kind of log) and "
    "published. Means and figures are of those without `apart`.",
    "evals": "One row for each evaluation on held-out items.",
    "accounts": "Where the wall time of own runs went: one row for each part of a run that took "
    "any. The parts of a run add up to its `wall_s`.",
    "metrics": "One row for each metric of each run, of sentinels too: a number that the run's "
    "program names itself.",
    "coverage": "One row for each combination and repeat that the config asks for, whatever became "
    "of it, and for each imported run.",
    "comparisons": "One row for each condition, its base and metric, as `compare` asks.",
    "drift": "One row for each device shape and pair of sessions that measured the same "
    "conditions, of throughput and of each metric that programs name and whose values are above "
    "0.",
    "nodes": "How fast nodes are beside one another, by runs on one node: one row for each node, "
    "the slowest first; none where no two can be compared.",
    "speedups": "One row for each series and number of devices.",
    "published": "One row for each published number, with the own runs that match it.",
    "tries": "One row for each batch that a search for the largest one tried "
    "(`batch_per_device: max`). Tries are no runs, and in no statistics.",
    "explanations": "What a step is made of: one row for each part of each condition of a block "
    "with `explain`.",
    "baselines": "One row for each size of each baseline: what machines attain without a model, "
    "through the libraries that train. Made by `uv run snakemake baselines`.",
    "steps": "One row for each step (or window of steps) and rank, in `results/runs/{run_id}/`.",
    "samples": "One row for each sample of a process or of one of its GPUs, in "
    "`results/runs/{run_id}/`.",
    "sessions": "One row for each condition and metric of a session of a "
    "[history](history.md), in `history/site=S/year=Y/`: `site` and `year` are in the path. As "
    "Parquet only.",
    "campaigns": "One row for each file of a history: whether it counts, in `results/history/`.",
    "series": "`sessions` of all sites and machines together, without those that do not count, in "
    "`results/history/`. As Parquet only.",
    "findings": "One row for each change of level in a history, in `results/history/`.",
    "changes": "One row for each condition of a finding, in `results/history/`.",
}
MEANINGS = {
    "run_id": "names the run, and its folder in results/runs/",
    "study": "name of the study in its config; of an imported run that of the import",
    "site": "name of the machine (site.name)",
    "framework_version": "as the framework reports it",
    "item_shape": "shape of one input of the model, as 224x224x3; none: unknown",
    "device_kind": "cpu or gpu",
    "device_model": "name of the processor or GPU",
    "devices": "nodes times devices_per_node",
    "global_batch": "items of a step over all devices",
    "container_start": "what started the container: directive (Snakemake) or command",
    "status": "ok, unstable, oom, timeout, failed or skipped",
    "timing_source": "whose clock: dlbench, a kind of log that was imported, or published",
    "quality": "of a published number: printed, derived or read_off",
    "parameters": "trainable weights of the model",
    "step_time_mean_s": "over the measured steps of the slowest rank",
    "step_time_median_s": "median of the steps of step_time_mean_s; a window counts as its mean",
    "step_time_p95_s": "95th percentile of the steps of step_time_mean_s, linear between the two "
    "nearest",
    "started_at": "UTC",
    "ended_at": "UTC",
    "host": "node of the first process",
    "git_commit": "of the workflow when the run was started",
    "git_dirty": "whether files under git, profiles apart, differed from that commit",
    "release": "of dlbench, if it was installed from a wheel: version and digest of its files; "
    "`.changed` if some are not those that were installed",
    "log_sha256": "of the raw log that the record was made from",
    "parser_version": "of the code that made the record from the log",
    "rank": "of the process, from 0",
    "evals.step": "the last one before the evaluation",
    "evals.epoch": "from 1; 0 before training",
    "split": "validation: the held-out items; of several sets in a log their names",
    "evals.loss": "mean over the held-out items",
    "steps.learning_rate": "of the step",
    "ci90_high": "upper end of the 90 % interval",
    "ci95_low": "lower end of the 95 % interval",
    "ci95_high": "upper end of the 95 % interval",
    "examples": "items that were scored",
    "node_memory_available_bytes": "of the node",
    "load_average_1min": "of the node",
    "utilisation_percent": "of the GPU",
    "power_w": "of the GPU",
    "temperature_c": "of the GPU",
    "clock_sm_mhz": "of the GPU's processors",
    "clock_memory_mhz": "of the GPU's memory",
    "combination": "what was to be trained, in words",
    "field": "of a run, in which the conditions differ",
    "runtime_options": "settings of the runtime",
    "strategy_options": "settings of the strategy",
    "n_a": "runs of the condition that completed (ok or unstable)",
    "n_b": "runs of the base that completed (ok or unstable)",
    "base_devices": "devices of the base",
    "base_nodes": "nodes of the base",
    "base_runs": "repeats of the base that completed (ok or unstable)",
    "metric": "a number of the table runs, or one relative to another point",
    "published.unit": "of the value",
    "page": "page, slide or table of the source",
    "published.source": "short citation",
    "published.note": "errata and what else to know",
    "own_over_published": "the own number over the published one",
}

_ENDS = ("_ci95_low", "_ci95_high")  # of the columns of an interval
SCHEMA = "workflow_scripts/dlbench/study/config.schema.json"
DEFAULT_STUDY = Path(__file__).parents[3] / "config.yaml"
MADE_BY = "Made by `workflow_scripts/write_reference_pages.py` from"
SCHEMAS = {
    **table_columns.STUDY_TABLES,
    **table_columns.RUN_TABLES,
    **table_columns.MACHINE_TABLES,
    **table_columns.HISTORY_TABLES,
}
DEFAULTS_IN_WORDS = {
    "framework": "tensorflow",
    "environment": "the framework's own",
    "launcher": "the strategy's own",
    "repeats": "the study's",
}
KINDS = {"boolean": "`true`, `false`", "string": "text", "integer": "whole number"}
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
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
[results.md](results.md) says how to read them, also in pandas, whose `attrs["units"]` then has
the units.

They lie in `results/tables/` as Parquet, all but `evals` as CSV as well. Each Parquet file has the
digest of itself in its metadata (`file_sha256`, with zeros in its place), which dlbench compares
whenever it reads one: a damaged table is refused, with the command that makes it again.

Dates are UTC. Missing values are null, never a placeholder. `1` is the unit of a share or ratio.
`_ci95_low` and `_ci95_high` are the ends of a 95 % interval and are not listed apart; columns of
settings mean in every table what they mean in `runs`.
"""


def write(folder: Path, further: Mapping[str, str]) -> None:
    """Write the pages into a checkout of dlbench.

    `further`: texts of pages that rooms above this one make, by their paths.
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
        "workflow_scripts/README.md": map_page(),
    }


def schema_text() -> str:
    """The schema of a config as JSON."""
    top = copy.deepcopy(schema())
    top["$defs"]["axes"]["properties"] = config_schema.axes()
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
    axes = config_schema.axes()
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
    rows = []
    for name, part in keys.items():
        value = _value(part["items"] if of_axis and "items" in part else part)
        default = "" if _parts(part) else defaults.get(name, "")
        if default is None:
            default = "none"
        elif default != "" and name not in DEFAULTS_IN_WORDS:
            default = f"`{_cell(json.dumps(default).strip(chr(34)))}`"
        rows.append((f"`{name}`", value, default, _cell(part["description"])))
    return "\n".join(_grid(("Key", "Value", "Default", "Meaning"), rows))


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
        is_plain = isinstance(further, dict) and further.get("type") != "object"
        return f"mapping: {_value(further)}" if is_plain else "mapping"
    literal = re.fullmatch(r"\^(\w+)\$", part.get("pattern", ""))
    if kind == "string" and literal:
        return f"`{literal[1]}`"
    bounds = (f"{words} {part[key]}" for key, words in BOUNDS.items() if part.get(key) is not None)
    return ", ".join([KINDS.get(kind, kind), *bounds])


def tables_page() -> str:
    """Every column of every table as Markdown."""
    sections = [TABLES_HEAD]
    for name, text in TABLES.items():
        lines, rows = [f"## {name}", "", text], []
        alike: dict[str, list[str]] = {}
        for column in (one for one in SCHEMAS[name] if not one.name.endswith(_ENDS)):
            if base := _described_in(name, column):
                alike.setdefault(base, []).append(f"`{column.name}`")
            else:
                unit, said = _metadata(column, b"unit"), _cell(meaning(name, column))
                rows.append((f"`{column.name}`", _type(column.type), unit, said))
        for base, columns in alike.items():
            lines += ["", f"As in `{base}`: {', '.join(columns)}."]
        lines += ["", *_grid(("Column", "Kind", "Unit", "Meaning"), rows)] if rows else []
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
