"""Where the wall time of a run went: parts that add up to the whole.

- The account is that of the first process. Times between dates (of the job, launch, begin,
  run_start, run_end) come from the hosts' clocks, times between events from the log's own clock.
- The time by which the first step exceeds a measured one counts as compiling.
- Productive time is the rest of all steps, warm-up included, whose result the run kept. Goodput is
  its share of the whole. Waiting for items, for other processes and for the network is part of the
  steps: a compiled step cannot be seen into.
- Of a program of others without dlbench_log.py, only the start and the steps are known: the rest of
  its time is `other`. It has no account if its log lacks steps, or if they took longer than it ran.
- When a run resumes from a checkpoint, the work done after that checkpoint is lost, and so is the
  time until the run resumes.

Needs the standard library only: a record is written where the run was trained.
"""

import math
import statistics
from typing import Any

from dlbench.log import event_log
from dlbench.records import step_times
from dlbench.trainer.reading import inputs

# The parts in chronological order, with their meaning.
PARTS = {
    "queue": "from the job's submission to its start",
    "start": "of the container, or of Python, until the trainer's first line",
    "imports": "import of the framework, and rendezvous",
    "data": "opening the dataset, and the stream of items",
    "build": "model, initial weights, inventory of the machine",
    "compile": "making the graph, and what the first step took longer than a measured one",
    "warm_up": "the steps before the measured ones",
    "steps": "the measured steps",
    "evaluation": "on held-out items, and waiting for the process that evaluates",
    "checkpoints": "writing them, and agreeing when",
    "waiting": "for the other copies of the run, which start together",
    "restarts": "from the last checkpoint before an interruption until training resumed",
    "profile": "tracing a few further steps, and keeping the trace",
    "calibration": "measuring what the device attains",
    "shutdown": "after the last step or evaluation, until the trainer has ended",
    "other": "the remainder",
}
PRODUCTIVE = ("warm_up", "steps")
# The events between which the log's clock counts.
TIMED = ("compile", "met", "windows", "warm_up", "step", "eval", "checkpoint", "resume")
NOISE_S = 0.1  # tolerance for clocks of hosts and processes that disagree


def summary(log: Any) -> dict[str, Any]:
    """The account of a run for its record: `account_s` by part, `wall_s`, and `goodput`.

    `log`: the parse_run.RankLog of its first process.
    """
    parts_s = seconds(log)
    if not parts_s:
        return {}
    return {
        "account_s": {name: round(value, 6) for name, value in parts_s.items()},
        "wall_s": _whole_s(log, parts_s),
        "goodput": goodput(parts_s),
    }


def seconds(log: Any) -> dict[str, float]:
    """Seconds of each part of a run, from the log of its first process.

    `log`: its parse_run.RankLog. Returns all PARTS; {} if dates are missing, or if a clock was set
    during the run.
    """
    dates = [log.launch.get("t_utc"), log.begin.get("t_utc"), log.start.get("t_utc")]
    if None in dates or not (log.end or {}).get("t_utc"):
        return {}
    spent = dict.fromkeys(PARTS, 0.0)
    spent["queue"] = _queue(log.launch)
    if log.imported and not log.is_logged:
        return _of_other_program(spent, log)
    _before_the_clock(spent, log, *dates)
    zero, done_s = _by_the_clock(spent, log)
    between = event_log.seconds_between
    after = between(zero, _ended(log)) - done_s
    calibrating = 0.0 if log.calibration.get("kept") else log.calibration.get("spent_s", 0.0)
    for part, took_s in (
        ("profile", log.profile.get("spent_s", 0.0)),
        ("calibration", calibrating),
    ):
        spent[part] = min(took_s, max(after, 0.0))
        after -= spent[part]
    spent["shutdown"] = after
    if min(spent.values()) < -NOISE_S:
        return {}
    return {name: max(0.0, value) for name, value in spent.items()}


def _of_other_program(spent, log):
    """The parts of a run whose steps were read from the log of another program; or {}."""
    steps = [event for event in log.steps if not event.get("rank")]
    windows_s = [step_times.window_s(event) for event in steps]
    if not steps or not all(0 < seconds < math.inf for seconds in windows_s):
        return {}
    if step_times.count(steps) != steps[-1]["step"] - steps[0]["step"] + step_times.window_steps(
        steps[0]
    ):
        return {}  # it logged some of its steps
    for event, seconds in zip(steps, windows_s, strict=True):
        spent["warm_up" if event["warm_up"] else "steps"] += seconds
    between = event_log.seconds_between
    spent["start"] = between(log.launch["t_utc"], log.start["t_utc"])
    spent["other"] = between(log.start["t_utc"], _ended(log)) - math.fsum(windows_s)
    if min(spent.values()) < -NOISE_S:
        return {}
    return {name: max(0.0, value) for name, value in spent.items()}


def goodput(parts_s: dict[str, float]) -> float | None:
    """Share of productive steps in the whole time; None if that is 0.

    >>> goodput({"start": 1.0, "warm_up": 1.0, "steps": 2.0})
    0.75
    """
    whole = math.fsum(parts_s.values())
    return math.fsum(parts_s[name] for name in PRODUCTIVE) / whole if whole else None


def _whole_s(log, parts_s):
    """Seconds of the whole by the hosts' clocks alone; the parts must add up to it."""
    return parts_s["queue"] + event_log.seconds_between(log.launch["t_utc"], _ended(log))


def _ended(log):
    return log.neighbours.get("t_utc") or log.end["t_utc"]


def _queue(launch):
    job = launch.get("job") or {}
    submitted, started = job.get("submitted_at"), job.get("started_at")
    return event_log.seconds_between(submitted, started) if submitted and started else 0.0


def _before_the_clock(spent, log, launched, trainer_started, started):
    """Add the parts from launch to run_start: the start, then the trainer's stages."""
    between = event_log.seconds_between
    spent["start"] = between(launched, trainer_started)
    previous = trainer_started
    for stage in log.stages:
        if stage["t_utc"] > started:
            break  # of a later part of the run
        spent[stage["name"]] += between(previous, stage["t_utc"])
        previous = stage["t_utc"]
    spent["build"] += between(previous, started)


def _by_the_clock(spent, log):
    """Add the parts from run_start to the end of the last step or evaluation.

    Returns the date at which the log's clock was 0, and the end of the work by that clock.
    """
    zero, now, doing = log.start["t_utc"], 0.0, "data"
    median = _median_s(log)
    compiled = (log.start.get("spec") or {}).get("mode") != inputs.INPUT_ONLY
    compiles = compiled  # the next step does
    # Ranks that write checkpoints agree on them between steps, which no event records.
    keeps = any(event["event"] == "checkpoint" for event in log.timeline)
    for event in log.timeline:
        kind, t_s = event["event"], event.get("t_s")
        if kind == "resume":
            lost_s = event_log.seconds_between(zero, event["t_utc"]) - now
            spent["restarts"] += lost_s
            zero, now = event_log.shifted(event["t_utc"], -event["t_s"]), event["t_s"]
            doing, compiles = "data", compiled
        elif kind == "compile" and t_s is not None:
            trace = event.get("trace_s") or 0.0
            spent["data"] += t_s - trace - now
            spent["compile"] += trace
            now, doing = t_s, "other"
        elif kind == "eval" and t_s is not None:
            spent["evaluation"] += t_s - now
            now, doing = t_s, "evaluation"
        elif kind == "met":
            spent[doing] += t_s - event["waited_s"] - now
            spent["waiting"] += event["waited_s"]
            now, doing = t_s, "other"
        elif kind == "checkpoint":  # stamped when it begins
            spent[doing] += t_s - now
            now, doing = t_s, "checkpoints"
        elif kind in ("windows", "warm_up"):  # ranks agree on the length of windows, and its end
            doing = "warm_up" if doing == "other" else doing
        elif kind == "step":
            window_s = step_times.window_s(event)
            spent[doing] += t_s - window_s - now
            more = max(0.0, window_s - step_times.window_steps(event) * median) if compiles else 0.0
            spent["compile"] += more
            spent["warm_up" if event["warm_up"] else "steps"] += window_s - more
            now, doing, compiles = t_s, "checkpoints" if keeps else "other", False
    done_s = max(now, log.end.get("t_s") or now)
    spent["other" if doing == "checkpoints" else doing] += done_s - now
    return zero, done_s


def _median_s(log):
    """Median seconds of measured steps; infinite if there are none, so that no step exceeds it."""
    measured = [event for event in log.steps if not event["warm_up"]]
    times = [event["step_time_s"] for event in measured]
    windows = [step_times.window_steps(event) for event in measured]
    return statistics.median(step_times.of_steps(times, windows)) if times else math.inf
