"""Findings of a study, those with the best evidence first.

- A finding is a sentence that follows from a table, with its interval, its runs, and the table
  and figure that it is from.
- Each topic has one: comparisons that the config asked for; scaling; what a batch size, a
  strategy, a precision ... changes where all else is equal; learning gates.
- `shown`: a test, or an interval over at least three undisturbed runs of each side, supports it.
  `indicated`: the interval is of fewer runs or of disturbed ones, or something else differs too, or
  the sides were measured apart. `open`: the data do not answer it. They are ranked in that order;
  then come
  comparisons of the config, scaling, the largest effects (by the end of the interval that is
  nearest to no effect), gates.
- Contrasts that the config did not ask for are one family of tests, corrected (Holm).
- Published numbers are references: no finding is about them. Nor is one about runs whose numbers
  contradict one another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis import base_flags, contrasts, equivalence
from dlbench.common import phrases
from dlbench.report import finding_words
from dlbench.study import contradictions, goals, wording
from dlbench.study.runs import CONDITION
from dlbench.tables import timing_sources
from dlbench.tables.cells import Row

SHOWN, INDICATED, OPEN = "shown", "indicated", "open"
EVIDENCE = (SHOWN, INDICATED, OPEN)
MARGIN = 0.01  # of equivalence, where no comparison of the study says another


@dataclass(frozen=True)
class Finding:
    """One sentence with its number.

    Attributes:
        number, interval: the number behind it and its 95 % interval, as texts; "" for none.
        kind: good, bad, same or open, which gives it a colour.
        tables, figures: names of those that it is from.
        rank: what findings are sorted by, the lowest first.
    """

    headline: str
    text: str
    number: str
    interval: str
    evidence: str
    kind: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    rank: tuple[float, ...]


def findings(
    runs: list[Row],
    speedups: list[Row],
    comparisons: list[Row],
    sentinels: Sequence[Row] = (),
) -> list[Finding]:
    """All Findings of a study, the best first; arguments are rows of these tables."""
    own_runs = [
        row
        for row in runs
        if row.get("timing_source") != timing_sources.PUBLISHED
        and not row.get(contradictions.REASON)
    ]
    speedups = [row for row in speedups if row.get("timing_source") != timing_sources.PUBLISHED]
    compared_fields = {row["field"] for row in comparisons}
    margin = margin_of(comparisons)
    tables = own_runs, speedups, comparisons, sentinels
    own_runs, speedups, comparisons, sentinels = hide_single_site(*tables)
    unsorted = [
        *_comparison_findings(comparisons),
        *_scaling_findings(speedups),
        *_contrast_findings(own_runs, compared_fields, margin, sentinels),
        *_gate_findings(own_runs),
    ]
    return sorted(unsorted, key=lambda finding: finding.rank)


def margin_of(comparisons: Sequence[Row]) -> float:
    """The margin of equivalence of a study, from the rows of its comparisons."""
    return next((row["margin"] for row in comparisons if row.get("margin")), MARGIN)


def hide_single_site(runs: list[Row], *others: Sequence[Row]) -> list[list[Row]]:
    """The same rows, with their sites if runs are of several, else None: names need none then."""
    several = len({row.get("site") for row in runs} - {None}) > 1
    return [
        list(rows) if several else [{**row, "site": None} for row in rows]
        for rows in (runs, *others)
    ]


def row_names(rows: list[Row], left_out: Sequence[str] = ()) -> list[str]:
    """Names of rows: their sites and the fields of a run in which they differ.

    Args:
        left_out: fields that names do not have.

    >>> same = {"model": "vgg16", "dataset": "digits", "batch_per_device": 8}
    >>> row_names([same | {"precision": "float16"}, same | {"precision": "tf32"}])
    ['vgg16, digits, batch 8, float16', 'vgg16, digits, batch 8, tf32']
    """
    fields = [name for name in CONDITION if name not in ("seed", *left_out)]
    values = [{n: row.get(n) for n in fields} for row in rows]
    values = [
        v | {name: "on" if v.get(name) else None for name in wording.SWITCHES} for v in values
    ]
    names = wording.short_labels(values)
    sites = [f"{row['site']}: " if row.get("site") else "" for row in rows]
    return [f"{site}{name}" for site, name in zip(sites, names, strict=True)]


# Comparisons that the config asks for.


def _comparison_findings(rows):
    by_field = {}
    for row in rows:
        by_field.setdefault(row["field"], []).append(row)
    for name, group in by_field.items():
        judged = [row for row in group if row.get("ratio")]
        if judged:
            yield _comparison_finding(name, group, judged)


def _comparison_finding(name, group, judged):
    counts = finding_words.verdict_counts(row["verdict"] for row in group)
    first = min(judged, key=_by_evidence)
    evidence = _evidence_of(first)
    condition, base = (wording.condition(name, first[side]) for side in ("condition", "base"))
    headline = f"{condition} against {base}: {first['verdict']}"
    if first["verdict"] not in (equivalence.UNDECIDED, equivalence.TOO_FEW_RUNS):
        preposition = "to" if first["verdict"] == equivalence.EQUIVALENT else "than"
        headline = f"{condition} is {first['verdict']} {preposition} {base}"
    all_verdicts = f"All of {wording.field_name(name)}: {counts}. " if len(group) > 1 else ""
    place = row_names([first, *(row for row in judged if row is not first)], (name,))[0]
    runs = finding_words.describe_runs(first["n_a"], first["n_b"])
    text = f"{place}, {runs}. {all_verdicts}{_caveats(first)}"
    tested = first["verdict"] != equivalence.TOO_FEW_RUNS
    ratios = (first["ratio"], first.get("ci95_low"), first.get("ci95_high"))
    number, interval = finding_words.ratio_texts(*ratios) if tested else ("", "")
    return Finding(
        headline=headline,
        text=text.strip(),
        number=number,
        interval=interval,
        evidence=evidence,
        kind=finding_words.colour_kind(first["verdict"]),
        tables=("comparisons",),
        figures=("overhead",),
        rank=(EVIDENCE.index(evidence), 0, -_effect(first)),
    )


def _caveats(row):
    """Why a comparison is undecided, or why no more than indicated."""
    sentences = []
    if row["verdict"] in (equivalence.UNDECIDED, equivalence.TOO_FEW_RUNS):
        sentences += _not_after_correction(row)
        needed = row.get("repeats_needed") or 0
        if needed > min(row["n_a"], row["n_b"]):
            more = "at least " if needed >= equivalence.MAX_REPEATS else "about "
            sentences.append(f"It takes {more}{needed} repeats of each for a verdict.")
    if row.get("base_flags"):
        differences = base_flags.clause(row["base_flags"], "the two sides", "also differ in")
        sentences.append(f"Flagged: {differences}.")
    return " ".join([*sentences, *finding_words.drift_sentences(row)])


def _not_after_correction(row):
    """Why a comparison is undecided though its interval, of it alone, leaves out no difference."""
    family = row.get("family") or 1
    if row["verdict"] == equivalence.UNDECIDED and family > 1 and _effect(row):
        yield (
            "The interval, of this comparison alone, excludes equality; with p values adjusted "
            f"for {phrases.counted(family, 'comparison')} (Holm) no difference is shown."
        )


def _by_evidence(row):
    return EVIDENCE.index(_evidence_of(row)), -_effect(row)


def _evidence_of(row):
    if row["verdict"] in (equivalence.UNDECIDED, equivalence.TOO_FEW_RUNS):
        return OPEN
    return INDICATED if row.get("base_flags") else SHOWN


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
    if not ends:
        return
    comparable = [row for row in ends if not row.get("base_mismatch")]
    flagged = [row["base_mismatch"] for row in ends if row.get("base_mismatch")]
    if not comparable:
        yield _unlike_bases_finding(flagged)
        return
    widest = max(row["devices"] / row["base_devices"] for row in comparable)
    last = [row for row in comparable if row["devices"] / row["base_devices"] == widest]
    last.sort(key=_by_efficiency)
    best, worst = last[0], last[-1]
    names = row_names(last, ("nodes", "devices_per_node"))
    low, high = best.get("efficiency_ci95_low"), best.get("efficiency_ci95_high")
    runs = min(best["runs"], best["base_runs"])
    undecided = low is not None and low * widest <= 1 <= high * widest
    evidence = SHOWN if runs >= equivalence.MIN_RUNS else INDICATED
    evidence = OPEN if low is None or undecided else evidence
    speedup, base_rate = wording.number(best["speedup"]), _base_rate(best)
    text = (
        f"{names[0]}, {best['scaling']} scaling: {speedup} times the base of "
        f"{_devices(best, 'base_devices')} ({base_rate}), "
        f"{finding_words.describe_runs(best['runs'], best['base_runs'])}."
    )
    if undecided:
        text += " Undecided: it is not even shown that more devices are faster."
    if len(last) > 1:
        share = 100 * worst["efficiency"]
        text += f" The best of {len(last)} series; the worst, {names[-1]}, keeps {share:.3g} %."
    if flagged:
        are, why = "is" if len(flagged) == 1 else "are", finding_words.unlike_bases(flagged)
        text += f" {phrases.counted(len(flagged), 'point')} {are} left out: {why}."
    yield Finding(
        headline=f"{_devices(best)} keep {100 * best['efficiency']:.3g} % of linear scaling",
        text=text,
        number=f"{100 * best['efficiency']:.3g} %",
        interval=finding_words.share_interval(low, high),
        evidence=evidence,
        kind="open" if evidence == OPEN else "same",
        tables=("speedups",),
        figures=("scaling",),
        rank=(EVIDENCE.index(evidence), 1, 0.0),
    )


def _base_rate(row):
    """As in `1200 items/s`, of texts in tokens."""
    if tokens := row.get("base_tokens_per_second"):
        return f"{wording.number(tokens)} tokens/s"
    return f"{wording.number(row['base_images_per_second'])} items/s"


def _unlike_bases_finding(flagged):
    kinds = len(set(flagged))
    why = finding_words.unlike_bases(flagged, "speedups")
    return Finding(
        headline="No speedup of this study isolates the effect of more devices",
        text=(f"In every speedup, {why}" if kinds == 1 else f"{why[0].upper()}{why[1:]}")
        + ". The effect of more devices is confounded with "
        + ("that difference." if kinds == 1 else "these differences."),
        number="",
        interval="",
        evidence=OPEN,
        kind="bad",
        tables=("speedups",),
        figures=("scaling",),
        rank=(EVIDENCE.index(OPEN), 1, 0.0),
    )


def _by_efficiency(row):
    """Series with an interval before those of a single run, which chance may have favoured."""
    return row.get("efficiency_ci95_low") is None, -row["efficiency"]


def _devices(row, name="devices"):
    return phrases.counted(row[name], wording.device(row.get("device_kind")))


# What changes where all else is equal, though the config asks for no comparison.


def _contrast_findings(*studied):
    return [_contrast_finding(name, pairs) for name, pairs in contrasts.by_field(*studied).items()]


def _contrast_finding(name, pairs):
    pair = min(pairs, key=_clearness)
    (a, b, first, sides), evidence, flags = pair, _evidence_of_pair(pair), ", ".join(_flags(pair))
    row, base = a[0], b[0]
    tested = first.verdict != equivalence.TOO_FEW_RUNS
    decided = tested and first.verdict != equivalence.UNDECIDED
    labels = [wording.condition(name, side[name]) for side in (row, base)]
    verdict = first.verdict if decided else "undecided" if tested else "too few runs for a verdict"
    preposition = "equivalent to" if verdict == equivalence.EQUIVALENT else f"{verdict} than"
    headline = f"{labels[0]} is {preposition} {labels[1]}"
    if not decided:
        headline = f"{labels[0]} against {labels[1]}: {verdict}"
    place = row_names([row, *(other[0][0] for other in pairs if other[0] is not a)], (name,))[0]
    text = f"{place}, {finding_words.describe_runs(first.n_a, first.n_b)}."
    if len(pairs) > 1:
        what = f"runs that differ in {wording.field_name(name)} alone"
        if len({(a[0][name], b[0][name]) for a, b, *_ in pairs}) == 1:
            what = f"{labels[0]} with {labels[1]} that are alike in all else"
        counts = finding_words.verdict_counts(other[2].verdict for other in pairs)
        text += f" One of {len(pairs)} comparisons of {what} ({counts}):"
        text += " the one with the best evidence, then the clearest difference."
    if tested:
        number = phrases.counted(first.family, "comparison")
        text += " Exploratory: not planned in the config; p values adjusted for "
        text += f"{number} (Holm)."
        text += "".join(
            f" {sentence}"
            for sentence in _not_after_correction({**vars(first), "verdict": verdict})
        )
    text += f" Flagged: {base_flags.clause(flags, 'the two sides')}." if flags else ""
    drift_row = {**sides.columns, "base_flags": flags}
    text += "".join(f" {sentence}" for sentence in finding_words.drift_sentences(drift_row))
    # A ratio that no interval goes with is not what is read first.
    ratios = (first.ratio, first.ci95_low, first.ci95_high)
    number, interval = finding_words.ratio_texts(*ratios) if tested else ("", "")
    figure = contrasts.FIGURES[name]
    return Finding(
        headline=headline,
        text=text,
        number=number,
        interval=interval,
        evidence=evidence,
        kind=finding_words.colour_kind(first.verdict),
        tables=("results",),
        figures=(figure,),
        rank=(EVIDENCE.index(evidence), 2, -_effect(vars(first))),
    )


def _flags(pair):
    """The flags of a contrast."""
    a, b, _, sides = pair
    return [*sides.flags, *[base_flags.NEIGHBOURS] * base_flags.is_disturbed(*a, *b)]


def _evidence_of_pair(pair):
    compared = pair[2]
    if compared.verdict in (equivalence.UNDECIDED, equivalence.TOO_FEW_RUNS):
        untested = compared.verdict == equivalence.TOO_FEW_RUNS
        return INDICATED if untested and not math.isnan(compared.ci95_low) else OPEN
    return INDICATED if _flags(pair) else SHOWN


def _clearness(pair):
    """The sort key of contrasts: the best evidence first, of these differences."""
    rank = {equivalence.FASTER: 0, equivalence.SLOWER: 1}.get(pair[2].verdict, 2)
    best = EVIDENCE.index(_evidence_of_pair(pair))
    return best, bool(_flags(pair)), rank, -_effect(vars(pair[2]))


# Learning.


def _gate_findings(runs):
    judged = [row for row in runs if row.get("learning_gate")]
    missed = [row for row in judged if row["learning_gate"] != goals.REACHED]
    if not judged:
        return
    if missed:
        name = row_names(missed)[0]
        yield Finding(
            headline=f"{len(missed)} of {len(judged)} runs miss their learning gate",
            text=f"{name}: {missed[0]['learning_gate']}.",
            number=f"{len(missed)} of {phrases.counted(len(judged), 'run')}",
            interval="",
            evidence=SHOWN,
            kind="bad",
            tables=("runs",),
            figures=("loss", "accuracy"),
            rank=(0, 3, 0.0),
        )
        return
    yield Finding(
        headline=f"All {len(judged)} runs with a learning gate reach it",
        text="Their throughput is of training that reaches the scores that the config requires.",
        number=f"{len(judged)} of {phrases.counted(len(judged), 'run')}",
        interval="",
        evidence=SHOWN,
        kind="good",
        tables=("runs",),
        figures=("loss", "accuracy"),
        rank=(0, 4, 0.0),
    )
