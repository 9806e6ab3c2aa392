"""How a study stands: the state of each run now, what it cost and what is left.

A run is, in the order in which this is decided,
    ok, unstable, failed, oom, timeout, skipped    what its record says, where that stands
    running       its log has no end and is being written, see _is_written
    skipped       this machine cannot do it; the next start of the workflow records that
    pending       not trained yet, forgotten, or to be tried again
    unread        trained; its log is still to be read
    interrupted   its log stops without an end
    stale         trained, but of other code, data or environment, or its record is damaged
Excluded combinations are no runs and are counted apart.

Nothing is written, locked or started here. A run that starts or ends in the meantime is seen as it
was when it was looked at.

The JSON (`report`), whose keys stay:
    schema_version, study, site, generated_at
    combinations    total, and the number in each state; excluded
    reasons         [{state, message, runs}]: why they failed, are skipped, stale or excluded,
                    these two last, else the most frequent first; messages that differ in
                    numbers only are one, the first
    running         [{run_id, label, step, total_steps, loss, images_per_second, elapsed_s, left_s}]
    cost            used_node_hours, in all attempts; of which aside_node_hours in such as were
                    kept aside; left_node_hours, left_s and done_at, null where unknown;
                    estimates: number of runs by what their estimate rests on
    runs            null, or of each run {run_id, label, state, message, duration_s, node_hours}
                    in the order of execution
"""

import contextlib
import functools
import json
import math
import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from dlbench import adoption, costs, eventlog, progress, records, site
from dlbench.records import State

SCHEMA_VERSION = 1
DONE = ("ok", "unstable")
FAILED = ("failed", "oom", "timeout")
INTENDED = ("skipped", "excluded")
LEFT = ("running", "pending", "interrupted", "stale")
STATES = (*DONE, "running", "pending", "interrupted", "stale", "unread", *FAILED, "skipped")
FRESH_S = 10.0  # a running log is written at least once a second, by its samples
SHOWN = 8  # reasons and running runs on the screen
OWN_STEPS = "their own steps"


@dataclass(frozen=True)
class Standing:
    """A run now.

    `duration_s` is that of its log and tells how long others will take where it `ended_well`,
    in whatever state it is now; `used_s` and `aside_s` are those of all its attempts.
    """

    run: object
    state: str
    message: str
    duration_s: float
    used_s: float
    aside_s: float
    ended_well: bool = False
    going: progress.Progress | None = None


def show(study, with_runs, as_json, every_s):
    """Print how a study stands, once or, on a screen, every so many seconds."""
    with contextlib.suppress(KeyboardInterrupt):  # how one stops watching
        while True:
            found = report(study, with_runs)
            clear = "\033[H\033[2J" if every_s and not as_json and sys.stdout.isatty() else ""
            print(clear + (json.dumps(found) if as_json else "\n".join(lines(found))), flush=True)
            if not every_s:
                return
            time.sleep(every_s)


def report(study, with_runs=False):
    """What the docstring of this module says, as plain values."""
    standings = look(study)
    counts = dict.fromkeys(STATES, 0)
    for standing in standings:
        counts[standing.state] += 1
    reasons = [
        (standing.state, standing.message)
        for standing in standings
        if standing.message and standing.state not in ("pending", "running", "unread")
    ]
    reasons += [("excluded", f"{left_out.block}: {left_out.reason}") for left_out in study.excluded]
    taken = {s.run.id: s.duration_s for s in standings if s.ended_well}
    for standing in standings:
        if (own := _left_by_steps(standing)) is not None:
            taken[standing.run.id] = standing.duration_s + own
    estimates = costs.Estimates(study.runs, lambda run: taken.get(run.id))
    left = {s.run.id: _left(s, estimates) for s in standings if s.state in LEFT}
    return {
        "schema_version": SCHEMA_VERSION,
        "study": study.name,
        "site": study.site["name"],
        "generated_at": eventlog.utc_now(),
        "combinations": {"total": len(standings), **counts, "excluded": len(study.excluded)},
        "reasons": _grouped(reasons),
        "running": [_running(s, left[s.run.id][0]) for s in standings if s.state == "running"],
        "cost": _cost(standings, left),
        "runs": [_row(s) for s in standings] if with_runs else None,
    }


def look(study):
    """The Standing of each run, in the order of execution."""
    devices = site.devices(study.site)
    recipes = {name: digest for name, (_, digest) in adoption.found(study).items()}
    return [_standing(run, study, devices, recipes) for run in study.runs]


def _standing(run, study, devices, recipes):
    skip = site.skip_reason(run, devices, study.images)
    state, reason = records.state(run, not skip, recipes, study.images)
    place = records.folder(run.id)
    if state is State.MISSING:
        return Standing(run, "skipped" if skip else "pending", skip or "", 0.0, 0.0, 0.0)
    log, aside = place / "train.jsonl", costs.attempts(place)
    try:
        record = records.read(place / "run.json")
    except records.RecordError:
        record = None
    if state is State.CURRENT and record is None:
        state, reason = State.STALE, "its record went while it was looked at"
    if state is State.CURRENT:
        name, message = record["status"], record["message"]
        whole = not record["summary"].get("resumes")
        ended_well = name in DONE
    else:
        name, message = _unfinished(state, log, record, skip, study.hang_limit_s, reason)
        message, whole = message.replace(f"{place}/", ""), False
        ended_well = (eventlog.ended(log) or {}).get("status") in DONE
    duration_s = progress.duration_s(log) if whole else None
    if duration_s is None:
        own = costs.parts(log)
        own = costs.until_now(own) if name == "running" else own
        duration_s, used_s = sum(own.values()), sum(costs.longer(own, aside).values())
    else:
        used_s = duration_s + sum(aside.values())
    return Standing(
        run, name, message, duration_s, used_s, used_s - duration_s, ended_well,
        _progress(log) if name == "running" else None,
    )  # fmt: skip


def _unfinished(state, log, record, skip, hang_limit_s, reason):
    """(state, message) of a run that is not done, though it has a folder."""
    there, ended = log.is_file(), eventlog.ended(log)
    recorded = record is not None or (log.parent / "run.json").exists()
    if not ended and progress.head(log) and _is_written(log, hang_limit_s):
        return "running", ""
    if state is State.UNREAD:
        return "unread", reason
    if skip:
        return "skipped", skip
    if not there and not recorded:
        return "pending", ""
    if there and not ended and not recorded:
        return "interrupted", "its log stops without an end"
    return "stale", reason


def _is_written(log, hang_limit_s):
    """Whether somebody still writes a log that has no end.

    Yes where it or another rank's was written just now, or where its supervisor is a process
    here. No where it is not and the trainer ran here. Otherwise (on another machine, or before
    the trainer's first words) as long as the supervisor would let it be quiet.
    """
    quiet_s = time.time() - max(map(_written_at, eventlog.rank_paths(log)), default=0.0)
    here = _supervised_here()
    if quiet_s <= FRESH_S or (here and str(log.resolve()) in here):
        return True
    hosts = [event.get("host") for event in progress.head(log) if event["event"] == "run_start"]
    if here is not None and hosts == [socket.gethostname()]:
        return False
    return quiet_s <= hang_limit_s


def _written_at(path):
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _supervised_here():
    """The logs of the runs that start_run.py supervises on this machine; None if it hides that."""
    return _logs_of_processes(int(time.time()))


@functools.lru_cache(maxsize=1)
def _logs_of_processes(_second):
    found = set()
    try:
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--log" not in words or not any(w.endswith(b"start_run.py") for w in words):
                continue
            log = words[words.index(b"--log") + 1].decode()
            found.add(str(Path(os.readlink(f"/proc/{pid}/cwd"), log).resolve()))
        except (OSError, IndexError, UnicodeDecodeError):
            continue  # ended meanwhile, or not ours
    return found


def _progress(log):
    try:
        return progress.latest(log)
    except (KeyError, TypeError, ValueError):
        return None  # a line that is being written, or a log of another version


def _left_by_steps(standing):
    """Seconds that the steps of a running run still take, None where it has not done enough."""
    found = standing.going
    if not found or found.step_time_s is None:
        return None
    return max(0, found.total_steps - found.step) * found.step_time_s


def _left(standing, estimates):
    """(seconds that a run still takes, on what that rests)."""
    own = _left_by_steps(standing)
    if own is not None:
        return own, OWN_STEPS
    seconds, basis = estimates.of(standing.run)
    if seconds is not None and standing.state == "running":
        seconds = max(0.0, seconds - standing.duration_s)
    return seconds, basis


def _grouped(reasons):
    groups = {}
    for state, message in reasons:
        key = state, re.sub(r"\d[\d.]*", "0", message)
        groups.setdefault(key, [message, 0])[1] += 1
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] in INTENDED, -item[1][1]))
    return [
        {"state": state, "message": message, "runs": number}
        for (state, _), (message, number) in ordered
    ]


def _running(standing, left_s):
    found = standing.going
    return {
        "run_id": standing.run.id,
        "label": standing.run.label(),
        "step": found.step if found else None,
        "total_steps": found.total_steps if found else None,
        # JSON has no nan.
        "loss": found.loss if found and math.isfinite(found.loss) else None,
        "images_per_second": found.images_per_second if found else None,
        "elapsed_s": standing.duration_s,
        "left_s": left_s,
    }


def _cost(standings, left):
    nodes = {standing.run.id: standing.run.nodes for standing in standings}
    bases = [basis for _, basis in left.values()]
    known = costs.UNKNOWN not in bases
    left_s = sum(seconds for seconds, _ in left.values()) if known else None
    done_at = datetime.now(timezone.utc) + timedelta(seconds=left_s) if left and known else None
    return {
        "used_node_hours": sum(s.used_s * s.run.nodes for s in standings) / 3600,
        "aside_node_hours": sum(s.aside_s * s.run.nodes for s in standings) / 3600,
        "left_node_hours": (
            sum(seconds * nodes[run_id] for run_id, (seconds, _) in left.items()) / 3600
            if known
            else None
        ),
        "left_s": left_s,
        "done_at": done_at.strftime(eventlog.UTC_FORMAT) if done_at else None,
        "estimates": {
            basis: bases.count(basis) for basis in (OWN_STEPS, *costs.BASES, costs.UNKNOWN)
        },
    }


def _row(standing):
    return {
        "run_id": standing.run.id,
        "label": standing.run.label(),
        "state": standing.state,
        "message": standing.message,
        "duration_s": standing.duration_s,
        "node_hours": standing.used_s * standing.run.nodes / 3600,
    }


def lines(found):
    """A report for people: quiet about what there is none of."""
    counts = found["combinations"]
    yield f"{found['study']} on {found['site']}: {counts['total']} runs"
    yield ""
    done, failed = (sum(counts[state] for state in states) for states in (DONE, FAILED))
    yield _count("done", done, _split(counts, DONE) if counts["unstable"] else "")
    for state in ("running", "pending", "interrupted", "stale", "unread"):
        if counts[state]:
            yield _count(state, counts[state], "")
    if failed:
        yield _count("failed", failed, _split(counts, FAILED))
    for state in ("skipped", "excluded"):
        if counts[state]:
            yield _count(state, counts[state], "")
    if found["running"]:
        yield from ("", "running")
        for run in found["running"][:SHOWN]:
            yield f"  {run['label']}"
            yield f"    {_going(run)}"
        yield from _more(found["running"])
    if found["reasons"]:
        yield from ("", "why")
        for reason in found["reasons"][:SHOWN]:
            yield f"{reason['runs']:7d}  {reason['state']:<11}  {reason['message'][:200]}"
        yield from _more(found["reasons"])
    yield ""
    yield from _cost_lines(found["cost"], any(counts[state] for state in LEFT))
    if found["runs"]:
        yield ""
        for run in found["runs"]:
            said = f": {run['message']}" if run["message"] else ""
            yield f"{run['state']:<11}  {duration(run['duration_s']):>8}  {run['label']}{said}"


def duration(seconds):
    """Seconds in words of two units at most.

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
    if len(entries) > SHOWN:
        yield f"  and {len(entries) - SHOWN} more; --json has them all"


def _going(run):
    words = "no step yet"
    if run["step"] is not None:
        words = f"step {run['step']}/{run['total_steps']}"
    if run["images_per_second"] is not None:
        words += f", {run['images_per_second']:.4g} images/s"
    words += f", since {duration(run['elapsed_s'])}"
    return words if run["left_s"] is None else f"{words}, {duration(run['left_s'])} left"


def _cost_lines(cost, any_left):
    aside = cost["aside_node_hours"]
    kept = f", of which {costs.node_hours(aside)} in attempts kept aside" if aside else ""
    yield f"  used  {costs.node_hours(cost['used_node_hours'])}{kept}"
    if not any_left:
        return
    if cost["left_s"] is None:
        yield "  left  unknown: no run of this study has ended well yet"
        return
    there = datetime.strptime(cost["done_at"], eventlog.UTC_FORMAT).replace(tzinfo=timezone.utc)
    yield (
        f"  left  about {costs.node_hours(cost['left_node_hours'])}; one after the other "
        f"{duration(cost['left_s'])}, until {there.astimezone():%a %d %b %H:%M}"
    )
    yield f"        {costs.resting(cost['estimates'])}"
