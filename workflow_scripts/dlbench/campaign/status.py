"""How a study stands: the state of each run now, what it cost and what is left.

The states of runs are those of dlbench/plan/standing.py; excluded combinations are no runs and are
counted apart.

The JSON (`report`), whose keys stay:
    schema_version, study, site, generated_at
    combinations    total, and the number in each state; excluded
    reasons         [{state, message, runs}]: why they failed, are interrupted, stale, skipped or
                    excluded, these two last, else the most frequent first; what ended the last
                    attempt of pending ones; "missed gate" for runs that are done and did not
                    learn what they must; messages of a model that differ in numbers only are one,
                    with the least and the greatest of each
    running         [{run_id, label, step, total_steps, loss, images_per_second, rate, elapsed_s,
                    left_s, message}]; rate: images or tokens a second in words; the message is what
                    the scheduler says of a run that writes nothing
    cost            used_node_hours, in all attempts; of which aside_node_hours in such as were
                    kept aside; left_node_hours and left_s, those of all runs in sequence;
                    left_wall_s, the same for at_a_time of them at a time, and done_at, when that
                    is over; what is left is null where unknown;
                    estimates: number of runs by what their estimate rests on
    sessions        number, of the starts that trained what is done; sentinels: how many of its
                    repeated runs are done; verdicts: of the table of drift, one a pair of sessions
                    and device shape, [] where there is none yet
    largest_batches  [{search, label, state, batch_per_device, reason, tries}] of those that the
                    config asks for (max); the state is found, none or to find, tries are those
                    that ended, the rest is null as long as it is to be found
    runs            null, or of each run {run_id, label, state, message, duration_s, node_hours}
                    in the order of execution
"""

import contextlib
import csv
import json
import math
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from dlbench.common import phrases, terminal
from dlbench.log import event_fields, event_log
from dlbench.log.event_fields import SUCCEEDED
from dlbench.log.event_log import FAILED
from dlbench.plan.standing import LEFT, STATES, examine
from dlbench.records import costs, run_record, sessions
from dlbench.study import goals
from dlbench.study.config import Study

SCHEMA_VERSION = 1
UNFINISHED = ("running", "pending", "interrupted", "stale", "unread")
INTENDED = ("skipped", "excluded")
MISSED = "missed gate"
DRIFT = Path("results/tables/drift.csv")
MAX_SHOWN = 8  # reasons and running runs on the screen
WIDTH = 88  # of wrapped text, without its indentation


def print_status(
    study: Study,
    at_a_time: int | None = None,
    with_runs: bool = False,
    as_json: bool = False,
    every_s: float | None = None,
) -> None:
    """Print the state of a study, once or every `every_s` seconds."""
    with contextlib.suppress(KeyboardInterrupt):  # how one stops watching
        while True:
            now = report(study, at_a_time, with_runs)
            clear = "\033[H\033[2J" if every_s and not as_json and sys.stdout.isatty() else ""
            print(clear, end="")
            print_report(now, as_json)
            if not every_s:
                return
            time.sleep(every_s)


def print_report(report: dict[str, Any], as_json: bool = False) -> None:
    """Print a report; control characters, which logs may have, are removed."""
    text = json.dumps(report) if as_json else "\n".join(lines(report))
    print(terminal.plain(text), flush=True)


def report(study: Study, at_a_time: int | None = None, with_runs: bool = False) -> dict[str, Any]:
    """The state of a study as plain values, with the keys in the docstring of this module.

    Args:
        at_a_time: how many runs are trained at a time; None: as many as are running now.
        with_runs: also list every run.
    """
    standings = examine(study)
    counts = dict.fromkeys(STATES, 0)
    for standing in standings:
        counts[standing.state] += 1
    took_s = {s.run.id: s.duration_s for s in standings if s.ended_well}
    for standing in standings:
        remaining_s = costs.remaining_by_steps(standing.latest_progress)
        if remaining_s is not None:
            took_s[standing.run.id] = standing.duration_s + remaining_s
    estimates = costs.Estimates(study.runs, lambda run: took_s.get(run.id), costs.stopped_after_s)
    remaining = {s.run.id: _remaining(s, estimates) for s in standings if s.state in LEFT}
    return {
        "schema_version": SCHEMA_VERSION,
        "study": study.name,
        "site": study.site["name"],
        "generated_at": event_log.utc_now(),
        "combinations": {"total": len(standings), **counts, "excluded": len(study.excluded)},
        "reasons": _grouped([*_reasons(study, standings)]),
        "running": [
            _running(study.labels[s.run.id], s, remaining[s.run.id][0])
            for s in standings
            if s.state == "running"
        ],
        "cost": _cost(standings, remaining, at_a_time or max(1, counts["running"])),
        "sessions": _sessions(study, standings),
        "largest_batches": [_largest_batch(study, key) for key in sorted(study.searches)],
        "runs": [_row(study.labels[s.run.id], s) for s in standings] if with_runs else None,
    }


def _reasons(study, standings):
    """(state, model, message) of each run that has a message."""
    for standing in standings:
        if standing.message and standing.state not in ("running", "unread"):
            yield standing.state, standing.run.model, standing.message
        if standing.missed:
            yield MISSED, standing.run.model, standing.missed
    for left_out in study.excluded:
        yield "excluded", "", f"{left_out.block}: {left_out.reason}"


def _remaining(standing, estimates):
    """(seconds that a run still takes, basis of that estimate)."""
    elapsed_s = standing.duration_s if standing.state == "running" else None
    return costs.remaining(standing.run, standing.latest_progress, elapsed_s, estimates)


def _grouped(reasons):
    states, models, messages = map(list, zip(*reasons, strict=True)) if reasons else ([], [], [])
    counts = Counter(zip(states, phrases.merged(models, messages), strict=True))
    ordered = sorted(counts.items(), key=lambda item: (item[0][0] in INTENDED, -item[1]))
    return [
        {"state": state, "message": message, "runs": runs} for (state, message), runs in ordered
    ]


def _running(label, standing, left_s):
    progress = standing.latest_progress
    return {
        "run_id": standing.run.id,
        "label": label,
        "step": progress.step if progress else None,
        "total_steps": progress.total_steps if progress else None,
        # JSON has no nan.
        "loss": progress.loss if progress and math.isfinite(progress.loss or 0) else None,
        "images_per_second": progress.images_per_second if progress else None,
        "rate": progress.rate if progress else None,
        "elapsed_s": standing.duration_s,
        "left_s": left_s,
        "message": standing.message,
    }


def _cost(standings, remaining, at_a_time):
    nodes = {standing.run.id: standing.run.nodes for standing in standings}
    bases = [basis for _, basis in remaining.values()]
    known = costs.UNKNOWN not in bases
    each_s = [seconds for seconds, _ in remaining.values()]
    left_s = sum(each_s) if known else None
    wall_s = costs.together_s(each_s, at_a_time) if known else None
    done_at = (
        datetime.now(timezone.utc) + timedelta(seconds=wall_s) if remaining and known else None
    )
    return {
        "used_node_hours": sum(s.used_s * s.run.nodes for s in standings) / 3600,
        "aside_node_hours": sum(s.aside_s * s.run.nodes for s in standings) / 3600,
        "left_node_hours": (
            sum(seconds * nodes[run_id] for run_id, (seconds, _) in remaining.items()) / 3600
            if known
            else None
        ),
        "left_s": left_s,
        "at_a_time": at_a_time,
        "left_wall_s": wall_s,
        "done_at": done_at.strftime(event_fields.UTC_FORMAT) if done_at else None,
        "estimates": {
            basis: bases.count(basis) for basis in (costs.OWN_STEPS, *costs.BASES, costs.UNKNOWN)
        },
    }


def _sessions(study, standings):
    """The sessions of the report; runs of no known session count as one session."""
    done = {standing.session for standing in standings if standing.state in SUCCEEDED}
    repeated = sessions.sentinels_of(study.runs)
    ended = [run_id for run_id in repeated if (run_record.folder(run_id) / "run.json").is_file()]
    verdicts = []
    with contextlib.suppress(OSError), open(DRIFT, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("metric") == goals.THROUGHPUT]
        verdicts = [row["verdict"] for row in rows if "verdict" in row]
    return {"number": len(done), "sentinels": len(ended), "verdicts": verdicts}


def _row(label, standing):
    return {
        "run_id": standing.run.id,
        "label": label,
        "state": standing.state,
        "message": "; ".join(filter(None, (standing.message, standing.missed))),
        "duration_s": standing.duration_s,
        "node_hours": standing.used_s * standing.run.nodes / 3600,
    }


def _largest_batch(study, search_id):
    """The state of a search for a largest batch."""
    search, result = study.searches[search_id], study.search_results.get(search_id)
    done = "found" if result and result.batch else "none"
    return {
        "search": search_id,
        "label": search.label(),
        "state": done if result else "to find",
        "batch_per_device": result.batch if result else None,
        "reason": result.reason if result else None,
        "tries": sum(1 for _ in search.folder.glob("b*/run.json")),
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report of `status.report`; counts of 0 are left out."""
    counts = report["combinations"]
    yield f"{report['study']} on {report['site']}: {phrases.counted(counts['total'], 'run')}"
    yield ""
    done, failed = (sum(counts[state] for state in states) for states in (SUCCEEDED, FAILED))
    yield _count("done", done, _split(counts, SUCCEEDED) if counts["unstable"] else "")
    waiting = [(state, counts[state], "") for state in UNFINISHED]
    left_out = [(state, counts[state], "") for state in INTENDED]
    for line in (*waiting, ("failed", failed, _split(counts, FAILED)), *left_out):
        if line[1]:
            yield _count(*line)
    if report["running"]:
        yield from ("", "running")
        for run in report["running"][:MAX_SHOWN]:
            yield f"  {run['label']}"
            yield f"    {_describe_progress(run)}"
        yield from _more(report["running"])
    if report["reasons"]:
        yield from ("", "why")
        for reason in report["reasons"][:MAX_SHOWN]:
            why = terminal.message(reason["message"], 200)
            yield f"{reason['runs']:7d}  {reason['state']:<11}  {why}"
        yield from _more(report["reasons"])
    if report["largest_batches"]:
        yield from ("", "largest batches that fit (max)")
        for search in report["largest_batches"]:
            tried = "the next start finds it before it trains the runs"
            if search["tries"]:
                tried = f"{search['tries']} tried so far; the next start goes on"
            reason = search["reason"] or tried
            yield f"{search['batch_per_device'] or search['state']:>9}  {search['label']}"
            yield f"           {terminal.message(reason, 200)}"
    yield ""
    yield from _cost_lines(report["cost"], any(counts[state] for state in LEFT))
    over = report["sessions"]
    if over["number"] > 1 or over["sentinels"]:
        text = sessions.describe(over["number"], over["sentinels"], over["verdicts"])
        yield f"  sessions  {text}"
    if report["runs"]:
        yield ""
        for run in report["runs"]:
            message = f": {run['message']}" if run["message"] else ""
            yield f"{run['state']:<11}  {duration(run['duration_s']):>8}  {run['label']}{message}"


def duration(seconds: float) -> str:
    """A duration in at most two units.

    >>> [duration(s) for s in (0, 59, 60, 3700, 200_000)]
    ['0 s', '59 s', '1 min', '1 h 2 min', '2 d 8 h']
    """
    minutes = round(seconds / 60)
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def _count(name, number, detail):
    return f"  {name:<11}  {number:6d}   {detail}".rstrip()


def _split(counts, states):
    return ", ".join(f"{state} {counts[state]}" for state in states if counts[state])


def _more(entries):
    if len(entries) > MAX_SHOWN:
        yield f"  and {len(entries) - MAX_SHOWN} more; --json has them all"


def _describe_progress(run):
    text = "no step yet"
    if run["step"] is not None:
        text = f"step {run['step']}/{run['total_steps']}"
    if run["rate"]:
        text += f", {run['rate']}"
    text += f", for {duration(run['elapsed_s'])}"
    text += f", {run['message']}" if run["message"] else ""
    return text if run["left_s"] is None else f"{text}, {duration(run['left_s'])} left"


def _cost_lines(cost, any_left):
    aside = cost["aside_node_hours"]
    aside_text = f", of which {costs.node_hours(aside)} in attempts kept aside" if aside else ""
    yield f"  used  {costs.node_hours(cost['used_node_hours'])}{aside_text}"
    if not any_left:
        return
    if cost["left_s"] is None:
        yield "  left  unknown: no run of this study is completed yet"
        return
    done_at = datetime.strptime(cost["done_at"], event_fields.UTC_FORMAT)
    done_at = done_at.replace(tzinfo=timezone.utc).astimezone()
    order_text = f"{cost['at_a_time']} at a time" if cost["at_a_time"] > 1 else "sequentially"
    yield (
        f"  left  about {costs.node_hours(cost['left_node_hours'])}; {order_text} "
        f"{duration(cost['left_wall_s'])}, until {done_at:%a %d %b %H:%M}"
    )
    bases = textwrap.wrap(costs.describe_bases(cost["estimates"]), WIDTH)
    yield from (f"        {line}" for line in bases)
