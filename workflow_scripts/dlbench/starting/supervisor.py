"""Start the trainer of a run, watch it, and make sure that its log ends with a status.

- Ends the trainer with all its processes at the time limit, when it or one of several copies hangs
  (logs no step, evaluation or checkpoint for long), when a signal arrives, and when the workflow
  that started this process is gone. A window of steps is logged at its end, so a trainer that takes
  windows may be silent for the duration of a window longer.
- Requests a last checkpoint first, if the run writes checkpoints. The request is a file, since a
  signal would not reach ranks on other nodes or in containers. A program of others gets the signal
  that the config names for it.
- Writes the run_end of a trainer that ended without one (killed, crashed).
- An attempt that ends before its first step measured nothing: it failed for a reason that may
  pass.
- Sets and restores the power limit of a run that has one.
- Prints a line at the start, one every few seconds, and one at the end of an attempt without a
  result; run_lines.py prints the end of attempts with one, from the record.
"""

import contextlib
import json
import math
import signal
import subprocess
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.log import attempts, event_log
from dlbench.machine import nccl_log, redaction
from dlbench.records import costs, run_status
from dlbench.starting import fates, neighbours, power, processes, run_lines
from dlbench.study import other_trainers
from dlbench.trainer import checkpoints

POLL_S = 0.2
SHOW_EVERY_S = 10.0
TIME_LIMIT, HANG = "time limit", "hang"
INTERRUPTED = "interrupted"  # no status of a result
TRIED_AGAIN = "it is tried again"


class Outcome(Enum):
    """The outcome of an attempt; true if it is a result.

    REPEAT: it failed for a reason that may pass, or others disturbed it, and it is to be repeated.
    """

    RESULT = "result"
    REPEAT = "repeat"
    NONE = "none"

    def __bool__(self) -> bool:
        return self is Outcome.RESULT


@dataclass(frozen=True)
class SupervisedRun:
    """What the supervisor needs to know of a run."""

    log: Path
    messages: Path
    command: tuple[str, ...]
    label: str
    position: str
    launch: dict[str, Any]
    time_limit_s: float
    last_attempt: bool
    hang_limit_s: float = float("inf")
    checkpoint: Path | None = None
    copies: int = 1
    cleanup: tuple[str, ...] | None = None
    watch: neighbours.Watch = field(default_factory=neighbours.Watch)
    wait_for_quiet_s: float = 0.0
    busy_marker: Path | None = None
    power_meter: str | None = None
    power_limit: power.Limits | None = None
    nodes: int = 1
    output: Path | None = None  # the folder of another program, whose log is read at its end
    stop_signal: str | None = None  # by which it may be asked for a checkpoint
    stop_grace_s: float = processes.CHECKPOINT_GRACE_S

    @property
    def logs(self) -> list[Path]:
        """The logs that show whether the run makes progress: that of rank 0, or of each copy."""
        return [event_log.rank_path(self.log, copy) for copy in range(self.copies)]


def supervise(run: SupervisedRun) -> Outcome:
    """Start the trainer and watch it until it ends.

    Returns RESULT if the log now has the run's result, which may be a failure.

    Raises power.Refused: the run is to have a power limit that cannot be set; nothing was done.
    """
    watch = run.watch
    with (
        processes.stopping_from_outside() as stopping_reason,
        contextlib.ExitStack() as until_ended,
    ):
        if stopped_by := _wait_for_quiet(run, watch, stopping_reason):
            _report(run, f"{INTERRUPTED} (stopped by {stopped_by}); {_describe_next_start(run)}")
            return Outcome.NONE
        if run.power_limit:
            until_ended.enter_context(run.power_limit.held())
        _clear(run.log)
        _report(run, _checkpoint_to_start_from(run), goes_on=True)
        log = event_log.EventLog(run.log)
        command = redaction.redact_command(run.command)
        log.write("launch", t_utc=event_log.utc_now(), command=command, **run.launch)
        attempts.link_open_log(run.log)
        nccl_log.clear(run.log.parent)
        started = time.monotonic()
        printed_bytes = run.messages.stat().st_size if run.messages.exists() else 0
        killed_before = processes.killed_for_memory()
        try:
            with power.reading(run.power_meter, run.log, run.nodes) as meter:
                trainer = processes.start(run.command, run.log, run.messages)
                stopped_by = _watch(trainer, run, started, stopping_reason, watch)
        finally:
            if run.cleanup:
                with open(run.messages, "ab") as messages:
                    subprocess.run(run.cleanup, stdout=messages, stderr=messages, check=False)
    if run.log.parent.is_symlink() or not run.log.is_file():
        log.close()
        refuse(run, "failed", f"its program removed or replaced {run.log.parent} or its log")
        return Outcome.RESULT
    neighbour_use = {"t_utc": event_log.utc_now(), **watch.summarise(run.log)}
    with contextlib.suppress(OSError):  # a full disk, which the end of the run tells
        if run.power_limit:
            log.write("power_limit", **run.power_limit.fields())
            neighbour_use["power_limit_changed"] = run.power_limit.changed or None
        if meter:
            log.write("power_meter", **meter.fields())
        log.write("neighbours", **neighbour_use)
    end = _end_of_ranks(run.log)
    cut_short, no_result, outcome = stopped_by or end is None, "", Outcome.RESULT
    if cut_short:
        killed = processes.killed_for_memory() > killed_before
        ending = trainer.returncode, stopped_by, killed
        status, message, may_pass = _verdict(run, *ending, printed_bytes)
        # An interruption from outside is no result, not even a failure.
        if status == INTERRUPTED:
            no_result, outcome = _describe_next_start(run), Outcome.NONE
        elif may_pass and not run.last_attempt:
            no_result, outcome = TRIED_AGAIN, Outcome.REPEAT
        end = {"status": status, "message": message, "hung": stopped_by == HANG}
        end |= _limit(run, status) | _no_step(status, not _took_step(run))
    elif end.get("before_first_step") and not run.last_attempt:
        no_result, outcome = TRIED_AGAIN, Outcome.REPEAT
    shown = end
    disturbed = run_status.describe_disturbance(neighbour_use)
    if end["status"] == "ok" and disturbed and not run.last_attempt:
        no_result, outcome = f"{TRIED_AGAIN}, unless others_share is null", Outcome.REPEAT
        shown = {"status": "unstable", "message": disturbed}  # as it would be recorded
    if attempts.failed_on_full_disk(run.log, end):
        no_result = f"no room on the disk of {run.log.parent}: make some, then start again"
        outcome = Outcome.NONE
    if not no_result and (cut_short or end != event_log.last_run_end(run.log)):
        fields = {"status": end["status"], "message": end["message"]}
        fields |= _no_step(end["status"], end.get("before_first_step"))
        log.write("run_end", t_utc=event_log.utc_now(), **(end if cut_short else fields))
    log.close()
    if no_result:
        seconds = time.monotonic() - started
        _report(run, f"{run_lines.describe_end(run.log, shown, seconds)}; {no_result}")
        # Moved aside, because Snakemake deletes the outputs of a failed job.
        event_log.keep_aside(run.log)
        attempts.unlink_open_log(run.log)
    return outcome


def _wait_for_quiet(run, watch, stopping_reason):
    """Wait until others on the node are quiet. Returns what ended the wait from outside.

    If a run of the session has waited in vain on this node, the next one only takes a short look.
    """
    most_s = run.wait_for_quiet_s
    if run.busy_marker and run.busy_marker.exists():
        most_s = min(most_s, neighbours.LOOK_S)
    quiet = watch.wait_for_quiet(most_s, stopping_reason, lambda message: _report(run, message))
    with contextlib.suppress(OSError):
        if run.busy_marker and quiet:
            run.busy_marker.unlink(missing_ok=True)
        elif run.busy_marker:
            run.busy_marker.touch()
    return stopping_reason()


def _end_of_ranks(log):
    """The run_end that explains how the ranks ended; None if there is none.

    When one rank ends, the others fail because it is gone, or their launcher stops them. So the
    first failure counts. If a rank has no run_end, no failure of the others counts, except those
    that have a status of their own, as oom.
    """
    ends = [event_log.last_run_end(path) for path in event_log.rank_paths(log) if path.is_file()]
    ended = [end for end in ends if end and end["message"] != event_log.STOPPED_BY_SIGNAL]
    failed = [end for end in ended if end["status"] != "ok"]
    failed.sort(key=lambda end: str(end.get("t_utc", "")))
    for end in failed:
        if end["status"] != "failed":
            return end
    if len(ended) < len(ends):
        stopped = [end for end in ends if end and end not in ended]
        return failed[0] if failed and len(ended) + len(stopped) == len(ends) else None
    return failed[0] if failed else next(iter(ended), None)


def refuse(run: SupervisedRun, status: str, reason: str, before_first_step: bool = False) -> None:
    """Write the log of a run that is not started: skipped, or failed before it was.

    `before_first_step`: whether its attempts measured nothing, so that the next start retries.
    """
    _clear(run.log)
    log = event_log.EventLog(run.log)
    log.write("launch", t_utc=event_log.utc_now(), command=[], **run.launch)
    end = {"status": status, "message": reason, **_limit(run, status)}
    end |= _no_step(status, before_first_step)
    log.write("run_end", t_utc=event_log.utc_now(), **end)
    log.close()


def _limit(run, status):
    """Fields of a timeout: the limit, since a run is tried again at a higher one."""
    limited = status == "timeout" and math.isfinite(run.time_limit_s)
    return {"time_limit_s": run.time_limit_s} if limited else {}


def _no_step(status, before_first_step):
    """Fields of a failure before the first step, which the next start tries again."""
    return {"before_first_step": True} if status == "failed" and before_first_step else {}


def _took_step(run):
    """Whether a step was taken, or may have been: another program's are read at its end."""
    return run.output is not None or costs.took_step(run.log)


def _watch(trainer, run, started, stopping_reason, watch):
    """Wait for the trainer. Returns why it was stopped; "" if it ended by itself."""
    activities = [costs.Activity(log, started) for log in run.logs]
    shown = started
    reason = ""
    try:
        while trainer.poll() is None:
            time.sleep(POLL_S)
            now = time.monotonic()
            watch.read_if_due()
            if reason := stopping_reason():
                pass
            elif now - started > run.time_limit_s:
                reason = TIME_LIMIT
            elif _hangs(activities, now, run.hang_limit_s):
                reason = HANG
            if reason:
                break
            if now - shown > SHOW_EVERY_S:
                shown = now
                _report(run, _progress(run), goes_on=True)
        if reason and reason != HANG:
            _request_checkpoint(trainer, run)
    finally:
        processes.end(trainer, run.log)
    return reason


def _hangs(activities, now, limit_s):
    """Whether an unfinished log has no new events for too long, or all logs have none."""
    quiet = [
        activity
        for activity in activities
        if now - activity.last_s(now) > limit_s + activity.further_steps_s()
    ]
    ended = [activity for activity in quiet if event_log.last_run_end(activity.log)]
    return len(quiet) == len(activities) or len(ended) < len(quiet)


def _request_checkpoint(trainer, run):
    """Request a last checkpoint and wait until the trainer has ended, or a timeout."""
    if run.checkpoint:
        _report(run, "is asked for a checkpoint")
        processes.ask_by_file(trainer, run.checkpoint / checkpoints.STOP_FILE)
    elif run.stop_signal:
        _report(run, f"gets {run.stop_signal}, and {run.stop_grace_s:g} s to end")
        processes.ask_by_signal(trainer, run.stop_signal, run.stop_grace_s)


def _checkpoint_to_start_from(run):
    """Remove a checkpoint from which the run cannot resume. Returns what the run does."""
    if not run.checkpoint:
        return "starts"
    with contextlib.suppress(FileNotFoundError):
        (run.checkpoint / checkpoints.STOP_FILE).unlink()
    try:
        newest = checkpoints.latest(run.checkpoint)
        if newest is None:
            return "starts"
        launch = json.loads(newest.log(0).splitlines()[0])
        if launch.get("made_from") == run.launch["made_from"]:
            return f"goes on after step {newest.step}"
        reason = "is of other code, data or environment"
    except (Error, OSError, ValueError, IndexError, AttributeError, RecursionError) as error:
        reason = f"cannot be read ({error})"
    checkpoints.remove(run.checkpoint)
    return f"starts anew: its checkpoint {reason}"


def _verdict(run, returncode, stopped_by, killed_by_kernel, printed_bytes):
    """(status, message, whether the reason may pass) of a run that did not end by itself.

    `printed_bytes`: size of the messages file before this attempt.
    """
    took_step = _took_step(run)
    if stopped_by in (TIME_LIMIT, HANG):
        message = f"stopped at time_limit_s, {run.time_limit_s:g} s"
        if stopped_by == HANG:
            message = f"hung: no {'output' if run.output else 'step'} for {run.hang_limit_s:g} s"
        message += f"; {_progress_of_all(run)}"
        if stopped_by == TIME_LIMIT and run.stop_signal:
            within = f"within {run.stop_grace_s:g} s of {run.stop_signal}"
            message += f"; it {'ended' if returncode >= 0 else 'did not end'} {within}"
        if run.output:
            printed = run.output / other_trainers.PRINTED
            message += f"; last lines: {run_lines.last_printed(printed, lines=3)}"
        if not took_step:
            message += f"; last lines: {run_lines.last_printed(run.messages, printed_bytes, 3)}"
        is_result = stopped_by == TIME_LIMIT and took_step
        return "timeout" if is_result else "failed", message, not is_result
    if stopped_by:
        return INTERRUPTED, f"stopped by {stopped_by}", True
    if returncode == checkpoints.STOPPED_EXIT_CODE:
        return INTERRUPTED, event_log.STOPPED_BY_SIGNAL, True
    # 128 + SIGKILL is what a launcher returns if one of its processes was killed.
    if returncode in (-signal.SIGKILL, 128 + signal.SIGKILL) and killed_by_kernel:
        return "oom", "killed by the kernel: the host ran out of memory", False
    last_lines = run_lines.last_printed(run.messages, printed_bytes, 1 if took_step else 3)
    exit_text = processes.describe_exit(returncode)
    when = "" if took_step else " before its first step"
    message = f"the trainer ended without a word{when} ({exit_text}): {last_lines}"
    return "failed", message, True


def _clear(log):
    """Empty the run's folder; logs of earlier attempts are moved aside. A link there is removed."""
    if log.parent.is_symlink():
        log.parent.unlink()
    log.parent.mkdir(parents=True, exist_ok=True)
    fates.put_aside(log)
    attempts.rescue(log)
    attempts.put_measured_aside(log)
    for path in (*event_log.rank_paths(log), *event_log.traces(log)):
        path.unlink(missing_ok=True)


def _report(run, message, goes_on=False):
    run_lines.report(run.position, run.label, message, goes_on)


def _progress(run):
    if run.output and not costs.latest(run.log):
        return costs.describe_output(run.output)
    return costs.describe(run.log)


def _progress_of_all(run):
    if run.copies == 1 or run.output:
        return _progress(run)
    return "; ".join(f"copy {number}: {costs.describe(log)}" for number, log in enumerate(run.logs))


def _describe_next_start(run):
    with contextlib.suppress(Error, OSError, ValueError):
        if run.checkpoint and (newest := checkpoints.latest(run.checkpoint)):
            return f"the next start goes on after step {newest.step}"
    return "the next start trains it anew"
