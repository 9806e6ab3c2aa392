"""What limits the runs that are explained: a finding for each condition, from its probes.

Where the study has the same run in mode input, the finding says what reading alone yields, too.
"""

import statistics
from collections.abc import Sequence

from dlbench.analysis import equivalence
from dlbench.report import finding_words
from dlbench.report.findings import EVIDENCE, INDICATED, OPEN, SHOWN, Finding
from dlbench.study import wording
from dlbench.study.runs import CONDITION, READING
from dlbench.tables.cells import Row
from dlbench.trainer.reading.inputs import INPUT_ONLY

INPUT, COMPUTATION, REST = "input", "computation", "rest"
PART_LABELS = {
    INPUT: "waiting for input",
    "copies": "waiting for copies to the device",
    "exchange": "exchanging gradients",
    "sharing": "sharing the node with other devices",
    "waits": "waiting for each step's loss",
    COMPUTATION: COMPUTATION,
    REST: "the remaining step",
}


# Fields in which a run with a model and one in mode input agree if they read alike.
SAME_READING = (
    *("site", "framework", "model", "dataset", "batch_per_device", "sequence_length", "augment"),
    *("cache", *READING, "nodes", "node", "devices_per_node", "threads_per_device", "strategy"),
    *("launcher", "runtime", "runtime_options", "environment", "copies_per_node"),
)


def findings(explanations: Sequence[Row], runs: Sequence[Row] = ()) -> list[Finding]:
    """The Findings of the rows of the table of explanations, one for each condition.

    Args:
        runs: rows of the table of runs, of which those of mode input say what reading alone yields.
    """
    conditions: dict[str, list[Row]] = {}
    for row in explanations:
        conditions.setdefault(row["run_id"], []).append(row)
    return [
        _finding(rows, runs)
        for rows in conditions.values()
        if any(row.get("share") for row in rows)
    ]


def _finding(rows, runs):
    resolved = sorted((row for row in rows if row["told_apart"]), key=lambda row: -row["share"])
    other_parts = [row for row in resolved if row["part"] not in (COMPUTATION, REST)]
    first = other_parts[0] if other_parts else next(iter(resolved), None)
    name = rows[0]["combination"]
    if other_parts:
        headline = f"{_percent(first)} of a step is {PART_LABELS[first['part']]}: {name}"
    elif first and first["part"] == REST:
        headline = f"What its parameters leave out costs nothing that is resolved: {name}"
    elif first:
        headline = f"{_percent(first)} of a step is computation, nothing else is resolved: {name}"
    else:
        headline = f"What a step is made of cannot be resolved: {name}"
    evidence = OPEN
    if first:  # each part has as few probes as the fewest of them
        enough = min(row["runs"] for row in resolved) >= equivalence.MIN_RUNS
        evidence = SHOWN if enough else INDICATED
    return Finding(
        headline=headline,
        text=" ".join([*_sentences(rows, resolved), *_compare_reading(rows, runs)]),
        number=_percent(first) if first else "",
        interval=_interval(first) if first else "",
        evidence=evidence,
        kind="same" if first else "open",
        tables=("explanations", "runs"),
        figures=(),
        rank=(EVIDENCE.index(evidence), 1.5, -first["share"] if other_parts else 0.0),
    )


def _sentences(rows, resolved):
    step_s = next(row["step_time_s"] / row["share"] for row in rows if row.get("share"))
    if resolved:
        parts = [f"{PART_LABELS[r['part']]} {_percent(r)} ({_interval(r)})" for r in resolved]
        yield f"Of {1000 * step_s:.4g} ms: {', '.join(parts)}."
    notes: dict[str, list[str]] = {}
    for row in rows:
        if not row["told_apart"]:
            notes.setdefault(row["note"], []).append(PART_LABELS[row["part"]])
    for note, parts in notes.items():
        yield f"Not distinguishable from zero: {', '.join(parts)} ({note})."


def _compare_reading(rows, runs):
    """Compare the run with the same run in mode input, if the study has both."""
    explained = next((run for run in runs if run["run_id"] == rows[0]["run_id"]), None)
    waiting = next((row for row in rows if row["part"] == INPUT and row.get("share")), None)
    if explained is None or waiting is None:
        return
    alone = [
        run for run in runs if run["mode"] == INPUT_ONLY and _agree(run, explained, SAME_READING)
    ]
    with_model = [run for run in runs if _agree(run, explained, CONDITION)]
    rates = [
        statistics.fmean(measured)
        for side in (alone, with_model)
        if (measured := [run["images_per_second"] for run in side if run.get("images_per_second")])
    ]
    if len(rates) == 2:
        reading, training = map(wording.number, rates)
        yield (
            f"Reading alone yields {reading} items/s, with the model it is {training} items/s: "
            f"the wait for input is {_percent(waiting)} of a step."
        )


def _agree(a, b, names):
    return all(a.get(name) == b.get(name) for name in names)


def _percent(row):
    return f"{100 * row['share']:.3g} %"


def _interval(row):
    step_s = row["step_time_s"] / row["share"]
    ends = (row[f"step_time_ci95_{end}"] / step_s for end in ("low", "high"))
    return finding_words.share_interval(*ends)
