"""Metrics: numbers of a run that a program names itself, as a bandwidth or a score.

A metric is a mapping with `name`, `value`, `unit` and `better`. A run has one value of each, the
program's summary; it is an event `metric` of the log.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dlbench import Error

HIGHER, LOWER, NEITHER = "higher", "lower", ""
BETTER = (HIGHER, LOWER, NEITHER)  # which values are better; NEITHER: they only differ
KEYS = ("name", "value", "unit", "better")
MOST = 10.0**30  # of an absolute value, so that sums of squares are finite
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
NAME_RULE = "at most 80 letters, digits and _, no digit first"


def is_name(value: Any) -> bool:
    """Whether a value can be the name of a metric."""
    return type(value) is str and NAME.fullmatch(value) is not None


def value_of(summary: Mapping[str, Any], name: str) -> float | None:
    """A number in the summary of a record: a column of the runs table, or a metric; or None."""
    if summary.get(name) is not None:
        return summary[name]
    return next((one["value"] for one in summary.get("metrics", ()) if one["name"] == name), None)


def check(metrics: Iterable[Mapping[str, Any]]) -> None:
    """Check the metrics of one run.

    Raises Error: one has a wrong name, no finite value, a unit that is no text, an unknown
    direction, or comes twice.
    """
    seen: set[str] = set()
    for metric in metrics:
        name = metric.get("name", "")
        if not is_name(name):
            raise Error(f"metric {name!r}: expected a name of {NAME_RULE}")
        if set(metric) != set(KEYS):
            raise Error(f"metric {name}: expected {', '.join(KEYS)}, found {', '.join(metric)}")
        value, unit, better = metric["value"], metric["unit"], metric["better"]
        if type(value) not in (int, float) or not (math.isfinite(value) and abs(value) <= MOST):
            raise Error(
                f"metric {name}: expected a finite number of at most {MOST:.0e}, found {value!r}; "
                "did the program divide by zero, or its pattern match other text?"
            )
        if type(unit) is not str:
            raise Error(f"metric {name}: expected its unit as text, found {unit!r}")
        if better not in BETTER:
            raise Error(
                f'metric {name}: expected better as "higher", "lower" or "", not {better!r}'
            )
        if name in seen:
            raise Error(
                f"metric {name} twice in one run: expected one value, the program's summary; give "
                "numbers of other kinds names of their own"
            )
        seen.add(name)
