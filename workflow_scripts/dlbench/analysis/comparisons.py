"""Comparisons of conditions, made from runs: as `compare` in the config requests them, and others.

- A condition is a value of the compared field, with its companions (a runtime's options).
- Runs equal in all else but their repeat are one group; in each, every condition is
  compared with the base of that group.
- Imported runs are compared with those of their own site, device, software, kind of log and
  shape of items.
- Sides of different sessions are corrected for the drift between these, where it is known
  (dlbench/analysis/drift.py).
- Throughput is compared where an entry names no other metric. All comparisons of throughput are
  one family: their p are adjusted for one another. Those of other metrics are a family of their
  own, so that they change no verdict on throughput.

What a batch size, a strategy, a precision ... changes, where runs are alike in all else, the config
does not ask for:

- All of these comparisons are one family, corrected (Holm) for how many there are, whichever of
  them are shown.
- Real items are compared with synthetic ones of their shape, and of runs as long as theirs.
- A batch size is compared from the smallest to the largest that completed; other fields, each
  value with the field's default, or with the first value where that was not run.
"""

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlbench.analysis import base_flags, estimates, judge, measures
from dlbench.analysis.drift import Drift, Sides
from dlbench.common import plugins
from dlbench.common.run_fields import DECLARED, SOFTWARE, tagged
from dlbench.log.event_fields import SUCCEEDED
from dlbench.log.metrics import NEITHER
from dlbench.records import sessions
from dlbench.study.config import COMPANIONS, Study
from dlbench.study.runs import CONDITION, DEFAULTS, FIELDS, SAME_SPEED, Run, shared_values
from dlbench.tables.cells import MEASURED, PUBLISHED, Row, is_absent, run_name
from dlbench.tables.metrics import METRICS, PREFIX, THROUGHPUT, Metric


def run_length(row: Row) -> tuple[Any, ...]:
    """How long a run was to be: (epochs, steps), of which one is None."""
    return tuple(None if is_absent(v := row.get(name)) else v for name in ("epochs", "steps"))


def of_length(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows of runs as long as a run; if there is none, of those as long as the longest.

    >>> of_length({"epochs": 5}, [{"steps": 9, "run_id": "short"}, {"epochs": 5, "run_id": "same"}])
    [{'epochs': 5, 'run_id': 'same'}]
    """
    as_long = [other for other in rows if run_length(other) == run_length(row)]
    if as_long or not len(rows):
        return as_long
    measured = [other.get("steps_measured") for other in rows]
    steps: list[Any] = [0 if is_absent(count) else count for count in measured]
    longest = run_length(rows[steps.index(max(steps))])
    return [other for other in rows if run_length(other) == longest]


METRIC = "metric"  # the key of an entry of `compare`; without it, throughput
NO_RUNS = "no runs"  # of the condition or of the base that finished
NO_BASE = "no base"  # the study has no run of it
NO_RATIO = "no ratio"  # a value is 0 or less
UNITS_DIFFER = "units differ"  # or the better direction, between runs of the study
TOKENS = "tokens_per_second"
START_UP = ("start", "import", "first_batch")  # times, of columns that end in _s


def rows(
    study: Study,
    runs: Sequence[Row],
    repeated: Sequence[Row] = (),
    named: measures.Named = measures.NONE,
) -> list[Row]:
    """Rows of the table of comparisons, in the order of the config and of the conditions.

    `runs`: rows of the runs table, with the metrics that they name, which are `named`; `repeated`:
    such rows of sentinels.
    """
    drift_of = functools.cache(lambda m: Drift(runs, repeated, study.equivalence_margin, m))
    table = []
    tested: dict[bool, list[tuple[Row, Metric, estimates.Difference]]] = {}  # by family
    for pair in pairs(study, runs, named):
        metric, row = pair.metric, _row(study, pair)
        table.append(row)
        if reason := _not_compared(pair, named):
            row |= reason
            continue
        for side, its_runs in (("a", pair.a), ("b", pair.b or [])):
            row[f"value_{side}"] = _over(_geometric_mean, its_runs, metric.column)
        if not (pair.a and pair.b):
            row["verdict"] = NO_BASE if pair.b is None else NO_RUNS
            continue
        sides = drift_of(metric).compare(pair.a, pair.b)
        row |= sides.columns
        row["base_flags"] = ", ".join([*_differing(pair.a, pair.b, pair.fields), *sides.flags])
        tested.setdefault(metric == THROUGHPUT, []).append((row, metric, sides.difference))
    for family in tested.values():
        of_rows, metrics, differences = zip(*family, strict=True)
        judged = judge.judge(differences, study.equivalence_margin, metrics)
        for row, one in zip(of_rows, judged, strict=True):
            row |= one.columns | {"verdict": one.verdict}
    return table


def _not_compared(pair, named):
    """Verdict and reason of a pair whose metric cannot be compared; None if it can."""
    metric = pair.metric
    if metric.name in named.unlike:
        return {"verdict": UNITS_DIFFER, "base_flags": named.unlike[metric.name]}
    if metric.name not in {**named.metrics, **METRICS}:
        known = ", ".join(named.metrics) or "none"
        return {"verdict": NO_RUNS, "base_flags": f"no run has it; metrics of runs: {known}"}
    if bad := measures.not_positive([*pair.a, *(pair.b or [])], metric):
        value = f"{bad[metric.column]:g} in {bad['run_id']}"
        return {"verdict": NO_RATIO, "base_flags": f"{metric.name} is {value}"}
    return None


class Pair(NamedTuple):
    """A condition and its base, as an entry of `compare` asks for them.

    Attributes:
        fields: the compared field and its companions.
        labels: {"condition": its name, "base": the name of its base}.
        settings_of: name of the first repeat of the condition.
        a, b: rows of the runs of the condition and of its base that completed; b is None if the
            study has no run of a base.
        metric: what is compared.
    """

    entry: dict[str, Any]
    fields: tuple[str, ...]
    labels: dict[str, str]
    settings_of: str
    a: list[Row]
    b: list[Row] | None
    metric: Metric


def pairs(
    study: Study, runs: Sequence[Row], named: measures.Named = measures.NONE
) -> Iterator[Pair]:
    """Yield each condition that the config compares, with its base.

    `runs`: rows of the runs table, with the metrics that programs name, which are `named`.
    """
    for entry in study.compare:
        name = entry.get(METRIC, THROUGHPUT.name)
        # One that no run names, or not all alike, has no values.
        metric = {**named.metrics, **METRICS}.get(name) or Metric.named(name, "", NEITHER)
        yield from _pairs(study, entry, runs, metric)


def _pairs(study, entry, runs, metric):
    finished = {
        row["run_id"]: row for row in runs if row["status"] in SUCCEEDED and _has(row, metric)
    }
    # Sentinels are among the runs if they count as repeats.
    planned = study.without_probes
    own_runs = [*planned, *sessions.sentinels_of(planned, finished).values()]
    own_ids = {run.id for run in own_runs}  # some of them trained by other programs
    imported = [
        _Imported(row)
        for run_id, row in finished.items()
        if run_id not in own_ids and row.get("timing_source") not in (None, MEASURED, PUBLISHED)
    ]
    fields = (entry["field"], *COMPANIONS.get(entry["field"], ()))
    imported_groups = _groups(imported, fields, base_flags.FACTS)
    for conditions in [*_groups(own_runs, fields), *imported_groups]:
        conditions = {
            name: (repeats[0], [finished[r.id] for r in repeats if r.id in finished])
            for name, repeats in conditions
        }
        base = next(
            (n for n, (run, _) in conditions.items() if run.value(entry["field"]) == entry["base"]),
            None,
        )
        if base is None and isinstance(next(iter(conditions.values()))[0], _Imported):
            continue  # logs that were imported for another purpose
        b = conditions.pop(base)[1] if base else None
        for name, (run, a) in conditions.items():
            labels = {"condition": name, "base": base or str(entry["base"])}
            row = {"run_id": run.id} if isinstance(run, Run) else run.row
            yield Pair(entry, fields, labels, run_name(row, study.name), a, b, metric)


def _has(row, metric):
    """Whether a row has a value of a metric; 0 in a column of the runs table is none."""
    value = row.get(metric.column)
    return not is_absent(value) and bool(value or metric.column.startswith(PREFIX))


class _Imported:
    """A row of the runs table with the attributes of a Run; None if its log does not state one."""

    value = Run.value

    def __init__(self, row):
        self.__dict__ |= {n: row.get(n) for n in (*FIELDS, *base_flags.FACTS)}
        self.row, self.id, self.combination = row, row["run_id"], self

    @property
    def _key(self):
        return tuple(getattr(self, name) for name in (*CONDITION, *base_flags.FACTS))

    def __eq__(self, other):
        return self._key == other._key

    def __hash__(self):
        return hash(self._key)


def _groups(runs, fields, facts=()):
    """Runs equal in all but `fields`: for each group [(name of a condition, repeats), ...].

    Base and conditions are in the order of their values.
    """
    shared = [name for name in (*CONDITION, *facts) if name not in fields]
    groups = {}
    for run in sorted(runs, key=lambda run: _order(run, (*shared, *fields, "repeat"))):
        group = shared_values(run, shared, fields)
        groups.setdefault(group, {}).setdefault(run.combination, []).append(run)
    return [_named(group, fields) for group in groups.values()]


def _order(run, names):
    """Numbers and names in their order, None before them."""
    values = [run.value(name) for name in names]
    return [(value is not None, isinstance(value, str), value) for value in values]


def _named(conditions, fields):
    """[(name, repeats), ...]: names have options, other companions only where they must."""
    named = [name for name in fields if name == fields[0] or name.endswith("_options")]
    names = [_text(run, named) for run in conditions]
    if len(set(names)) < len(names):
        names = [_text(run, fields) for run in conditions]
    return list(zip(names, conditions.values(), strict=True))


def _text(run, fields):
    """The name of a condition, as in `udocker execmode=S1`."""
    return (
        " ".join(str(v) for name in fields if (v := run.value(name)) not in ("", None))
        or "defaults"
    )


def _row(study, pair):
    """The columns of a comparison that need no test."""
    a, b = pair.a, pair.b or []
    return {
        "study": study.name,
        "field": pair.entry["field"],
        **pair.labels,
        "settings_of": pair.settings_of,
        "metric": pair.metric.name,
        "unit": pair.metric.unit,
        "better": pair.metric.direction,
        "margin": study.equivalence_margin,
        "n_a": len(a),
        "n_b": len(b),
        "base_flags": "",
        **_times(a, "a"),
        **_times(b, "b"),
    }


def _times(rows, side):
    """Tokens a second and times of one side, a or b, by the rows of its runs."""
    return {
        f"{TOKENS}_{side}": _over(_geometric_mean, rows, TOKENS),
        f"step_time_sd_{side}_s": _over(np.mean, rows, "step_time_sd_s"),
        **{f"{name}_{side}_s": _over(np.median, rows, f"{name}_s") for name in START_UP},
    }


def _differing(a, b, fields):
    """The keys in which runs of both sides differ though they should agree."""
    rows = [*a, *b] if a and b else []
    differing = {key for row in rows for key in base_flags.base_mismatch(row, rows[0])}
    if "dataset" in fields:
        differing.discard("data_sha256")
    if not set(tagged(SOFTWARE)).isdisjoint(fields):
        differing.discard("software_sha256")
    if "power_limit_w" in fields:
        differing.discard("hardware_sha256")  # which has the power limit of GPUs in it
    owner = next((name for name in ("framework", "environment") if name in fields), None)
    versions = {(row.get(owner), row.get("framework_version")) for row in rows}
    if owner and len(versions) == len({value for value, _ in versions}):
        differing.discard("framework_version")  # each has one version, which is compared with it
    keys = (*base_flags.BASE_KEYS, base_flags.NEIGHBOURS)
    return [key for key in keys if key in differing and key not in fields]


def _over(statistic, runs, name):
    """A statistic over the runs that have the number; None if none has."""
    values = [run[name] for run in runs if not is_absent(run.get(name))]
    return float(statistic(values)) if values else None


def _geometric_mean(values):
    return estimates.mean(values).value


# Fields of a run that are compared, and their figures.
FIGURES = {name: field.contrast for name, field in DECLARED.items() if field.contrast}
SYNTHETIC = "synthetic"
# Runs of a condition, those of its base, and how they compare.
Contrast = tuple[list[Row], list[Row], judge.Judged, Sides]


def is_synthetic(dataset: str) -> bool:
    """Whether a dataset is synthetic; datasets of other programs are taken for real ones."""
    return (
        plugins.is_known("datasets", dataset)
        and plugins.constants("datasets", dataset)["SYNTHETIC"]
    )


def by_field(
    runs: Sequence[Row], left_out: Collection[str], margin: float, sentinels: Sequence[Row] = ()
) -> dict[str, list[Contrast]]:
    """The Contrasts of each field, their p adjusted for all of them.

    `runs`, `sentinels`: rows of the runs table; `left_out`: fields that the config has compared.
    """
    drift = Drift(runs, sentinels, margin)
    done = [row for row in runs if row["status"] in SUCCEEDED and _has(row, THROUGHPUT)]
    pairs = [(n, *pair) for n in FIGURES if n not in left_out for pair in _pairs_of_field(n, done)]
    sides = [drift.compare(a, b) for _, a, b in pairs]
    judged = judge.judge([one.difference for one in sides], margin)
    contrasts: dict[str, list[Contrast]] = {}
    for (name, a, b), compared, sides_of_pair in zip(pairs, judged, sides, strict=True):
        contrasts.setdefault(name, []).append((a, b, compared, sides_of_pair))
    return contrasts


def _pairs_of_field(name, rows):
    """Yield (runs of a condition, runs of its base), which are equal in all but a field."""
    free = {name, *COMPANIONS.get(name, ())}
    free |= set(CONDITION) - set(SAME_SPEED) if name == "dataset" else set()
    shared = [field for field in (*CONDITION, *base_flags.FACTS) if field not in free]
    groups = {}
    for row in rows:
        value = row.get(name)
        if value is None or (name == "dataset" and not row.get("item_shape")):
            continue  # a field that is not stated makes no condition
        key = tuple(row.get(field) for field in shared)
        groups.setdefault(key, {}).setdefault(value, []).append(row)
    for conditions in groups.values():
        if name == "dataset":
            yield from _pairs_of_data(conditions)
            continue
        base = _base(name, conditions)
        others = [value for value in conditions if value != base]
        # A batch size gains along its axis: from the smallest to the largest.
        others = [max(others)] if name == "batch_per_device" and others else others
        yield from ((conditions[value], conditions[base]) for value in others)


def _pairs_of_data(conditions):
    """Each dataset, and each length of its runs, with synthetic items."""
    synthetic = conditions.pop(SYNTHETIC, [])
    for rows in conditions.values() if synthetic else ():
        by_length = {}
        for row in rows:
            by_length.setdefault(run_length(row), []).append(row)
        for same_length in by_length.values():
            yield same_length, of_length(same_length[0], synthetic)


def _base(name, conditions):
    if name == "batch_per_device":
        return min(conditions)
    default = DEFAULTS.get(name)
    return default if default in conditions else min(conditions)
