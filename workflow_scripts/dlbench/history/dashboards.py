"""A judged session for dashboards: Prometheus' text format, and the metric format of Bencher.

- Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/): gauges, for a file that
  the textfile collector of its node exporter reads.
- Bencher (https://bencher.dev/docs/reference/bencher-metric-format): a JSON object by benchmark and
  measure, for `bencher run --adapter json --file`.
"""

import math
from collections import Counter
from collections.abc import Mapping
from datetime import timezone
from typing import Any

from dlbench.history.gate import Gate, Judged

PREFIX = "dlbench_"
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def prometheus(judged: Gate) -> str:
    """The session as text for Prometheus; what is not known has no line."""
    common = {"site": judged.site, "machine_id": judged.machine_id, "study": judged.study or ""}
    conditions = [(common | _labels(one), one) for one in judged.judged]
    failing = {id(one) for one in judged.failures}
    started = judged.started_at.replace(tzinfo=timezone.utc).timestamp()
    lines = [
        *_family(
            "session_start_timestamp_seconds",
            "Start of the newest session.",
            [(common | {"session": judged.session}, started)],
        ),
        *_family(
            "gate_passed", "1 if no condition fails the gate.", [(common, float(judged.passed))]
        ),
        *_family(
            "value",
            "Geometric mean of a metric over the session's runs of a condition.",
            [(labels, _value(one)) for labels, one in conditions],
        ),
        *_family(
            "expected",
            "Its level in earlier sessions.",
            [(labels, _expected(one)) for labels, one in conditions],
        ),
        *_family(
            "fails",
            "1 if the condition fails the gate.",
            [(labels, float(id(one) in failing)) for labels, one in conditions],
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def bencher(judged: Gate) -> dict[str, dict[str, dict[str, float]]]:
    """{condition: {metric: {"value": geometric mean over the session's runs}}}.

    Conditions without a value are left out; of several with one label each has its id behind it.
    The machine is Bencher's testbed, which its command line names.
    """
    ids = {(one.condition, one.condition_id) for one in judged.judged}
    labels = Counter(condition for condition, _ in ids)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in judged.judged:
        value = _value(one)
        if value is not None:
            same = f" {one.condition_id}" if labels[one.condition] > 1 else ""
            found.setdefault(f"{one.condition}{same}", {})[one.metric] = {"value": value}
    return found


def _labels(one: Judged) -> dict[str, str]:
    names = ("condition", "condition_id", "metric", "unit")
    return {name: getattr(one, name) for name in names}


def _value(one):
    return None if one.mean_log is None else math.exp(one.mean_log)


def _expected(one):
    return None if one.prediction is None else math.exp(one.prediction.level)


def _family(
    name: str, meaning: str, samples: list[tuple[Mapping[str, Any], float | None]]
) -> list[str]:
    """The lines of a gauge; none if nothing of it is known."""
    lines = [
        f"{PREFIX}{name}{{{_text(labels)}}} {value!r}"
        for labels, value in samples
        if value is not None
    ]
    return (
        [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} gauge", *lines]
        if lines
        else []
    )


def _text(labels):
    return ",".join(f'{name}="{str(value).translate(ESCAPES)}"' for name, value in labels.items())
