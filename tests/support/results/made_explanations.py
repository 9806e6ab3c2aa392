"""Runs that were never trained, whose steps take given times, and what their probes say of them."""

from dlbench.analysis import limits
from dlbench.baselines import collectives
from dlbench.tables import parquet_files, table_columns
from support.results import made_tables

ALONE = {"strategy": "single", "launcher": "none"}
TWO = {"devices": 2, "strategy": "horovod", "launcher": "horovodrun"}
FACTS = {"parameters": 250_000, "device_kind": "cpu", "hardware_sha256": "hard"}
GRADIENT_BYTES = 1_000_000
HALF = 0.05  # of a part: half the width of its interval, where none is given


def rows(run_id, parts_ms, combination="", halves_ms=None, notes=None, runs=3):
    """A row for each part of the step of a condition.

    Args:
        parts_ms: milliseconds of each part by name; None for one that is not known.
        halves_ms: halves of the widths of their intervals, of those that differ from HALF.
        notes: what is in doubt of a part, by name.
    """
    whole_ms = sum(filter(None, parts_ms.values()))
    made = []
    for name, value_ms in parts_ms.items():
        row = {"run_id": run_id, "combination": combination or run_id, "part": name, "runs": runs}
        if value_ms is None:
            made.append(row | {"told_apart": False, "note": "no probe completed"})
            continue
        half_ms = (halves_ms or {}).get(name, HALF * abs(value_ms))
        note = (notes or {}).get(name) or (limits.INCLUDES_ZERO if half_ms >= value_ms else None)
        ends = (value_ms - half_ms) / 1e3, (value_ms + half_ms) / 1e3
        row |= {"study": "made", "step_time_s": value_ms / 1e3, "share": value_ms / whole_ms}
        row |= {"step_time_ci95_low": ends[0], "step_time_ci95_high": ends[1]}
        made.append(row | {"told_apart": note is None, "note": note})
    return made


def write(folder, found):
    """Write the table of explanations into a folder of tables."""
    schema = table_columns.EXPLANATIONS
    parquet_files.write(folder / "explanations.parquet", found, schema)


def runs(step_ms, scatter=0.002, batch=64, **changes):
    """Three runs on one device, whose steps take about so long."""
    devices = changes.get("devices", 1)
    made = [
        made_tables.run(
            repeat=repeat,
            batch_per_device=batch,
            images_per_second=1e3 * batch * devices / step_ms * (1 + (repeat - 2) * scatter),
            **FACTS | ALONE | changes,
        )
        for repeat in (1, 2, 3)
    ]
    return [dict.fromkeys(table_columns.RUNS.names) | row for row in made]


MODELS = {  # milliseconds of a step by devices
    "resnet50": {
        1: {"input": 3.0, "waits": 0.6, "computation": 162.0},
        2: {"input": 5.0, "exchange": 14.0, "sharing": 7.0, "waits": 0.6, "computation": 162.0},
        4: {"input": 12.0, "exchange": 31.0, "sharing": 15.0, "waits": 0.7, "computation": 162.0},
    },
    "alexnet": {
        1: {"input": 15.0, "copies": 3.0, "waits": 0.9, "computation": 24.0},
        2: {"input": 21.0, "copies": 5.0, "exchange": 17.0, "sharing": 0.6, "waits": 0.9,
            "computation": 24.0},
        4: {"input": 30.0, "copies": 7.0, "exchange": 29.0, "sharing": 1.0, "waits": 1.5,
            "computation": 24.0},
    },
}  # fmt: skip
HALVES_MS = {"input": 2.2, "copies": 0.9, "exchange": 2.6, "sharing": 1.6, "waits": 0.7}
HALVES_MS |= {"computation": 1.2}


def conditions():
    """Two models on one device to four, with real items."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for model, steps in MODELS.items()
        for devices, parts_ms in steps.items()
        for row in runs(
            sum(parts_ms.values()), model=model, dataset="imagenet", **TWO | {"devices": devices}
        )
    ]


def of_conditions():
    return [
        row
        for run in conditions()
        if run["repeat"] == 1
        for row in rows(run["run_id"], MODELS[run["model"]][run["devices"]], halves_ms=HALVES_MS)
    ]


def baseline(run, time_s, **changes):
    """The baseline of an all-reduce of the gradients of a run, as a row of their table."""
    made = {name: run[name] for name in limits.MATCHED}
    made |= {"measure": collectives.ALL_REDUCE, "size_bytes": GRADIENT_BYTES, "time_s": time_s}
    return made | {"time_low_s": 0.9 * time_s, "time_high_s": 1.1 * time_s} | changes
