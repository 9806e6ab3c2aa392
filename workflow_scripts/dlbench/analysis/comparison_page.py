"""The page of two compared campaigns."""

import json
import math
from collections import Counter

from dlbench.analysis import judge
from dlbench.analysis.compare_runs import FAILED, SKIPPED, TIMEOUT, Compared, Pair, list_values
from dlbench.common import phrases
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study import wording
from dlbench.study.runs import DEFAULTS

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
            filter(None, (_sides(comparison), _pairs(comparison), *_unmatched(comparison)))
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
            _verdict(pair, comparison.metric),
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


def _verdict(pair, metric):
    kinds = {metric.better: "good", judge.EQUIVALENT: "same"}
    kinds |= dict.fromkeys((metric.worse, FAILED, TIMEOUT), "bad")
    beyond_margin = pair.beyond_margin or pair.better_beyond_margin
    return Cell(
        pair.verdict,
        kinds.get(pair.verdict, "open"),
        "by more than the margin" if beyond_margin else pair.reason,
    )


def _unmatched(comparison):
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
