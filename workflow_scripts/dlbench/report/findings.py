"""Findings of a study, those with the best evidence first.

- A finding is a sentence that follows from a table, with its interval, its runs, and the table
  and figure that it is from.
- Each topic has one: comparisons that the config asked for; scaling; what a batch size, a
  strategy, a precision ... changes where all else is equal; slow nodes; learning gates.
- `shown`: a test, or an interval over at least three undisturbed runs of each side, supports it.
  `indicated`: the interval is of fewer runs or of disturbed ones, or something else differs too, or
  the sides were measured apart. `open`: the data do not answer it. They are ranked in that order,
  then by topic and by the end of the interval that is nearest to no effect.
- Contrasts that the config did not ask for are one family of tests, corrected (Holm).
- Published numbers are references: no finding is about them. Nor is one about runs whose numbers
  contradict one another.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench.analysis import base_flags, judge, nodes
from dlbench.analysis.comparisons import FIGURES
from dlbench.analysis.comparisons import by_field as contrasts
from dlbench.common import phrases
from dlbench.study import contradictions, goals, wording
from dlbench.study.runs import CONDITION
from dlbench.tables import cells
from dlbench.tables.cells import Row

SHOWN, INDICATED, OPEN = "shown", "indicated", "open"
EVIDENCE = (SHOWN, INDICATED, OPEN)
# Topics, in the order of findings that are equally well supported.
COMPARISON, NODES, SCALING, CONTRAST, MISSED, REACHED = range(6)
MARGIN = 0.01  # of equivalence, where no comparison of the study says another
MAX_NODES = 5  # that are named in the text; all are in the table
MINUS, TIMES = "\u2212", "\u00d7"
KINDS = {judge.FASTER: "good", judge.SLOWER: "bad", judge.EQUIVALENT: "same"}


@dataclass(frozen=True)
class Finding:
    """One sentence with its number.

    Attributes:
        number, interval: the number behind it and its 95 % interval, as texts; "" for none.
        kind: good, bad, same or open, which gives it a colour.
        tables, figures: names of those that it is from.
        effect: how far from none it is; of a topic the largest comes first.
    """

    headline: str
    text: str
    topic: int
    evidence: str
    number: str = ""
    interval: str = ""
    kind: str = "open"
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    effect: float = 0.0

    @property
    def rank(self) -> tuple[float, ...]:
        """What findings are sorted by, the lowest first."""
        return EVIDENCE.index(self.evidence), self.topic, -self.effect


def findings(
    runs: list[Row],
    speedups: list[Row],
    comparisons: list[Row],
    sentinels: Sequence[Row] = (),
    of_nodes: Iterable[Row] = (),
) -> list[Finding]:
    """All Findings of a study, the best first; arguments are rows of these tables."""
    own_runs = [
        row
        for row in runs
        if row.get("timing_source") != cells.PUBLISHED and not row.get(contradictions.REASON)
    ]
    speedups = [row for row in speedups if row.get("timing_source") != cells.PUBLISHED]
    tables = own_runs, speedups, comparisons, sentinels
    own_runs, speedups, comparisons, sentinels = hide_single_site(*tables)
    planned = {row["field"] for row in comparisons}
    unplanned = contrasts(own_runs, planned, margin_of(comparisons), sentinels)
    unsorted = [
        *_comparison_findings(comparisons),
        *_scaling_findings(speedups),
        *_contrast_findings(unplanned),
        *_gate_findings(own_runs),
        *node_findings(of_nodes),
    ]
    return sorted(unsorted, key=lambda finding: finding.rank)


def margin_of(comparisons: Sequence[Row]) -> float:
    """The margin of equivalence of a study, from the rows of its comparisons."""
    return next((row["margin"] for row in comparisons if row.get("margin")), MARGIN)


# Words that several kinds of findings share.


def hide_single_site(runs: list[Row], *others: Sequence[Row]) -> list[list[Row]]:
    """The same rows, with their sites if runs are of several, else None: names need none then."""
    several = len({row.get("site") for row in runs} - {None}) > 1
    return [
        list(rows) if several else [{**row, "site": None} for row in rows]
        for rows in (runs, *others)
    ]


def row_names(rows: list[Row], left_out: Sequence[str] = ()) -> list[str]:
    """Names of rows: their sites and the fields of a run in which they differ, but those left out.

    >>> same = {"model": "vgg16", "dataset": "digits", "batch_per_device": 8}
    >>> row_names([same | {"precision": "float16"}, same | {"precision": "tf32"}])
    ['vgg16, digits, batch 8, float16', 'vgg16, digits, batch 8, tf32']
    """
    fields = [name for name in CONDITION if name not in ("seed", *left_out)]
    values = [{name: row.get(name) for name in fields} for row in rows]
    for one in values:
        one |= {name: one[name] or None for name in fields if name in wording.SWITCHES}
    names = wording.short_labels(values)
    sites = [f"{row['site']}: " if row.get("site") else "" for row in rows]
    return [f"{site}{name}" for site, name in zip(sites, names, strict=True)]


def ratio_texts(row: Row, name: str, ends_name: str) -> tuple[str, str]:
    """(a ratio of a row, its interval or ""): as differences, or as factors if any is large."""
    value, low, high = (row.get(n) for n in (name, f"{ends_name}_low", f"{ends_name}_high"))
    ends = () if low is None or high is None or math.isnan(low) else (low, high)
    if any(number >= 2 or number <= 0.5 for number in (value, *ends)):
        return f"{TIMES} {value:.3g}", " to ".join(f"{end:.3g}" for end in ends)
    number, *interval = (_signed(f"{100 * (part - 1):+.1f}") for part in (value, *ends))
    return f"{number} %", f"{interval[0]} to {interval[1]} %" if interval else ""


def _signed(number):
    return number.lstrip("+-") if float(number) == 0 else number.replace("-", MINUS)


def _runs_of_sides(a, b):
    if a == b == 1:
        return "one run each: no interval"
    return f"{a} and {b} runs" if a != b else f"{a} runs each"


# Two sides that differ in one field: comparisons of the config, and what else is alike.


def _comparison_findings(rows):
    by_field: dict[str, list[Row]] = {}
    for row in rows:
        by_field.setdefault(row["field"], []).append(row)
    for group in by_field.values():
        if any(row.get("ratio") for row in group):
            yield _of_sides(group, COMPARISON, "comparisons", "overhead")


def _contrast_findings(unplanned):
    for name, pairs in unplanned.items():
        rows = []
        for a, b, compared, sides in pairs:
            flags = [*sides.flags, *[base_flags.NEIGHBOURS] * base_flags.is_disturbed(*a, *b)]
            row = {**a[0], **sides.columns, **compared.columns, "verdict": compared.verdict}
            row |= {"field": name, "condition": a[0][name], "base": b[0][name]}
            row |= {"n_a": len(a), "n_b": len(b), "margin": compared.margin}
            rows.append(row | {"base_flags": ", ".join(flags), "repeats_needed": 0})
        yield _of_sides(rows, CONTRAST, "results", FIGURES[name])


def _of_sides(rows, topic, table, figure):
    """The finding on a field: the comparison with the best evidence, then the clearest one."""
    judged = sorted((row for row in rows if row.get("ratio")), key=_clearness)
    first = judged[0]
    name, verdict = first["field"], first["verdict"]
    tested = verdict != judge.TOO_FEW_RUNS
    sides = [wording.condition(name, first[side]) for side in ("condition", "base")]
    headline = f"{sides[0]} against {sides[1]}: {verdict}{'' if tested else ' for a verdict'}"
    if verdict in KINDS:
        preposition = "to" if verdict == judge.EQUIVALENT else "than"
        headline = f"{sides[0]} is {verdict} {preposition} {sides[1]}"
    text = [f"{row_names(judged, (name,))[0]}, {_runs_of_sides(first['n_a'], first['n_b'])}."]
    if len(rows) > 1:
        verdicts = Counter(row["verdict"] for row in rows).items()
        text.append(
            f"The best supported, then the clearest, of {len(rows)} comparisons of "
            f"{wording.field_name(name)} "
            f"({', '.join(f'{count} {verdict}' for verdict, count in verdicts)})."
        )
    if tested and topic == CONTRAST:
        family = phrases.counted(first["family"], "comparison")
        text.append(
            f"Exploratory: not planned in the config; p values adjusted for {family} (Holm)."
        )
    # A ratio that no interval goes with is not what is read first.
    number, interval = ratio_texts(first, "ratio", "ci95") if tested else ("", "")
    return Finding(
        headline=headline,
        text=" ".join([*text, *_caveats(first)]),
        topic=topic,
        evidence=_evidence_of(first),
        number=number,
        interval=interval,
        kind=KINDS.get(verdict, "open"),
        tables=(table,),
        figures=(figure,),
        effect=_effect(first),
    )


def _caveats(row):
    """Why a comparison is undecided, or why no more than indicated."""
    family = row.get("family") or 1
    if row["verdict"] == judge.UNDECIDED and family > 1 and _effect(row):
        yield (
            "The interval, of this comparison alone, excludes equality; with p values adjusted "
            f"for {phrases.counted(family, 'comparison')} (Holm) no difference is shown."
        )
    needed = row.get("repeats_needed") or 0
    if row["verdict"] not in KINDS and needed > min(row["n_a"], row["n_b"]):
        more = "at least " if needed >= judge.MAX_REPEATS else "about "
        yield f"It takes {more}{needed} repeats of each for a verdict."
    if flags := row.get("base_flags"):
        yield f"Flagged: {base_flags.clause(flags, 'the two sides', 'also differ in')}."
    if row.get("drift"):
        number, interval = ratio_texts(row, "drift", "drift_ci95")
        interval = f" ({interval})" if interval else ""
        yield f"The ratio is corrected for the drift between their sessions, {number}{interval}."
    if base_flags.APART in (flags or ""):
        yield base_flags.REMEDY


def _clearness(row):
    differs = row["verdict"] in (judge.FASTER, judge.SLOWER)
    return EVIDENCE.index(_evidence_of(row)), not differs, -_effect(row)


def _evidence_of(row):
    if row["verdict"] in KINDS:
        return INDICATED if row.get("base_flags") else SHOWN
    few = row["verdict"] == judge.TOO_FEW_RUNS
    low = row.get("ci95_low")
    return INDICATED if few and low is not None and not math.isnan(low) else OPEN


def _effect(row):
    """How far from none the nearest end of the interval is, on the logarithm; 0 without one."""
    low, high = row.get("ci95_low"), row.get("ci95_high")
    if not low or not high or low <= 1 <= high:
        return 0.0
    return min(abs(math.log(low)), abs(math.log(high)))


# Scaling.


def _scaling_findings(rows):
    """The efficiency of series with the largest ratio of devices; flagged points are left out."""
    ends = [row for row in rows if row.get("efficiency") and row["devices"] > row["base_devices"]]
    comparable = [row for row in ends if not row.get("base_mismatch")]
    flagged = Counter(row["base_mismatch"] for row in ends if row.get("base_mismatch"))
    left_out = "; ".join(
        f"{base_flags.clause(flags, 'point and base')} in {count}"
        for flags, count in sorted(flagged.items(), key=lambda item: (-item[1], item[0]))
    )
    common: dict[str, Any] = {
        "topic": SCALING, "tables": ("speedups",), "figures": ("scaling",)
    }  # fmt: skip
    if not comparable:
        if flagged:
            yield Finding(
                "No speedup of this study isolates the effect of more devices",
                f"Of {phrases.counted(flagged.total(), 'speedup')}, {left_out}.",
                evidence=OPEN,
                kind="bad",
                **common,
            )
        return
    widest = max(row["devices"] / row["base_devices"] for row in comparable)
    last = [row for row in comparable if row["devices"] / row["base_devices"] == widest]
    # Those with an interval before those of a single run, which chance may have favoured.
    last.sort(key=lambda row: (row.get("efficiency_ci95_low") is None, -row["efficiency"]))
    best, names = last[0], row_names(last, ("nodes", "devices_per_node"))
    low, high = best.get("efficiency_ci95_low"), best.get("efficiency_ci95_high")
    undecided = low is not None and low * widest <= 1 <= high * widest
    enough = min(best["runs"], best["base_runs"]) >= judge.MIN_RUNS
    evidence = OPEN if low is None or undecided else SHOWN if enough else INDICATED
    tokens = best.get("base_tokens_per_second")
    rate = f"{wording.number(tokens or best['base_images_per_second'])} "
    rate += "tokens/s" if tokens else "items/s"
    text = [
        f"{names[0]}, {best['scaling']} scaling: {wording.number(best['speedup'])} times the base "
        f"of {_devices(best, 'base_devices')} ({rate}), "
        f"{_runs_of_sides(best['runs'], best['base_runs'])}."
    ]
    if undecided:
        text.append("Undecided: it is not even shown that more devices are faster.")
    if len(last) > 1:
        share = f"{100 * last[-1]['efficiency']:.3g} %"
        text.append(f"The best of {len(last)} series; the worst, {names[-1]}, keeps {share}.")
    if flagged:
        text.append(f"Left out: {phrases.counted(flagged.total(), 'point')} ({left_out}).")
    number = f"{100 * best['efficiency']:.3g} %"
    yield Finding(
        f"{_devices(best)} keep {number} of linear scaling",
        " ".join(text),
        evidence=evidence,
        number=number,
        interval="" if low is None else f"{100 * low:.3g} to {100 * high:.3g} %",
        kind="open" if evidence == OPEN else "same",
        **common,
    )


def _devices(row, name="devices"):
    return phrases.counted(row[name], wording.device(row.get("device_kind")))


# Learning.


def _gate_findings(runs):
    judged = [row for row in runs if row.get("learning_gate")]
    missed = [row for row in judged if row["learning_gate"] != goals.REACHED]
    if judged:
        text = "Their throughput is of training that reaches the scores that the config requires."
        if missed:
            text = f"{row_names(missed)[0]}: {missed[0]['learning_gate']}."
        reached = f"{len(judged) - len(missed)} of {phrases.counted(len(judged), 'run')}"
        yield Finding(
            f"{reached} with a learning gate reach it",
            text,
            topic=MISSED if missed else REACHED,
            evidence=SHOWN,
            number=reached,
            kind="bad" if missed else "good",
            tables=("runs",),
            figures=("loss", "accuracy"),
        )


# Nodes that are slower than the others.


def node_findings(rows: Iterable[Row]) -> list[Finding]:
    """A Finding for each group of like nodes of which one is slower than the others.

    `rows`: of the table of nodes, the slowest of each group first.
    """
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in nodes.GROUP), []).append(row)
    several_sites = len({group[0]["site"] for group in groups.values()}) > 1
    return [
        _of_nodes(group, sorted(slow, key=lambda row: bool(row["disturbed"])), several_sites)
        for group in groups.values()
        if (slow := [row for row in group if row["verdict"] == nodes.SLOWER])
    ]


def _of_nodes(group, slow, several_sites):
    """The finding on slow nodes; those that others did not disturb come first."""
    first = slow[0]
    names = ", ".join(row["node"] for row in slow[:MAX_NODES])
    names += f" and {len(slow) - MAX_NODES} more" if len(slow) > MAX_NODES else ""
    site = f"{first['site']}: " if several_sites else ""
    number, interval = ratio_texts(first, "ratio", "ratio_ci95")
    return Finding(
        headline=f"{site}{len(slow)} of {len(group)} nodes slower than the others: {names}",
        text=f"{'; '.join(map(_node_text, slow[:MAX_NODES]))}. Compared with the middle half of "
        f"the {phrases.counted(len(group) - 1, 'other')}; p is the chance of such runs of a node "
        f"that is slower by the margin of {100 * first['margin']:.3g} % and no more.",
        topic=NODES,
        evidence=INDICATED if first["disturbed"] else SHOWN,
        number=number,
        interval=interval,
        kind="bad",
        tables=("nodes",),
        figures=("nodes",),
        effect=-math.log(first["ratio"]),
    )


def _node_text(row):
    number, interval = ratio_texts(row, "ratio", "ratio_ci95")
    runs = phrases.counted(row["runs"], "run") + ", all disturbed" * bool(row["disturbed"])
    return f"{row['node']}: {number} ({interval}) in {runs}, p = {row['p_slower']:.2g}"
