"""Numbers that others published, and our own beside them.

From the files of published numbers (published_numbers.py) that a study names are made

- rows of the runs table, one for each point with a metric of runs: they enter every figure;
- the table of published numbers. Beside each stands the same number from our own runs. A number
  relative to another point (speedup, efficiency, ...) is computed again from the published numbers
  of both points, and what differs between the two is named.
"""

import math
from collections.abc import Iterable
from pathlib import Path

from dlbench.analysis import base_flags, estimates
from dlbench.analysis.published_numbers import ABOUT, ALLOWED, OF_RUNS, RELATIVE, read
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study.config import Study
from dlbench.study.runs import CONDITION
from dlbench.tables import cells, table_columns
from dlbench.tables.cells import PUBLISHED, Row

# Where one's own runs are expected to differ from what was published.
ELSEWHERE = ("site", "device_kind", "device_model", "framework_version")
SCORES = ("top1", "top5", "iou")  # shares: their means are arithmetic, all others geometric


def rows(study: Study) -> list[Row]:
    """Rows of the runs table, one for each point with a metric of runs.

    `study`: a Study; its `references` are mappings with the `path` of a file. Raises Error: a file
    of published numbers has a mistake.
    """
    return [
        _row(study, entry["path"], point)
        for entry in study.references
        for point in read(entry["path"]).values()
        if any(number.metric in OF_RUNS for number in point.numbers)
    ]


def _row(study, path, point):
    numbers = [number for number in point.numbers if number.metric in OF_RUNS]
    settings = point.settings
    devices, nodes = settings.get("devices"), settings.get("nodes")
    row = dict.fromkeys(table_columns.RUNS.names) | settings
    row |= {
        "run_id": f"published-{_folder(path)}-{point.name}",
        "study": study.name,
        "status": "ok",
        "timing_source": PUBLISHED,
        "quality": max((number.quality for number in numbers), key=ALLOWED["quality"].index),
        "devices_per_node": devices // nodes if devices and nodes else None,
        "global_batch": _product(settings.get("batch_per_device"), devices),
    }
    return row | {number.metric: number.value for number in numbers}


def _folder(path):
    return Path(path).parent.name


def _product(*factors):
    return math.prod(factors) if all(factors) else None


def numbers(study: Study, runs: Iterable[Row]) -> list[Row]:
    """Rows of the table of published numbers, in the order of the files.

    Args:
        study: a Study; its `references` are mappings with the `path` of a file and the names of
            settings in which own runs must `match` a point where it states them.
        runs: rows of the runs table, dictionaries; those that were published are left out.
    """
    own_runs = [r for r in runs if r["timing_source"] != PUBLISHED and r["status"] in SUCCEEDED]
    table = []
    for entry in study.references:
        points = read(entry["path"])
        for point in points.values():
            for number in point.numbers:
                base = points.get(number.base)
                table.append(
                    {
                        "study": study.name,
                        "reference": _folder(entry["path"]),
                        "point": point.name,
                        **point.settings,
                        **_published(point, number, base),
                        **_own(point, number, base, own_runs, entry["match"]),
                    }
                )
    return table


def _published(point, number, base):
    """A published number, and the same computed from the published numbers of its two points."""
    row = {name: getattr(number, name) or None for name in (*ABOUT, "note")}
    row |= {name: getattr(number, name) for name in ("value", "low", "high")}
    if base is None:
        return row
    row["base_mismatch"] = ", ".join(_mismatch(point, number, base))
    recomputed = _recomputed(point, number, base)
    if recomputed is not None:
        row["recomputed"] = recomputed
        if number.value is not None:
            row["agrees"] = rounds_to(recomputed, number.value, number.decimals)
    return row


def _mismatch(point, number, base):
    """The keys in which a point and its base differ though they should agree.

    A `difference_percent` is between points that differ in one setting, which is not counted.
    """
    differing = base_flags.base_mismatch(point.row(), base.row())
    return [] if number.metric == "difference_percent" and len(differing) == 1 else differing


def rounds_to(value: float, printed: float, decimals: int) -> bool:
    """Whether a value rounds to the printed one; halves round either way.

    >>> rounds_to(1998 / 604, 3.3, 1)
    True
    """
    return abs(value - printed) <= 0.5 * 10**-decimals * (1 + 1e-9)


def _recomputed(point, number, base):
    column = _compared(point)
    values = [p.value(column) for p in (point, base)]
    devices = [p.settings.get("devices") for p in (point, base)]
    if not all(values) or (number.metric == "efficiency" and not all(devices)):
        return None
    ratio = values[1] / values[0] if column == "duration_s" else values[0] / values[1]
    return _related(number.metric, ratio, devices)


def _compared(point):
    """The column that a relative number compares: duration_s if no throughput was published."""
    timed = point.value("images_per_second") is None and point.value("duration_s") is not None
    return "duration_s" if timed else "images_per_second"


def _related(metric, ratio, devices):
    """A relative metric from the ratio of two throughputs and the two numbers of devices."""
    times = devices[0] / devices[1] if all(devices) else None
    return RELATIVE[metric](ratio, times)


def _own(point, number, base, runs, match):
    """Columns with the same number from our own runs, or with why there is none."""
    metric = number.metric
    column = metric if base is None else _compared(point)
    is_score = column in SCORES
    sides = []
    for side in (point, *[base] * (base is not None)):
        required = {name: side.settings[name] for name in match if name in side.settings}
        sides.append([r for r in runs if all(r.get(name) == v for name, v in required.items())])
    values = [[r[column] for r in side if _is_usable(r.get(column), is_score)] for side in sides]
    if not all(values):
        return {}
    mixed = next((names for names in map(_mixed, sides) if names), None)
    if mixed:
        return {"own_note": f"several combinations match: they differ in {', '.join(mixed)}"}
    if base is None and is_score:
        estimate = estimates.arithmetic_mean(values[0])
        ends = (min(max(end, 0.0), 1.0) for end in (estimate.low, estimate.high))
        estimate = estimates.Estimate(estimate.value, *ends, estimate.runs)
    elif base is None:
        estimate = estimates.mean(values[0])
    else:
        if sides[0][0]["run_id"] == sides[1][0]["run_id"]:
            return {"own_note": "the same runs match the point and its base"}
        devices = [side[0]["devices"] for side in sides]
        ratio = estimates.ratio(*(values[::-1] if column == "duration_s" else values))
        value, *ends = (_related(metric, r, devices) for r in (ratio.value, ratio.low, ratio.high))
        estimate = estimates.Estimate(value, min(ends), max(ends), ratio.runs)
    differs = ", ".join(_differing(point, sides[0]))
    row = estimate.columns("own") | {"own_runs": estimate.runs, "own_differs": differs}
    if number.value and metric != "difference_percent":
        row["own_over_published"] = estimate.value / number.value
    return row


def _is_usable(value, is_score):
    """Whether a number enters a mean: a share, or else a positive number."""
    if cells.is_absent(value):
        return False
    return 0 <= value <= 1 if is_score else 0 < value < math.inf


def _mixed(runs):
    """The fields in which runs differ though they are not repeats of one condition."""
    names = [*CONDITION, "site", "timing_source"]
    return [name for name in names if len({_plain(row.get(name)) for row in runs}) > 1]


def _plain(value):
    return None if cells.is_absent(value) else value


def _differing(point, runs):
    """The settings of a point in which own runs differ from it."""
    stated = {name: v for name, v in point.settings.items() if name not in ELSEWHERE}
    return [name for name, value in stated.items() if any(r.get(name) != value for r in runs)]
