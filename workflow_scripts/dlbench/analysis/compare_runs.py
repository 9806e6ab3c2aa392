"""Two campaigns (sites, versions, dates) compared, combination by combination.

- Runs are matched on the fields of a run, except repeat and seed, in which repeats differ. What
  else differs between the two sides (site, versions, devices) is named once, and so is that no
  session has runs of both sides; neither changes a verdict or a check.
- Each combination has the ratio B / A of geometric means over its runs and a verdict of
  dlbench/analysis/judge.py; all combinations are one family (Holm). No verdict rests on runs
  that other processes disturbed: such a combination is undecided and fails no check.
- A combination that only one side has is listed with its nearest partner on the other side.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.analysis import estimates, judge
from dlbench.analysis.campaigns import (
    FACTS,
    ITEM_RATE,
    JOINABLE,
    REPEATED,
    TOKEN_RATE,
    Campaign,
    Measured,
    find_metric,
    positive,
)
from dlbench.common import phrases
from dlbench.common.phrases import did_you_mean
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.records import sessions
from dlbench.study import wording
from dlbench.study.runs import DEFAULTS
from dlbench.tables.metrics import Metric

DEFAULT_MARGIN = 0.01
FAILED, TIMEOUT, SKIPPED = "failed", "timeout", "skipped"
# The verdict on a combination with a side of which no run finished: the first that a run has.
VERDICT_BY_STATUS = {"failed": FAILED, "oom": FAILED, "timeout": TIMEOUT, "skipped": SKIPPED}
NAMED_IF_UNKNOWN = ("site", "device_model", "framework_version", "git_commit", "software_origin")
MAX_PAIRS = 1_000_000  # of which the nearest partners are looked for


@dataclass(frozen=True)
class Side:
    """One side of a combination.

    Attributes:
        values: the metric of each run that finished.
        failed: {status: number of runs} of those that did not finish.
        disturbed: how many finished runs other processes on the machine disturbed.
    """

    values: tuple[float, ...]
    failed: dict[str, int]
    disturbed: int = 0

    @classmethod
    def of_runs(cls, runs: list[Measured], metric: str) -> "Side":
        done = [
            (run, value)
            for run in runs
            if run.finished and (value := positive(run, metric)) is not None
        ]
        return cls(
            values=tuple(value for _, value in done),
            failed=dict(sorted(Counter(run.status for run in runs if not run.finished).items())),
            disturbed=sum(run.disturbed for run, _ in done),
        )

    @property
    def end(self) -> str:
        """How it ended if it has no values: failed, timeout or skipped; else ""."""
        verdicts = (v for status, v in VERDICT_BY_STATUS.items() if status in self.failed)
        return "" if self.values else next(verdicts, "")

    @property
    def mean(self) -> estimates.Estimate | None:
        return estimates.mean(self.values) if self.values else None


@dataclass(frozen=True)
class Pair:
    """A combination on both sides.

    Attributes:
        values: the fields it was matched on.
        compared: a judge.Judged of B with A; None if a side has no numbers.
        beyond_margin: B is shown to be worse by more than the margin, after Holm's correction;
            better_beyond_margin: the same of better.
        verdict: of judge, or of a metric, or how a side failed; reason: of no verdict.
    """

    values: dict[str, Any]
    a: Side
    b: Side
    compared: judge.Judged | None
    beyond_margin: bool
    verdict: str
    reason: str
    better_beyond_margin: bool = False

    @property
    def is_different(self) -> bool:
        """Whether a difference is shown that is not within the margin."""
        no_difference = judge.EQUIVALENT, judge.UNDECIDED, *VERDICT_BY_STATUS.values()
        return self.verdict not in no_difference


@dataclass(frozen=True)
class Unmatched:
    """A combination that one side has only.

    Attributes:
        partner: by field in which the other side's nearest combination differs, the values
            (own, the other's); None if there were too many pairs to look for it.
    """

    side: str
    values: dict[str, Any]
    runs: int
    partner: dict[str, tuple[Any, Any]] | None


@dataclass(frozen=True)
class Compared:
    """Two campaigns side by side.

    Attributes:
        joined: the fields that runs were matched on.
        not_joined: fields that only one of the sides knows.
        differs: {field or fact: (values of A, values of B)} of what was not matched on.
    """

    a: Campaign
    b: Campaign
    metric: Metric
    margin: float
    joined: tuple[str, ...]
    not_joined: tuple[str, ...]
    differs: dict[str, tuple[list[str], ...]]
    pairs: tuple[Pair, ...]
    unmatched: tuple[Unmatched, ...]

    @property
    def measured_apart(self) -> bool:
        """Whether no session has runs of both sides, so that changes in between differ, too."""
        return sessions.measured_apart(
            *(
                [{**run.facts, "session": run.session} for run in side.finished()]
                for side in (self.a, self.b)
            )
        )

    def regressions(self, kinds: Collection[str]) -> list[Pair]:
        """The pairs that fail a check; `kinds`: of slower (beyond the margin), failed, timeout."""
        return [
            pair
            for pair in self.pairs
            if ("slower" in kinds and pair.beyond_margin) or (pair.a.values and pair.b.end in kinds)
        ]


def compare(
    a: Campaign,
    b: Campaign,
    metric_name: str | None = None,
    margin: float = DEFAULT_MARGIN,
    on: Collection[str] | None = None,
    ignore: Collection[str] = (),
) -> Compared:
    """Compare campaign B with campaign A, by their `throughput_metric` if no other is named.

    `on`: the fields to match on; None: all but those to `ignore`. Raises Error: a field or metric
    does not exist, or there is nothing to compare.
    """
    metric = find_metric(metric_name or throughput_metric(a, b), a, b)
    if not 0 < margin < 1:
        raise Error(f"margin: expected a share between 0 and 1, as 0.01, found {margin:g}")
    join_fields = _join_fields(on, ignore)
    joined = tuple(name for name in join_fields if a.knows(name) and b.knows(name))
    not_joined = tuple(n for n in join_fields if n not in joined and (a.knows(n) or b.knows(n)))
    if on and not_joined:
        raise Error(f"--on: not known on both sides: {', '.join(not_joined)}")
    sides = {name: grouped(side.runs, joined, name) for name, side in (("A", a), ("B", b))}
    common_keys = [key for key in sides["A"] if key in sides["B"]]
    if not common_keys:
        raise Error(_no_match_message(sides["A"], sides["B"], joined))
    combinations = [
        (
            dict(zip(joined, key, strict=True)),
            Side.of_runs(sides["A"][key], metric.name),
            Side.of_runs(sides["B"][key], metric.name),
        )
        for key in common_keys
    ]
    if not any(a.values or b.values for _, a, b in combinations):
        raise Error(
            f"no run in common has the metric {metric.name}. Some metrics are in runs tables only "
            "(dlbench export), others need an evaluation"
        )
    return Compared(
        a=a,
        b=b,
        metric=metric,
        margin=margin,
        joined=joined,
        not_joined=not_joined,
        differs=_differs(a, b, joined),
        pairs=tuple(sorted(_judged(combinations, metric, margin), key=_importance)),
        unmatched=tuple(_unmatched(sides, joined)),
    )


def throughput_metric(*sides: Campaign) -> str:
    """The metric of throughput that all runs of some campaigns have: tokens, or items, a second."""
    runs = [run for side in sides for run in side.finished()]
    return TOKEN_RATE if runs and all(TOKEN_RATE in run.numbers for run in runs) else ITEM_RATE


def grouped(
    runs: Iterable[Measured], names: Sequence[str], side: str
) -> dict[tuple[Any, ...], list[Measured]]:
    """Runs by their values of some fields.

    `side`: what the message of an error calls the runs. Raises Error: runs of one group are no
    repeats: they differ in another field.
    """
    groups: dict[tuple[Any, ...], list[Measured]] = {}
    for run in runs:
        groups.setdefault(tuple(run.fields.get(name) for name in names), []).append(run)
    other_fields = [name for name in JOINABLE if name not in names]
    for group in groups.values():
        for name in other_fields:
            values = list(dict.fromkeys(str(run.fields.get(name)) for run in group))
            if len(values) > 1:
                raise Error(
                    f"{side}: {group[0].run_id} and others would count as repeats of one another, "
                    f"though they differ in {name} ({', '.join(values)}), which is not matched on"
                )
    return groups


def _join_fields(on, ignore):
    for name in (*(on or ()), *ignore):
        if name in REPEATED:
            raise Error(f"{name}: repeats differ in it, so it is never matched on")
        if name not in JOINABLE:
            raise Error(
                f"a run has no field {name!r}{did_you_mean(name, JOINABLE)}; "
                f"there are: {', '.join(JOINABLE)}"
            )
    return [name for name in JOINABLE if (not on or name in on) and name not in ignore]


def _no_match_message(a, b, joined):
    """Why no combination is on both sides: fields that differ everywhere, or the nearest pair."""
    lines = []
    for index, name in enumerate(joined):
        values = [list(dict.fromkeys(str(key[index]) for key in side)) for side in (a, b)]
        if not set(values[0]) & set(values[1]):
            lines.append(f"  {name}: A {list_values(values[0])}; B {list_values(values[1])}")
    if not lines:
        key = next(iter(a))
        lines = [f"  {n}: A {x}; B {y}" for n, (x, y) in _nearest_values(key, b, joined)]
        return "\n".join(["no combination in common; the nearest pair differs in", *lines])
    head = "no combination in common; these differ everywhere (--ignore FIELD matches on the rest)"
    return "\n".join([head, *lines])


def _judged(combinations, metric, margin):
    """Pairs with their verdicts, all corrected for one another."""
    both = [(a.values, b.values) for _, a, b in combinations if a.values and b.values]
    differences = [estimates.Difference.of(b, a) for a, b in both]
    judged = iter(judge.judge(differences, margin, [metric] * len(both)))
    for values, a, b in combinations:
        if not (a.values and b.values):
            yield Pair(values, a, b, None, False, *_verdict_without_numbers(a, b))
            continue
        compared = next(judged)
        if disturbed := _disturbed(a, b):
            yield Pair(values, a, b, compared, False, judge.UNDECIDED, disturbed)
            continue
        worse, better = (compared.beyond == word for word in (metric.worse, metric.better))
        yield Pair(values, a, b, compared, worse, *_verdict(compared), better)


def _disturbed(a, b):
    """Why a combination's runs support no verdict, or ""."""
    counts = [
        f"{side.disturbed} in {name}" for name, side in (("A", a), ("B", b)) if side.disturbed
    ]
    return f"other processes disturbed runs: {', '.join(counts)}" if counts else ""


def _verdict(compared):
    """(verdict, why there is none)."""
    of_b, of_a = compared.difference.runs
    fewest = min(of_a, of_b)
    if fewest == 1:
        side = f"in {'B' if of_b == 1 else 'A'}" if of_a != of_b else "a side"
        return judge.UNDECIDED, f"one run {side}"
    if compared.verdict == judge.TOO_FEW_RUNS:
        return judge.UNDECIDED, f"fewer than {judge.MIN_RUNS} runs a side"
    if compared.verdict == judge.UNDECIDED:
        needed = compared.repeats_needed
        more = "over " if needed >= judge.MAX_REPEATS else ""
        return compared.verdict, f"{more}{needed} repeats needed" if needed > fewest else ""
    return compared.verdict, ""


def _verdict_without_numbers(a, b):
    empty = [name for name, side in (("A", a), ("B", b)) if not side.values]
    for end in VERDICT_BY_STATUS.values():
        if sides := [name for name, side in (("A", a), ("B", b)) if side.end == end]:
            return end, f"in {' and '.join(sides)}"
    return judge.UNDECIDED, f"no such number in {' and '.join(empty)}"


def _importance(pair):
    size = abs(math.log(pair.compared.ratio)) if pair.compared else -1.0
    return not pair.is_different, -size


def _differs(a, b, joined):
    """The fields and facts in which the two sides differ, besides those matched on."""
    values_by_name = {}
    for name in (*(n for n in (*JOINABLE, "seed") if n not in joined), *FACTS):
        values = [
            {str(run.fields.get(name, run.facts.get(name))) for run in side.runs} - {"None"}
            for side in (a, b)
        ]
        comparable = all(values) or (any(values) and name in NAMED_IF_UNKNOWN)
        if comparable and values[0] != values[1]:
            if name == "software_origin":  # long lists, of which little differs
                parts = [{part for text in side for part in text.split(", ")} for side in values]
                values = [parts[0] - parts[1], parts[1] - parts[0]]
            values_by_name[name] = sorted(values[0]), sorted(values[1])
    return values_by_name


def _unmatched(sides, joined):
    for side, other in (("A", "B"), ("B", "A")):
        keys = [key for key in sides[side] if key not in sides[other]]
        looked_for = len(keys) * len(sides[other]) <= MAX_PAIRS
        for key in keys:
            partner = dict(_nearest_values(key, sides[other], joined)) if looked_for else None
            values = dict(zip(joined, key, strict=True))
            yield Unmatched(side, values, len(sides[side][key]), partner)


def _nearest_values(key, candidates, joined):
    """[(field, (own value, the other's)), ...] in which the nearest of the others differs."""
    nearest = min(candidates, key=lambda nearest: _distance(key, nearest))
    return [(name, (x, y)) for name, x, y in zip(joined, key, nearest, strict=True) if x != y]


def _distance(key, other):
    """Number of fields that differ, then how far numbers are apart."""
    differing = [(x, y) for x, y in zip(key, other, strict=True) if x != y]
    numbers = [
        abs(math.log(x / y))
        for x, y in differing
        if all(isinstance(v, int | float) and v > 0 for v in (x, y))
    ]
    return len(differing), sum(numbers)


def list_values(values: Sequence[Any], most: int = 3) -> str:
    """Values as text, as in `8, 16, 32 and 4 more`; `not known` if there are none."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more if values else "not known"


def values(comparison: Compared, regressions: list[Pair] | None = None) -> dict[str, Any]:
    """Two compared campaigns as plain values, for JSON, whose keys stay; None: not known.

    `regressions`: the pairs for which a check fails; None if nothing is checked.
    """
    failing = None if regressions is None else {id(pair) for pair in regressions}
    return {
        "metric": comparison.metric.name,
        "unit": comparison.metric.unit,
        "margin": comparison.margin,
        "a": _campaign_values(comparison.a),
        "b": _campaign_values(comparison.b),
        "joined_on": list(comparison.joined),
        "not_joined_on": list(comparison.not_joined),
        "measured_apart": comparison.measured_apart,
        "differs": {n: {"a": a, "b": b} for n, (a, b) in comparison.differs.items()},
        "combinations": [_pair_values(pair, failing) for pair in comparison.pairs],
        "unmatched": [_unmatched_values(unmatched) for unmatched in comparison.unmatched],
        "regressions": None if regressions is None else len(regressions),
    }


def _campaign_values(campaign):
    return {
        "path": campaign.path,
        "runs": len(campaign.runs),
        "finished": len(campaign.finished()),
        "not_ended": campaign.not_ended,
        "unread": list(campaign.unread),
    }


def _pair_values(pair, failing):
    return {
        "combination": pair.values,
        "a": _side_values(pair.a),
        "b": _side_values(pair.b),
        **(pair.compared.columns if pair.compared else dict.fromkeys(judge.NUMBERS)),
        "verdict": pair.verdict,
        "reason": pair.reason,
        "worse_beyond_margin": pair.beyond_margin,
        "regression": None if failing is None else id(pair) in failing,
    }


def _side_values(side):
    unknown = dict.fromkeys(("mean", "mean_ci95_low", "mean_ci95_high"))
    return {
        "values": list(side.values),
        **(side.mean.columns("mean") if side.values else unknown),
        "failed": side.failed,
        "disturbed": side.disturbed,
    }


def _unmatched_values(unmatched):
    partner = unmatched.partner
    return {
        "side": unmatched.side,
        "combination": unmatched.values,
        "runs": unmatched.runs,
        "nearest_differs": partner and {n: list(values) for n, values in partner.items()},
    }


MAX_UNMATCHED = 50  # of each side, on a page
SHORT = 12  # hexadecimal digits of a digest that are shown
APART = (
    " A and B were measured apart, in no session together: whatever changed in between, as what "
    "else used the machine, differs, too."
)


def comparison_page(comparison: Compared, regressions: list[Pair] | None = None) -> Page:
    """The Page of two compared campaigns.

    `regressions`: the pairs for which a check fails; None if nothing is checked.
    """
    lead = _lead(comparison)
    if regressions is not None:
        lead += f" Check {'failed' if regressions else 'passed'}: "
        lead += phrases.counted(len(regressions), "regression") + "."
    return Page(
        title="Comparison of two campaigns",
        lead=lead,
        sections=tuple(
            filter(None, (_sides(comparison), _pairs(comparison), *_unmatched_section(comparison)))
        ),
        kind="" if regressions is None else "bad" if regressions else "good",
    )


def _lead(comparison):
    counts = Counter(pair.verdict for pair in comparison.pairs)
    metric = comparison.metric
    judged = (*metric.verdicts, judge.EQUIVALENT, judge.UNDECIDED)
    order = (*judged, FAILED, TIMEOUT, SKIPPED)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])
    lead = (
        f"B against A in {comparison.metric.name} ({comparison.metric.unit}), "
        f"{phrases.counted(len(comparison.pairs), 'combination')} in common: {verdicts}."
    )
    return lead + (APART if comparison.measured_apart else "")


def _sides(comparison):
    sides = {"A": comparison.a, "B": comparison.b}
    paragraphs = [f"{name}: {side.unread[0]}" for name, side in sides.items() if side.unread]
    if comparison.not_joined:
        unknown = ", ".join(comparison.not_joined)
        paragraphs.append(f"not matched on, since one side does not say it: {unknown}")
    same = _shared_values([pair.values for pair in comparison.pairs])
    paragraphs += [f"in common: {', '.join(same)}"] if same else []
    differing = [
        [
            f"differs: {wording.field_name(name)}",
            *(list_values(list(map(_short, side))) for side in both),
        ]
        for name, both in comparison.differs.items()
    ]
    if not differing:
        paragraphs.append("nothing else is known to differ between the two sides")
    table = [
        ["folder or table", *(side.path for side in sides.values())],
        ["runs", *(side.counted for side in sides.values())],
    ]
    return Section("The two sides", tuple(paragraphs), Table(("", "A", "B"), table + differing))


def _shared_values(combinations_):
    """Labels of values, no defaults, that all combinations share and their names lack."""
    first, *others = combinations_
    return [
        wording.field(name, value)
        for name, value in first.items()
        if name not in wording.ALWAYS
        and value != DEFAULTS.get(name)
        and all(other[name] == value for other in others)
    ]


def _short(value):
    digits = value.removeprefix("sha256:")
    is_digest = len(digits) >= 40 and all(c in "0123456789abcdef" for c in digits)
    return digits[:SHORT] if is_digest else value


def _pairs(comparison):
    names = wording.short_labels([pair.values for pair in comparison.pairs])
    rows = [
        [
            name,
            _side(pair.a),
            _side(pair.b),
            _ratio(pair),
            _interval(pair),
            _verdict_cell(pair, comparison.metric),
        ]
        for name, pair in zip(names, comparison.pairs, strict=True)
    ]
    headings = ("combination", "A", "B", "B / A", "95 % interval", "verdict")
    return Section(
        "Combinations", (_method(comparison),), Table(headings, rows, right=(1, 2, 3, 4))
    )


def _method(comparison):
    families = [pair.compared.family for pair in comparison.pairs if pair.compared]
    family = max(families, default=1)
    metric = comparison.metric
    corrected = f" after Holm's correction for {family} comparisons" if family > 1 else ""
    return (
        "Geometric means over runs (how many in brackets); Welch's interval on logarithms, each "
        f"alone; margin {100 * comparison.margin:g} %. Equivalent: shown to be within the margin; "
        f"{' or '.join(metric.verdicts)}: shown to differ, and not shown to be within it; "
        f"5 % level{corrected}."
    )


def _side(side):
    parts = [f"{wording.number(side.mean.value)} ({len(side.values)})"] if side.values else []
    return ", ".join(parts + [f"{n} {status}" for status, n in side.failed.items()]) or "-"


def _ratio(pair):
    if pair.compared is None:
        return "-"
    c = pair.compared
    return Cell(_digits(c.ratio), drawn=(c.ratio, c.ci95_low, c.ci95_high, c.margin))


def _interval(pair):
    c = pair.compared
    if c is None or math.isnan(c.ci95_low):
        return "-"
    return f"{_digits(c.ci95_low)} to {_digits(c.ci95_high)}"


def _digits(ratio):
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.4g}"


def _verdict_cell(pair, metric):
    kinds = {metric.better: "good", judge.EQUIVALENT: "same"}
    kinds |= dict.fromkeys((metric.worse, FAILED, TIMEOUT), "bad")
    beyond_margin = pair.beyond_margin or pair.better_beyond_margin
    return Cell(
        pair.verdict,
        kinds.get(pair.verdict, "open"),
        "by more than the margin" if beyond_margin else pair.reason,
    )


def _unmatched_section(comparison):
    """Combinations of one side only, and how the nearest of the other side differs."""
    for side, other in (("A", "B"), ("B", "A")):
        of_side = [combination for combination in comparison.unmatched if combination.side == side]
        if not of_side:
            continue
        names = wording.short_labels([combination.values for combination in of_side])
        rows = [
            [name, str(one.runs), _partner(one)] for name, one in zip(names, of_side, strict=True)
        ]
        more = (f"and {len(rows) - MAX_UNMATCHED} more",) if len(rows) > MAX_UNMATCHED else ()
        headings = ("combination", "runs", f"nearest in {other} differs in")
        table = Table(headings, rows[:MAX_UNMATCHED], right=(1,))
        yield Section(f"Only in {side} ({len(of_side)})", more, table)


def _partner(unmatched):
    if unmatched.partner is None:
        return "too many to look for"
    differing = ((name, *map(_plain, values)) for name, values in unmatched.partner.items())
    return "; ".join(f"{name} {value} / {nearest}" for name, value, nearest in differing)


def _plain(value):
    return json.dumps(value) if isinstance(value, bool) or value in (None, "") else str(value)
