"""Histories of invented sessions, written as rows: without records, in milliseconds."""

import json
import math
from datetime import datetime, timedelta, timezone

from dlbench.analysis import estimates
from dlbench.history import dataset, history_rows

FIRST = datetime(2026, 1, 5, 8, tzinfo=timezone.utc)


def add(history, week, rates, machine="EPYC", driver="550", meaning="{}", labels=(), **of_session):
    """Add a session to a history. Returns the name of its file.

    Args:
        rates: {fields of a condition as JSON: throughputs of its runs, none if all failed}.
        machine: model of its processors.
        labels: {fields of a condition as JSON: its label}, if `label` will not do.
        of_session: columns of its rows, as `site`, `session`, `study`, or of its metric.
    """
    facts = {"nodes": [f"2 x {machine}, 64 cores"], "gpus": [], "gpus_per_node": 0}
    common = {
        "session": f"s{week}-{machine}",
        "started_at": FIRST + timedelta(weeks=week),
        "site": "here",
        "study": "nightly",
        "machine_key": history_rows.machine_key(facts),
        "machine": history_rows.machine_name(facts),
        "machine_facts": json.dumps(facts),
        "metric": "images_per_second",
        "unit": "items/s",
        "better": "higher",
        "meaning": meaning,
        "driver": driver,
        "facts": json.dumps({"GPU driver": driver}),
        "source": f"{machine}{week}.zip",
        "archive_sha256": f"{week:064x}",
    } | of_session
    rows = [
        {"condition_id": fields, "condition": dict(labels).get(fields) or label(fields)}
        | {"fields": fields}
        | common
        | _numbers(values)
        | {"logs": [f"{week}{machine}{fields}"]}
        for fields, values in rates.items()
    ]
    return dataset.add(history, rows)


def fields(model="lenet5", **others):
    """The fields of a condition, as a key of `rates`."""
    return json.dumps(
        {"model": model, "dataset": "synthetic", "batch_per_device": 8} | others, sort_keys=True
    )


def label(text):
    """The label of the condition of some fields."""
    return " ".join(f"{name} {value}" for name, value in json.loads(text).items())


def _numbers(values):
    if not values:
        return {"n": 0, "failed": 3, "disturbed": 0}
    logs = [math.log(value) for value in values]
    centre = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - centre) ** 2 for x in logs) / max(1, len(logs) - 1))
    return {
        "n": len(values),
        "mean_log": centre,
        "scatter": spread if len(values) > 1 else None,
        "failed": 0,
        "disturbed": 0,
        **estimates.mean(values).columns("mean"),
    }
