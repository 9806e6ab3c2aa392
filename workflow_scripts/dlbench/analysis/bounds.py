"""Bounds: what a campaign must measure, from a YAML file, and whether it does.

A file lists, for combinations, the metrics with their expected values and bounds. As in ReFrame,
lower and upper say by what share of the value a mean may differ (-0.05: up to 5 % below it), or
null for no bound:

    references:
      - match: {model: lenet5, dataset: digits, batch_per_device: 32}
        images_per_second: {value: 13900, lower: -0.05, upper: null, unit: items/s}

`match` has fields of a run, and facts such as site and device_model, that choose one combination.
The geometric mean over its runs is compared; in a contract, the 95 % interval of this mean: it
passes if the whole interval does, fails if nothing of it does, and is undecided otherwise.

Published numbers (published_numbers.py) are bounds, too: every combination that has the settings of
a point is held against it, less a tolerance. NVIDIA's is 5 %: an Exemplar Cloud attains 95 % of the
baseline of each workload (NVIDIA/dgxc-benchmarking, Exemplar_validation.md, 30 July 2026).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from dlbench import Error
from dlbench.analysis import estimates, judge, published_numbers
from dlbench.analysis.campaigns import FACTS, JOINABLE, Campaign, find_metric
from dlbench.analysis.compare_runs import Side, grouped
from dlbench.common.files import atomic_write
from dlbench.common.phrases import did_you_mean
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study import parameters, yaml_files
from dlbench.study.runs import DEFAULTS
from dlbench.study.wording import ALWAYS, number, short_labels
from dlbench.tables.metrics import METRICS

PASS, FAIL, UNDECIDED, TOO_FEW = "pass", "FAIL", "undecided", "too little data"
KEYS = ("value", "lower", "upper", "unit")
ROUNDING = 1e-9
MATCHED = (*JOINABLE, *FACTS, "devices")
# Settings of a point of published numbers that a run must have; others are of its site and day.
STATED = ("model", "item_shape", "precision", "mode", "device_model", "devices", "batch_per_device")
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Bound:
    """The expected value of one metric of one combination, with bounds around it.

    Attributes:
        where: its place in the file, for messages.
        match: fields and facts that choose the combination.
        lower, upper: shares of `value`, -0.05 and 0.1 say; None for no bound.
        unit: that the file states.
    """

    where: str
    match: dict[str, Any]
    metric: str
    value: float
    lower: float | None
    upper: float | None
    unit: str = ""

    @property
    def limits(self) -> tuple[float, float]:
        """(least, most) that pass, infinite if there is no bound; rounding does not fail."""
        return (
            -math.inf if self.lower is None else self.value * (1 + self.lower) * (1 - ROUNDING),
            math.inf if self.upper is None else self.value * (1 + self.upper) * (1 + ROUNDING),
        )


@dataclass(frozen=True)
class Outcome:
    """A Bound beside what was measured.

    Attributes:
        measured: the geometric mean over runs; None if no run finished.
        failed: {status: number of runs} of runs that did not finish.
        disturbed: runs that other processes on the machine disturbed.
        by_interval: whether the interval of the mean decides, instead of the mean.
    """

    bound: Bound
    measured: estimates.Estimate | None
    failed: dict[str, int]
    disturbed: int = 0
    by_interval: bool = False

    @property
    def verdict(self) -> str:
        """PASS, FAIL or, by interval, UNDECIDED or TOO_FEW."""
        least, most = self.bound.limits
        if self.measured is None:
            return FAIL
        if not self.by_interval:
            return PASS if least <= self.measured.value <= most else FAIL
        if self.measured.runs < judge.MIN_RUNS:
            return TOO_FEW
        low, high = self.measured.low, self.measured.high
        if high < least or low > most:
            return FAIL
        return PASS if least <= low and high <= most else UNDECIDED

    @property
    def passed(self) -> bool:
        return self.verdict == PASS

    @property
    def deviation(self) -> float | None:
        """Of the measured mean, as a share of the expected value."""
        return None if self.measured is None else self.measured.value / self.bound.value - 1

    @property
    def message(self) -> str:
        """By how much it passes or fails."""
        if self.measured is None:
            return f"no run finished: {', '.join(f'{n} {s}' for s, n in self.failed.items())}"
        mean = self.measured.value
        least, most = self.bound.limits
        message = f"{100 * (mean / self.bound.value - 1):+.1f} %"
        if mean < least:
            message += f", {100 * (1 - mean / least):.1f} % below the lower bound"
        if self.verdict == TOO_FEW:
            message += f"; fewer than {judge.MIN_RUNS} runs, so no interval that decides"
        elif self.by_interval:
            ends = (
                100 * (end / self.bound.value - 1)
                for end in (self.measured.low, self.measured.high)
            )
            message += "; 95 % interval {:+.1f} to {:+.1f} %".format(*ends)
        if mean > most:
            message += f", {100 * (mean / most - 1):.1f} % above the upper bound"
        if self.disturbed:
            runs = f"{self.disturbed} of {self.measured.runs} runs"
            message += f"; other processes on the machine disturbed {runs}"
        return message


@dataclass(frozen=True)
class Bounded:
    """What bounds may be about: fields by which they match, metrics, and their units."""

    matched: tuple[str, ...] = MATCHED
    metrics: tuple[str, ...] = tuple(sorted(METRICS))
    unit_of: Callable[[str], str | None] = lambda name: find_metric(name).unit

    @classmethod
    def of(cls, campaign: Campaign) -> "Bounded":
        """By the runs of a campaign, with the metrics that they name."""
        named = {row["name"] for run in campaign.runs for row in run.metrics}
        return cls(
            metrics=tuple(sorted({*METRICS, *named})),
            unit_of=lambda name: find_metric(name, campaign).unit,
        )


RUNS = Bounded()


def read(path: str | Path, bounded_by: Callable[[dict], Bounded] = lambda _: RUNS) -> list[Bound]:
    """The Bounds in a file.

    `bounded_by`: match of an entry -> what it is about. Raises Error: the file has mistakes; the
    message has one a line.
    """
    content = yaml_files.read(path)
    entries = content.get("references") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or set(content) != {"references"}:
        raise Error(f"{path}: expected one key, references, with a list that is not empty")

    def of_entry(item):
        index, entry = item
        return list(_read_entry(entry, f"{path}: references[{index}]", bounded_by))

    return [bound for bounds in made_of_all(of_entry, enumerate(entries)) for bound in bounds]


def made_of_all(make: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What a function makes of each item. Raises Error: the messages of all that it refuses."""
    made, mistakes = [], []
    for item in items:
        try:
            made.append(make(item))
        except Error as error:
            mistakes.append(str(error))
    if mistakes:
        raise Error("\n".join(mistakes))
    return made


def _read_entry(entry, where, bounded_by):
    if not isinstance(entry, dict) or not isinstance(entry.get("match"), dict):
        raise Error(f"{where}: expected match with the fields of a run, and metrics")
    bounded = bounded_by(entry["match"])
    for name in entry["match"]:
        if name not in bounded.matched and not name.startswith(parameters.PREFIX):
            raise Error(
                f"{where}.match: no field {name!r}{did_you_mean(name, bounded.matched)}; "
                f"there are: {', '.join(bounded.matched)}"
            )
    metrics = {name: value for name, value in entry.items() if name != "match"}
    if not metrics:
        raise Error(f"{where}: no metric given; there are: {', '.join(bounded.metrics)}")
    for name, value in metrics.items():
        yield _read_bound(entry["match"], name, value, f"{where}.{name}", bounded)


def _read_bound(match, name, entry, where, bounded):
    try:
        unit = bounded.unit_of(name)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    if not isinstance(entry, dict) or set(entry) != set(KEYS):
        keys = sorted(map(str, entry)) if isinstance(entry, dict) else entry
        raise Error(f"{where}: expected the keys {', '.join(KEYS)}, found {keys}")
    if unit is not None and entry["unit"] != unit:
        raise Error(f"{where}.unit: {name} is in {unit}, found {entry['unit']!r}")
    value = _number(entry["value"], f"{where}.value")
    lower, upper = (
        None if entry[key] is None else _number(entry[key], f"{where}.{key}") for key in KEYS[1:3]
    )
    if value <= 0:
        raise Error(f"{where}.value: expected a number above 0, found {value:g}")
    if lower is not None and not -1 < lower <= 0:
        raise Error(f"{where}.lower: expected a share from -1 to 0, as -0.05, found {lower:g}")
    if upper is not None and upper < 0:
        raise Error(f"{where}.upper: expected a share of at least 0, as 0.1, found {upper:g}")
    return Bound(where, match, name, value, lower, upper, str(entry["unit"]))


def _number(value, where):
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        hint = yaml_files.hint(value, "number")
        raise Error(f"{where}: expected a number, found {value!r}{hint}")
    return float(value)


def check(bounds: list[Bound], campaign: Campaign, by_interval: bool = False) -> list[Outcome]:
    """The Outcome of each Bound.

    `by_interval`: whether the intervals of means decide, instead of the means. Raises Error: a
    bound matches no run, or several combinations, or runs without its metric.
    """
    return made_of_all(lambda bound: _outcome(bound, campaign, by_interval), bounds)


def check_published(
    path: str | Path, campaign: Campaign, tolerance: float, by_interval: bool = False
) -> list[Outcome]:
    """The Outcome of each combination that has the settings of a point of published numbers.

    `path`: a CSV file as studies have. `tolerance`: the share by which a mean may be below a
    number. Raises Error: the file has mistakes, or no run has the settings of a point.
    """
    bounds = [
        Bound(
            f"{path}, line {number.line}",
            {name: value for name, value in point.settings.items() if name in STATED},
            number.metric,
            number.value,
            -tolerance,
            None,
            number.unit,
        )
        for point in published_numbers.read(path).values()
        for number in point.numbers
        if number.metric in METRICS and number.value
    ]
    known, outcomes = [name for name in JOINABLE if campaign.knows(name)], []
    for bound in bounds:
        groups = grouped(_matching(bound, campaign), known, campaign.path)
        varied = _varied(groups, known)
        for key, runs in groups.items():
            own = {n: v for n, v in zip(known, key, strict=True) if n in varied}
            outcomes.append(_judged(replace(bound, match=bound.match | own), runs, by_interval))
    if not outcomes:
        near = max(bounds, key=lambda bound: max(_agreeing(bound, run) for run in campaign.runs))
        raise Error(f"{path}: no run has the settings of a point; {_nearest(near, campaign.runs)}")
    return outcomes


def _matching(bound, campaign):
    return [run for run in campaign.runs if _agreeing(bound, run) == len(bound.match)]


def _agreeing(bound, run):
    return sum(_matches(run, *item) for item in bound.match.items())


def _outcome(bound, campaign, by_interval):
    runs = _matching(bound, campaign)
    if not runs:
        raise Error(f"{bound.where}: matches no run; {_nearest(bound, campaign.runs)}")
    known = [name for name in JOINABLE if any(name in run.fields for run in runs)]
    groups = grouped(runs, known, campaign.path)
    if len(groups) > 1:
        raise Error(
            f"{bound.where}: matches {len(groups)} combinations; say under match which, "
            f"they differ in {', '.join(_varied(groups, known))}"
        )
    return _judged(bound, runs, by_interval)


def _judged(bound, runs, by_interval):
    side = Side.of_runs(runs, bound.metric)
    if not side.values and any(run.finished for run in runs):
        raise Error(f"{bound.where}: no run that it matches has a {bound.metric}")
    return Outcome(bound, side.mean, side.failed, side.disturbed, by_interval)


def _matches(run, name, wanted):
    value = _value(run, name)
    if name == "device_model":  # "H100" is "NVIDIA H100 80GB HBM3"
        return set(str(wanted).split()) <= set(str(value).split())
    return is_equal(value, wanted)


def is_equal(value: Any, wanted: Any) -> bool:
    """Whether a value is the one in a file of bounds, where 1 is not True, as it is in Python."""
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _value(run, name):
    """A field, a fact, or a parameter of another program (`parameters.NAME`)."""
    if name.startswith(parameters.PREFIX):
        return parameters.column_values(run.fields.get(parameters.FIELD)).get(name)
    return run.fields.get(name, run.facts.get(name, run.numbers.get(name)))


def _nearest(bound, runs):
    """The run that fits best, and what differs in it."""
    run = max(runs, key=lambda run: _agreeing(bound, run))
    differing = (
        f"{name} {_value(run, name)!s} instead of {wanted!s}"
        for name, wanted in bound.match.items()
        if not _matches(run, name, wanted)
    )
    return f"the nearest, {run.run_id}, has {', '.join(differing)}"


def write(path: str | Path, campaign: Campaign, metric_name: str, tolerance: float) -> int:
    """Write a file of bounds that this campaign passes: means over its runs.

    `tolerance`: lower and upper bound, as a share of each mean. Returns the number of bounds in the
    file. Raises Error: no run has the metric, or the tolerance is not between 0 and 1.
    """
    metric = find_metric(metric_name, campaign)
    if not 0 < tolerance < 1:
        raise Error(f"tolerance: expected a share between 0 and 1, as 0.05, found {tolerance:g}")
    names = [name for name in JOINABLE if campaign.knows(name)]
    entries = []
    groups = grouped(campaign.finished(), names, campaign.path)
    varied = _varied(groups, names)
    for key, runs in groups.items():
        if mean := Side.of_runs(runs, metric.name).mean:
            match = {
                name: value
                for name, value in zip(names, key, strict=True)
                if name in (*ALWAYS, *varied) or value != DEFAULTS.get(name)
            }
            bound = (float(f"{mean.value:.6g}"), -tolerance, tolerance, metric.unit)
            entries.append({"match": match, metric.name: dict(zip(KEYS, bound, strict=True))})
    if not entries:
        raise Error(f"{campaign.path}: no run has a {metric.name}")
    head = (
        f"# Means over the runs of {Path(campaign.path).name!r}. `lower: -0.05` allows a mean of\n"
        "# 5 % below its value, `upper: 0.1` one of 10 % above it, null any.\n"
    )
    with atomic_write(path) as part:
        part.write_text(head + yaml.safe_dump({"references": entries}, sort_keys=False), "utf-8")
    return len(entries)


def _varied(groups, names):
    return [
        name
        for name, values in zip(names, zip(*groups, strict=True), strict=False)
        if len(set(map(str, values))) > 1
    ]


def page(outcomes: list[Outcome], campaign: Campaign) -> Page:
    """The Page of a campaign held against bounds; those that failed come first."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    others = ", ".join(f"{counts[name]} {name}" for name in (UNDECIDED, TOO_FEW) if counts[name])
    failed = len(outcomes) - counts[PASS]
    outcomes = sorted(outcomes, key=lambda outcome: (outcome.passed, _failure_order(outcome)))
    matched = [outcome.bound.match for outcome in outcomes]
    keys = dict.fromkeys(name for match in matched for name in match)
    names = short_labels([{name: match.get(name) for name in keys} for match in matched])
    rows = [_row(*both) for both in zip(names, outcomes, strict=True)]
    headings = ("combination", "metric", "measured", "expected", "from / to", "outcome")
    return Page(
        title="Check against bounds",
        lead=f"{counts[PASS]} of {len(outcomes)} bounds passed, {counts[FAIL]} failed"
        f"{', ' if others else ''}{others}.",
        sections=(
            Section("Campaign", (f"{campaign.path}: {campaign.counted}",)),
            Section("Bounds", (), Table(headings, rows, right=(2, 3, 4))),
        ),
        kind="bad" if failed else "good",
    )


def _failure_order(outcome):
    return -math.inf if outcome.deviation is None else -abs(outcome.deviation)


def _row(name, outcome):
    bound, mean = outcome.bound, outcome.measured
    shares = (
        "none" if share is None else f"{100 * share:+g} %" for share in (bound.lower, bound.upper)
    )
    kind = {PASS: "good", FAIL: "bad"}.get(outcome.verdict, "open")
    return [
        name,
        bound.metric,
        f"{number(mean.value)} ({mean.runs})" if mean else "-",
        f"{number(bound.value)} {bound.unit}",
        " / ".join(shares),
        Cell(outcome.verdict, kind, outcome.message),
    ]


def plain(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Outcomes as plain values, for JSON."""
    of_bound = ("match", "metric", "value", "lower", "upper")
    of_outcome = ("failed", "deviation", "verdict", "passed")
    return [
        {
            **{name: getattr(outcome.bound, name) for name in of_bound},
            "measured": outcome.measured.value if outcome.measured else None,
            "runs": outcome.measured.runs if outcome.measured else 0,
            **{name: getattr(outcome, name) for name in of_outcome},
        }
        for outcome in outcomes
    ]
