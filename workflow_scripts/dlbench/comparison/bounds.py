"""References: what a campaign must measure, from a file, and whether it does.

A file lists, for combinations, the metrics with their bounds; lower and upper are shares of the
value, as in ReFrame, null for none:

    references:
      - match: {model: lenet5, dataset: digits, batch_per_device: 32}
        images_per_second: {value: 13900, lower: -0.05, upper: null, unit: items/s}

`match` takes the fields of a run, and facts such as site and device_model, which must choose one
combination. What is compared is the geometric mean over its runs.
"""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from dlbench import Error
from dlbench.analysis import estimates
from dlbench.common.files import written_whole
from dlbench.common.phrases import did_you_mean
from dlbench.comparison.campaigns import FACTS, JOINABLE, positive
from dlbench.comparison.compare_runs import grouped
from dlbench.comparison.comparison_page import runs_of
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.study import yaml_files
from dlbench.study.runs import DEFAULTS
from dlbench.study.wording import ALWAYS, combinations, number
from dlbench.tables.metrics import METRICS, known_metric

KEYS = ("value", "lower", "upper", "unit")
ROUNDING = 1e-9
MATCHED = (*JOINABLE, *FACTS)


@dataclass(frozen=True)
class Reference:
    """A bound of one metric of one combination; `where` is its place in the file."""

    where: str
    match: dict
    metric: str
    value: float
    lower: float | None
    upper: float | None

    @property
    def bounds(self):
        """(least, most) that pass, infinite where there is no bound; what rounds to them passes."""
        return (
            -math.inf if self.lower is None else self.value * (1 + self.lower) * (1 - ROUNDING),
            math.inf if self.upper is None else self.value * (1 + self.upper) * (1 + ROUNDING),
        )


@dataclass(frozen=True)
class Outcome:
    """A reference beside what was measured: an Estimate, or None where no run finished."""

    reference: Reference
    found: estimates.Estimate | None
    failed: dict
    disturbed: int = 0  # runs, by others on the machine

    @property
    def passed(self):
        least, most = self.reference.bounds
        return self.found is not None and least <= self.found.value <= most

    @property
    def deviation(self):
        """As a share of the reference's value."""
        return None if self.found is None else self.found.value / self.reference.value - 1

    @property
    def words(self):
        """By how much it passes or fails."""
        if self.found is None:
            return f"no run finished: {', '.join(f'{n} {s}' for s, n in self.failed.items())}"
        words = f"{100 * self.deviation:+.1f} %"
        least, most = self.reference.bounds
        if self.found.value < least:
            words += f", {100 * (1 - self.found.value / least):.1f} % below the lower bound"
        if self.found.value > most:
            words += f", {100 * (self.found.value / most - 1):.1f} % above the upper bound"
        if self.disturbed:
            words += f"; others on the machine disturbed {self.disturbed} of {self.found.runs} runs"
        return words


def read(path):
    """The References in a file.

    Raises:
        Error: with every mistake that was found, one a line.
    """
    content = yaml_files.read(path)
    entries = content.get("references") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or set(content) != {"references"}:
        raise Error(f"{path}: expected one key, references, with a list that is not empty")
    mistakes, made = [], []
    for index, entry in enumerate(entries):
        try:
            made += _entry(entry, f"{path}: references[{index}]")
        except Error as error:
            mistakes.append(str(error))
    if mistakes:
        raise Error("\n".join(mistakes))
    return made


def _entry(entry, where):
    if not isinstance(entry, dict) or not isinstance(entry.get("match"), dict):
        raise Error(f"{where}: expected match with the fields of a run, and metrics")
    for name in entry["match"]:
        if name not in MATCHED:
            raise Error(
                f"{where}.match: no field {name!r}{did_you_mean(name, MATCHED)}; "
                f"there are: {', '.join(MATCHED)}"
            )
    metrics = {name: value for name, value in entry.items() if name != "match"}
    if not metrics:
        raise Error(f"{where}: no metric given; there are: {', '.join(sorted(METRICS))}")
    for name, value in metrics.items():
        yield _bound(entry["match"], name, value, f"{where}.{name}")


def _bound(match, name, found, where):
    try:
        metric = known_metric(name)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    if not isinstance(found, dict) or set(found) != set(KEYS):
        keys = sorted(map(str, found)) if isinstance(found, dict) else found
        raise Error(f"{where}: expected the keys {', '.join(KEYS)}, found {keys}")
    if found["unit"] != metric.unit:
        raise Error(f"{where}.unit: {name} is in {metric.unit}, found {found['unit']!r}")
    value = _number(found["value"], f"{where}.value")
    lower, upper = (
        None if found[key] is None else _number(found[key], f"{where}.{key}") for key in KEYS[1:3]
    )
    if value <= 0:
        raise Error(f"{where}.value: expected a number above 0, found {value:g}")
    if lower is not None and not -1 < lower <= 0:
        raise Error(f"{where}.lower: expected a share from -1 to 0, as -0.05, found {lower:g}")
    if upper is not None and upper < 0:
        raise Error(f"{where}.upper: expected a share of at least 0, as 0.1, found {upper:g}")
    return Reference(where, match, name, value, lower, upper)


def _number(value, where):
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        hint = yaml_files.hint(value, "number")
        raise Error(f"{where}: expected a number, found {value!r}{hint}")
    return float(value)


def check(references, campaign):
    """The Outcome of each reference.

    Raises:
        Error: a reference matches no run, or several combinations, or runs without its metric.
    """
    made, mistakes = [], []
    for reference in references:
        try:
            made.append(_outcome(reference, campaign))
        except Error as error:
            mistakes.append(str(error))
    if mistakes:
        raise Error("\n".join(mistakes))
    return made


def _outcome(reference, campaign):
    runs = [
        run for run in campaign.runs if all(_is(run, *item) for item in reference.match.items())
    ]
    if not runs:
        raise Error(f"{reference.where}: matches no run; {_nearest(reference, campaign.runs)}")
    known = [name for name in JOINABLE if any(name in run.fields for run in runs)]
    groups = list(grouped(runs, known, campaign.path))
    if len(groups) > 1:
        apart = [
            name
            for name, values in zip(known, zip(*groups, strict=True), strict=True)
            if len(set(map(str, values))) > 1
        ]
        raise Error(
            f"{reference.where}: matches {len(groups)} combinations; say under match which, "
            f"they differ in {', '.join(apart)}"
        )
    finished = [run for run in runs if run.finished]
    values = [v for run in finished if (v := positive(run, reference.metric)) is not None]
    if finished and not values:
        raise Error(f"{reference.where}: no run that it matches has a {reference.metric}")
    failed = dict(sorted(Counter(run.status for run in runs if not run.finished).items()))
    disturbed = sum(run.disturbed for run in finished)
    return Outcome(reference, estimates.mean(values) if values else None, failed, disturbed)


def _is(run, name, wanted):
    found = run.fields.get(name, run.facts.get(name))
    # 1 is true to Python, and must not be to a reference.
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _nearest(reference, runs):
    """The run that fits best, and what differs in it."""
    run = max(runs, key=lambda run: sum(_is(run, *item) for item in reference.match.items()))
    differing = (
        f"{name} {run.fields.get(name, run.facts.get(name))!s} instead of {wanted!s}"
        for name, wanted in reference.match.items()
        if not _is(run, name, wanted)
    )
    return f"the nearest, {run.run_id}, has {', '.join(differing)}"


def write(path, campaign, metric, tolerance):
    """Write a file that this campaign passes: means over its runs, bounds of the tolerance.

    Returns:
        How many references are in it.

    Raises:
        Error: no run has the metric, or the tolerance is no share.
    """
    metric = known_metric(metric)
    if not 0 < tolerance < 1:
        raise Error(f"tolerance: expected a share between 0 and 1, as 0.05, found {tolerance:g}")
    names = [name for name in JOINABLE if campaign.known(name)]
    entries = []
    groups = grouped(campaign.finished(), names, campaign.path)
    varied = _varied(groups, names)
    for key, runs in groups.items():
        values = [v for run in runs if (v := positive(run, metric.name)) is not None]
        if values:
            match = {
                name: value
                for name, value in zip(names, key, strict=True)
                if name in (*ALWAYS, *varied) or value != DEFAULTS.get(name)
            }
            bound = (float(f"{estimates.mean(values).value:.6g}"), -tolerance, tolerance)
            entries.append(
                {
                    "match": match,
                    metric.name: dict(zip(KEYS, (*bound, metric.unit), strict=True)),
                }
            )
    if not entries:
        raise Error(f"{campaign.path}: no run has a {metric.name}")
    head = f"# Means over the runs of {Path(campaign.path).name!r}; lower and upper are shares.\n"
    with written_whole(path) as part:
        part.write_text(head + yaml.safe_dump({"references": entries}, sort_keys=False), "utf-8")
    return len(entries)


def _varied(groups, names):
    return [
        name
        for name, values in zip(names, zip(*groups, strict=True), strict=False)
        if len(set(map(str, values))) > 1
    ]


def page(outcomes, campaign):
    """The Page of outcomes, what failed first."""
    failed = sum(not outcome.passed for outcome in outcomes)
    outcomes = sorted(outcomes, key=lambda outcome: (outcome.passed, _least(outcome)))
    matched = [outcome.reference.match for outcome in outcomes]
    keys = dict.fromkeys(name for match in matched for name in match)
    names = combinations([{name: match.get(name) for name in keys} for match in matched])
    rows = [_row(*both) for both in zip(names, outcomes, strict=True)]
    headings = ("combination", "metric", "measured", "reference", "from / to", "outcome")
    return Page(
        title="Check against references",
        lead=f"{len(outcomes) - failed} of {len(outcomes)} references passed, {failed} failed.",
        sections=(
            Section("Campaign", (f"{campaign.path}: {runs_of(campaign)}",)),
            Section("References", (), Table(headings, rows, right=(2, 3, 4))),
        ),
        kind="bad" if failed else "good",
    )


def _least(outcome):
    return -math.inf if outcome.deviation is None else -abs(outcome.deviation)


def _row(name, outcome):
    reference, found = outcome.reference, outcome.found
    shares = (
        "none" if share is None else f"{100 * share:+g} %"
        for share in (reference.lower, reference.upper)
    )
    word, kind = ("pass", "good") if outcome.passed else ("FAIL", "bad")
    return [
        name,
        reference.metric,
        f"{number(found.value)} ({found.runs})" if found else "-",
        f"{number(reference.value)} {METRICS[reference.metric].unit}",
        " / ".join(shares),
        Cell(word, kind, outcome.words),
    ]


def plain(outcomes):
    """Outcomes as plain values, for JSON."""
    return [
        {
            "match": outcome.reference.match,
            "metric": outcome.reference.metric,
            "value": outcome.reference.value,
            "lower": outcome.reference.lower,
            "upper": outcome.reference.upper,
            "measured": outcome.found.value if outcome.found else None,
            "runs": outcome.found.runs if outcome.found else 0,
            "failed": outcome.failed,
            "deviation": outcome.deviation,
            "passed": outcome.passed,
        }
        for outcome in outcomes
    ]
