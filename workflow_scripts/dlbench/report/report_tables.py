"""Tables of the report: which it shows, as plain columns with units and descriptions.

- A column in which all rows agree is listed as text below its table; an empty one is left out.
- A value and the ends of its 95 % interval become two columns: the value and the interval.
- Numbers have six digits, bytes are MiB; all digits are in results/tables.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dlbench.analysis import base_flags, estimates, measures
from dlbench.log import event_fields
from dlbench.report import findings
from dlbench.study import contradictions, wording
from dlbench.study.runs import CONDITION
from dlbench.tables import cells, parquet_files, table_columns
from dlbench.tables.cells import Row

REQUIRED = ("runs", "evals", "coverage", "comparisons", "speedups")
# Tables of earlier versions, which may still lie there.
EARLIER = ("sentinels", "probes", "metric_comparisons", "metric_drift")
# Columns that are not shown.
LEFT_OUT = ("study", "run_ids", "base_run_ids")
# Tables that are shown as they are: (what a row is, the columns that come first).
TABLES = {
    "speedups": (
        "One row per condition and number of devices; base mismatch: problems of the comparison.",
        ("model", "dataset", "scaling", "strategy", "devices", "images_per_second",
         "tokens_per_second", "speedup", "efficiency", "base_mismatch", "runs"),
    ),
    "comparisons": (
        "One row per condition that the config compares with its base.",
        ("condition", "base", "metric", "model", "dataset", "verdict", "ratio", "repeats_needed",
         "n_a", "n_b", "base_flags"),
    ),
    "runs": (
        "One row per run, whatever its status; apart: why it is in no statistics.",
        ("run_id", "status", "message", "apart", "images_per_second", "tokens_per_second",
         "step_time_median_s", "step_time_p95_s", "model", "dataset", "batch_per_device",
         "strategy", "devices"),
    ),
    "coverage": (
        "The status of every combination, and the reason.",
        ("combination", "status", "reason"),
    ),
}  # fmt: skip
HEADINGS = {"accounts": "Wall-time breakdown"}  # of tables whose name says too little
DESCRIPTIONS = {
    "accounts": "What the wall time of each run was spent on.",
    "explanations": "What a step of each explained condition is made of, by its probes.",
    "nodes": "How fast each node is beside the others, by runs on one node; the slowest first.",
    "drift": "How fast the machine was in a session, over an earlier one, by conditions of both.",
    "published": "Numbers that others published, each with where it stands and how it was read.",
}
LOW, HIGH = "_ci95_low", "_ci95_high"
COLUMN_LABELS = {"top1": "top 1", "top5": "top 5", "iou": "IoU", "p_tost": "p TOST"}
# What makes a combination.
SETTINGS = tuple(n for n in (*CONDITION, *base_flags.FACTS) if n != "seed")
MEBIBYTE = 2**20
MEAN = "geometric over runs; of a metric with values of 0 or less arithmetic"
BETTER = "the direction that the program says is better; empty: none"
SHORT = 12  # hexadecimal digits of a digest that are shown
# Columns that are shown though all rows agree in them.
PINNED = ("status", "field", "condition", "base", "verdict", "images_per_second", "efficiency")
DIGESTS = ("_sha256", "_digest", "_commit")
# Columns that are hidden at first.
HIDDEN = (
    *("study", "seed", "steps_measured", "burn_in_steps", "step_time_mad_s", "step_time_mean_s"),
    *("copy_sd_images_per_second", "devices_per_node", "parser_version", "started_at", "ended_at"),
    *("family", "scatter", "p_tost_raw", "p_difference_raw", "parameters", "git_dirty"),
    *("ci90_low", "ci90_high", "ci95_low", "ci95_high", "cpu_time_s", "import_s", "start_s"),
    *("first_batch_s", "compile_s", "peak_memory_bytes", "epochs_images_per_second", "base_nodes"),
    *("model_flops_per_item", "hardware_flops_per_item", "values_per_item", "flops_unknown"),
    *("arithmetic_intensity", "item"),
    *("device_peak_tflops", "device_peak_source", "device_memory_gb_per_s", "attainable_tflops"),
    *("attainable_gb_per_s", "achieved_tflops_per_device", "device_memory_unknown"),
    *("peak_allocated_bytes_per_device", "peak_reserved_bytes_per_device", "memory_limit_bytes"),
    "peak_used_bytes_per_device",
    *(
        f"{prefix}energy_{name}"
        for prefix in ("", "host_", "node_")
        for name in ("source", "samples", "sampled_share", "resolution_s", "unknown")
    ),
    *("first_epoch_images_per_second", "threads_per_device", "base_runs", "unstable_runs"),
)
SCORES = (
    *("final_loss", "top1", "top5", "iou", "perplexity", "bits_per_byte"),
    *("energy_per_image_j", "time_to_accuracy_s"),
)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        kind: what the values are: number, text, bool, date or interval, which is (low, high).
        values: one a row, None where it has none.
        note: what the column means.
        shown: whether the column is visible at first.
    """

    name: str
    kind: str
    values: list[Any]
    unit: str = ""
    note: str = ""
    shown: bool = True


@dataclass(frozen=True)
class DataTable:
    """A table of the report.

    Attributes:
        description: what a row is.
        file: path of the file with all digits, without its suffix.
        constant: (name, value) of what all rows agree in.
    """

    name: str
    heading: str
    description: str
    columns: list[Column]
    rows: int
    file: str
    constant: list[tuple[str, str]] = field(default_factory=list)


def shown(
    read: Mapping[str, pa.Table], rows: Mapping[str, list[Row]], folder: Path
) -> list[DataTable]:
    """All tables with rows, in their order: of the REQUIRED tables, and others in the folder."""
    found = [results(rows["runs"])]
    for name, (description, first) in TABLES.items():
        found.append(of_parquet(name, description, read[name], LEFT_OUT, first))
    found.append(_metrics(rows["runs"], rows_of(folder, "metrics")))
    for name in further(folder):
        if name != "metrics":  # by condition, above
            table = parquet_files.read_any(folder / f"{name}.parquet")
            found.append(of_parquet(name, DESCRIPTIONS.get(name, ""), table))
    return [table for table in found if table.rows]


def further(folder: Path) -> list[str]:
    """Names of further tables in the folder, as that of published numbers."""
    names = {path.stem for path in folder.glob("*.parquet")}
    return sorted(names.difference(REQUIRED, EARLIER))


def rows_of(folder: Path, name: str) -> list[Row]:
    """Rows of a table that may be missing; that of baselines may be of an earlier version."""
    schema = (table_columns.STUDY_TABLES | table_columns.MACHINE_TABLES)[name]
    path, earlier = folder / f"{name}.parquet", name in table_columns.MACHINE_TABLES
    return parquet_files.read(path, schema, earlier=earlier).to_pylist() if path.is_file() else []


def of_parquet(
    name: str,
    description: str,
    table: pa.Table,
    left_out: Sequence[str] = (),
    first: Sequence[str] = (),
) -> DataTable:
    """A table of results/tables as it is, without some columns; `first` come before the others."""
    columns, constant = [], []
    names = [name for name in first if name in table.schema.names]
    table = table.select([*names, *(n for n in table.schema.names if n not in names)])
    pinned = {
        column_label(name, _metadata(table.schema.field(name))[0])
        for name in PINNED
        if name in table.schema.names
    }
    for column in _columns(table, left_out):
        distinct = set(column.values)
        if distinct <= {None, ""}:
            continue
        if len(distinct) == 1 and len(column.values) > 1 and column.name not in pinned:
            constant.append((_with_unit(column), _cell_text(column.values[0])))
        else:
            columns.append(column)
    heading = HEADINGS.get(name, name.replace("_", " ").capitalize())
    return DataTable(
        name, heading, description, columns, table.num_rows, f"results/tables/{name}", constant
    )


def _columns(table, left_out):
    names = table.schema.names
    for name in names:
        is_end = name.endswith((LOW, HIGH)) and name[: name.rindex("_ci95")] in names
        if is_end or name in left_out:
            continue
        yield _column(table, name)
        if f"{name}{LOW}" in names:
            yield _interval(table, name, f"{name}{LOW}", f"{name}{HIGH}")
        if name == "ratio" and "ci95_low" in names:
            yield _interval(table, name, "ci95_low", "ci95_high")


def _column(table, name):
    schema_field = table.schema.field(name)
    unit, note = _metadata(schema_field)
    values = table[name].to_pylist()
    type_ = schema_field.type
    kind = "text"
    if pa.types.is_boolean(type_):
        kind = "bool"
    elif pa.types.is_integer(type_) or pa.types.is_floating(type_):
        kind = "number"
        unit, values = _rounded_values(values, unit)
    elif pa.types.is_timestamp(type_):
        kind, unit = "date", "UTC"
        values = [None if v is None else v.strftime("%Y-%m-%d %H:%M:%S") for v in values]
    elif not (pa.types.is_string(type_) or pa.types.is_dictionary(type_)):
        values = [None if v is None else str(v) for v in values]
    if name.endswith(DIGESTS):
        values = [None if v is None else v.removeprefix("sha256:")[:SHORT] for v in values]
    shown = name not in HIDDEN and not name.endswith(DIGESTS)
    return Column(column_label(name, unit), kind, values, unit, note, shown)


def _interval(table, name, low, high):
    unit, note = _metadata(table.schema.field(low))
    ends = [_rounded_values(table[end].to_pylist(), unit)[1] for end in (low, high)]
    values = [None if None in pair else pair for pair in zip(*ends, strict=True)]
    heading = f"{column_label(name, unit)}: 95 % interval"
    return Column(heading, "interval", values, "" if unit == "1" else unit, note)


def _metadata(schema_field):
    metadata = schema_field.metadata or {}
    return metadata.get(b"unit", b"").decode(), metadata.get(b"description", b"").decode()


def _rounded_values(values, unit):
    """(unit, values) with six digits; infinities are texts."""
    factor = 1 / MEBIBYTE if unit == "B" else 1
    unit = "MiB" if unit == "B" else "" if unit == "1" else unit
    return unit, [None if v is None else six_digits(v * factor) for v in values]


def six_digits(value: float) -> float | str:
    """Six digits of a number; infinities are texts."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def column_label(name: str, unit: str = "") -> str:
    """The label of a column, without its unit.

    >>> column_label("compile_s", "s"), column_label("top1"), column_label("xla")
    ('compile', 'top 1', 'XLA')
    """
    for suffix, suffix_unit in (("_s", "s"), ("_j", "J"), ("_bytes", "MiB")):
        if unit == suffix_unit and name.endswith(suffix):
            # Not the field of that name: compile_s is no switch.
            return name.removesuffix(suffix).replace("_", " ")
    return COLUMN_LABELS.get(name) or wording.field_name(name)


def _with_unit(column):
    return f"{column.name} ({column.unit})" if column.unit else column.name


def _cell_text(value):
    if isinstance(value, tuple):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def conditions(rows: Iterable[Row]) -> list[tuple[Row, list[Row]]]:
    """(settings and facts, their runs) of each combination, of rows of the runs table."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in SETTINGS), []).append(row)
    return [(dict(zip(SETTINGS, key, strict=True)), group) for key, group in groups.items()]


def results(rows: list[Row]) -> DataTable:
    """The table of results: a row a combination; its numbers come before its settings."""
    settings, groups = zip(*conditions(rows), strict=True) if rows else ((), ())
    names = combination_names(settings)
    columns = [Column("combination", "text", names), *_measured(groups)]
    constant = []
    for name in ("devices", *SETTINGS):
        values = [group[0].get(name) for group in groups]
        if len({str(value) for value in values}) > 1:
            columns.append(Column(column_label(name), _kind(values), values, *_of_schema(name)))
        elif values and values[0] not in (None, ""):
            constant.append((column_label(name), _cell_text(values[0])))
    description = "One row per combination: geometric means and 95 % intervals over its runs."
    return DataTable(
        "results", "Results", description, columns, len(groups), "results/tables/runs", constant
    )


def fastest(rows: list[Row]) -> list[tuple[str, estimates.Estimate, str]]:
    """(name, Estimate, what it counts) of the highest throughput of each site, model and dataset.

    It is that of training, if there is any. Those of most runs come first; published numbers are
    left out. Names are those of the table of results.
    """
    best: dict[tuple[Any, ...], list[tuple[Row, estimates.Estimate]]] = {}
    runs: dict[tuple[Any, ...], int] = {}
    names: dict[int, str] = {}
    combinations = conditions(rows)
    for (values, group), name in zip(
        combinations, combination_names(v for v, _ in combinations), strict=True
    ):
        if values["timing_source"] == cells.PUBLISHED:
            continue
        names[id(values)] = name
        rate = _mean(
            [r for r in group if r["status"] in event_fields.SUCCEEDED], "images_per_second"
        )
        key = tuple(values[name] for name in ("site", "model", "dataset"))
        runs[key] = runs.get(key, 0) + len(group)
        if rate:
            best.setdefault(key, []).append((values, rate))
    keys = sorted(best, key=lambda key: (-runs[key], str(key)))
    found = []
    for key in keys:
        values, rate = max(best[key], key=lambda v: (v[0]["mode"] == "train", v[1].value))
        name, mode = names[id(values)], values["mode"]
        if mode not in ("train", None, *name.split(", ")):
            name = f"{name}, {mode}"
        unit = wording.rate_unit([values.get("item_shape")])  # tokens for texts
        found.append((name, rate.times(unit.per_item), unit.plural))
    return found


def combination_names(values: Iterable[Row]) -> list[str]:
    """The names of combinations, by the settings in which they differ."""
    (values,) = findings.hide_single_site(list(values))
    return findings.row_names(values) if values else []


def _measured(groups):
    well = [[row for row in group if row["status"] in event_fields.SUCCEEDED] for group in groups]
    rates = [_mean(group, "images_per_second") for group in well]
    items = wording.rate_unit({row.get("item_shape") for group in groups for row in group})
    values = [rate and six_digits(rate.value) for rate in rates]
    note = "items of the measured steps over their time; geometric mean over runs"
    yield Column(f"{items.item}s per second", "number", values, "items/s", note)
    tokens = [_mean(group, "tokens_per_second") for group in well]
    if any(tokens):
        values = [rate and six_digits(rate.value) for rate in tokens]
        note = "items per second times the tokens of an item"
        yield Column("tokens per second", "number", values, "tokens/s", note)
    ends = list(map(_ends, rates))
    note = "Student's t on the logarithm of the throughput; none for one run"
    yield Column("95 % interval", "interval", ends, "items/s", note)
    half = [
        six_digits(50 * (rate.high - rate.low) / rate.value) if both else None
        for rate, both in zip(rates, ends, strict=True)
    ]
    yield Column("half width", "number", half, "%", "of the interval, in % of the mean")
    yield Column("runs", "number", [len(group) for group in well], "", "completed: ok or unstable")
    note = "runs with another status than ok, by status; unstable ones are completed, too"
    yield Column("failed or unstable runs", "text", list(map(_status_counts, groups)), "", note)
    for name in ("step_time_median_s", "step_time_p95_s", *SCORES):
        unit, note = _of_schema(name)
        known = [[r[name] for r in group if not cells.is_absent(r.get(name))] for group in well]
        means = [six_digits(sum(values) / len(values)) if values else None for values in known]
        if any(known):
            note = "; ".join(filter(None, (note, "arithmetic mean over runs")))
            unit = "" if unit == "1" else unit
            yield Column(column_label(name, unit), "number", means, unit, note)


def _of_schema(name):
    """(unit, note) of a column of the runs table."""
    known = name in table_columns.RUNS.names
    return _metadata(table_columns.RUNS.field(name)) if known else ("", "")


def _kind(values):
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return "bool"
    return "number" if all(isinstance(value, (int, float)) for value in known) else "text"


def _ends(estimate):
    """The interval of an estimate; None for none."""
    if estimate is None or math.isnan(estimate.low):
        return None
    return six_digits(estimate.low), six_digits(estimate.high)


def _mean(rows, name):
    values = [row[name] for row in rows if row.get(name) and 0 < row[name] < math.inf]
    return estimates.mean(values) if values else None


def _status_counts(rows):
    counts = Counter(
        "contradictory" if row.get(contradictions.REASON) else row["status"] for row in rows
    )
    del counts["ok"]
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or None


def plain(table: DataTable) -> dict[str, Any]:
    """A table as plain values for JSON: texts that recur are written once."""
    return {"name": table.name, "rows": table.rows, "columns": list(map(_plain, table.columns))}


def _plain(column):
    values = {"name": column.name, "kind": column.kind}
    unit = "" if column.unit == column.name else column.unit
    values |= {k: v for k, v in (("unit", unit), ("note", column.note)) if v}
    values |= {} if column.shown else {"hidden": True}
    if column.kind != "text":
        return values | {"values": column.values}
    codes = {}
    numbered = [None if v in (None, "") else codes.setdefault(v, len(codes)) for v in column.values]
    return values | {"levels": list(codes), "codes": numbered}


def _metrics(runs: Sequence[Row], table: Sequence[Row]) -> DataTable:
    """The table of metrics: a row for each metric that programs name, and condition."""
    named = measures.named(table)
    runs = measures.attached(runs, table)
    rows = [
        (metric, name, values, measures.mean_of(runs, metric)(values))
        for metric in named.metrics.values()
        for name, values in _conditions(runs, metric)
    ]
    metrics, names, values, means = zip(*rows, strict=True) if rows else ((),) * 4
    columns = [
        Column("metric", "text", [metric.name for metric in metrics]),
        Column("combination", "text", list(names)),
        Column("mean", "number", [six_digits(one.value) for one in means], note=MEAN),
        Column(
            "95 % interval",
            "interval",
            list(map(_ends, means)),
            note="Student's t, on logarithms where the mean is geometric; none for one run",
        ),
        Column("unit", "text", [metric.unit for metric in metrics]),
        Column("better", "text", [metric.direction for metric in metrics], note=BETTER),
        Column("runs", "number", list(map(len, values)), note="completed, with that metric"),
    ]
    description = "One row per metric and combination."
    if named.unlike:
        unlike = "; ".join(f"{name}: {why}" for name, why in named.unlike.items())
        description += f" Left out, as runs do not agree in them: {unlike}."
    return DataTable(
        "metrics", "Metrics", description, columns, len(rows), "results/tables/metrics"
    )


def _conditions(runs, metric):
    """(name, values of the completed runs) of each condition that has the metric."""
    having = [
        row
        for row in runs
        if row["status"] in event_fields.SUCCEEDED and row.get(metric.column) is not None
    ]
    settings, groups = zip(*conditions(having), strict=True) if having else ((), ())
    for name, group in zip(combination_names(settings), groups, strict=True):
        yield name, [row[metric.column] for row in group]
