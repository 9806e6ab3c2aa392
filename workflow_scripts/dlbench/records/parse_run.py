"""Make the record of a run from its event logs.

- All step times are those of one rank, the slowest over the measured steps
  (dlbench/records/step_times.py). A step's loss is the mean over the ranks.
- Throughput is items over time: all items of the measured steps over the time of that rank. If the
  median step time implies a throughput that differs by more than 5 %, the run is unstable: some
  steps stalled or, if the median is the slower one, fast and slow steps alternate. Mode input is
  exempt, since batches without a model arrive in bursts.
- Compile time is the time of tracing, plus what the first step took longer than the median one.
- If weights differ between ranks at the end, they did not train one model, and the run failed. So
  it did if ranks did not take all steps.
- A completed run is unstable if neighbours used more than they may
  (dlbench/starting/neighbours.py).
- Copies of a run (copies_per_node) have logs as ranks do, but each trains its own model. Throughput
  is the mean over the copies, step times are those of all copies. If the copies were not measured
  at the same time, the run is unstable.

Needs the standard library only: a record is written where the run was trained.
"""

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

from dlbench.common import phrases
from dlbench.common.files import sha256
from dlbench.log import energies, event_fields, event_log
from dlbench.machine import nccl_log
from dlbench.records import (
    account,
    belief,
    computing,
    disturbances,
    epochs,
    external_log,
    memory,
    provenance,
    run_record,
    step_times,
)
from dlbench.records.step_times import images_per_second
from dlbench.study.runs import Run
from dlbench.trainer.reading import inputs

MAX_RATE_DIFFERENCE = 0.05
MIN_OVERLAP = 0.9
READ = (
    *("launch", "begin", "stage", "page_cache", "machine", "run_start", "compile", "met"),
    *("windows", "warm_up", "step", "eval", "sample", "resume", "imported", "profile", "metric"),
    *("calibration", "neighbours", "power_meter", "power_limit", "nccl", "run_end"),
)
NEIGHBOUR_FIELDS = (
    *("others_cpu_cores", "cores", "node_others_cpu_cores", "node_cores", "other_gpu_processes"),
    *("steal_cpu_cores", "cpu_pressure_percent", "memory_pressure_percent", "io_pressure_percent"),
    *("others_disk_bytes_per_s", "cpu_clock_mhz", "cpu_throttle_count", "load_before_1min"),
    *("quota_throttled_percent", "quota_throttled_s", "waited_for_quiet_s"),
)


def parse(run: Run, log: str | Path, output: str | Path) -> None:
    """Write the record of one run.

    Args:
        run: the Run that the log belongs to.
        log: path of rank 0's log; those of the other ranks or copies lie beside it.
        output: path of the record, run.json; it lies beside the log.

    Raises:
        LogError: a log is missing, is no event log, is that of another run, or has no run_end.
    """
    logs = rank_logs(log)
    run_record.write(output, content(run, logs), belief.files(logs))


def rank_logs(log: str | Path) -> "list[RankLog]":
    """The RankLog of each rank or copy, given the path of the first one's."""
    return [RankLog(path) for path in event_log.rank_paths(log)]


def content(run: Run, logs: "list[RankLog]") -> dict[str, Any]:
    """The content of a record, from the logs, without its list of files; see `parse`."""
    starts = {log.path: log.start for log in logs if log.start}
    if reason := belief.describe_other_run(run, starts):
        raise event_fields.LogError(f"{logs[0].path}: not that of {run.id}: {reason}")
    summary = _summary(run, logs) if logs[0].is_logged or not run.is_external else {}
    firsts = [copy[0] for copy in _by_copy(run, logs)]
    summary = external_log.summary(firsts, summary) if run.is_external else summary
    summary |= external_log.metric_summary(firsts)
    status, message = _status(run, logs, summary)
    summary |= _neighbours(logs[0].neighbours) | energies.power_limits(logs[0].power_limit)
    if status in event_fields.SUCCEEDED and summary.get("disturbed"):
        status, message = "unstable", "; ".join(filter(None, (summary["disturbed"], message)))
    return {
        "run_id": run.id,
        "spec": run.values(),
        "status": status,
        "message": message,
        "made_from": logs[0].launch.get("made_from") or {},
        "log_sha256": sha256(logs[0].path),
        "summary": summary,
        "provenance": provenance.from_logs(logs),
    }


class RankLog:
    """The events of one rank, sorted by kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.timeline: list[dict[str, Any]] = []
        kinds: dict[str, list[dict[str, Any]]] = {name: [] for name in READ}
        try:
            for event in event_log.read(path):
                kinds.setdefault(event["event"], []).append(event)
                if event["event"] in account.TIMED:
                    self.timeline.append(event)
        except FileNotFoundError:
            raise event_fields.LogError(f"{path}: there is no training log") from None
        self.launch: dict[str, Any] = next(iter(kinds["launch"]), {})
        self.begin: dict[str, Any] = next(iter(kinds["begin"]), {})
        self.page_cache: dict[str, Any] = next(iter(kinds["page_cache"]), {})
        self.machines = kinds["machine"]  # another one where the run was resumed
        self.start: dict[str, Any] = next(iter(kinds["run_start"]), {})
        self.is_logged = "logger" in self.start  # by dlbench_log.py
        self.trace_s = next((event.get("trace_s") for event in kinds["compile"]), None)
        self.waited_s = sum(event["waited_s"] for event in kinds["met"])
        self.window_steps = kinds["windows"][-1]["steps_per_sync"] if kinds["windows"] else 1
        self.total_steps = (kinds["warm_up"] or [self.start])[-1].get("total_steps")
        self.steps, self.evals = computing.steps(self.start, kinds["step"]), kinds["eval"]
        self.stages, self.samples, self.resumes = (kinds[k] for k in ("stage", "sample", "resume"))
        self.imported, self.metrics = next(iter(kinds["imported"]), None), kinds["metric"]
        self.profile: dict[str, Any] = next(iter(kinds["profile"]), {})
        self.calibration: dict[str, Any] = next(iter(kinds["calibration"]), {})
        self.neighbours: dict[str, Any] = next(iter(kinds["neighbours"][-1:]), {})
        self.meter: dict[str, Any] = next(iter(kinds["power_meter"][-1:]), {})
        self.nccl: dict[str, Any] = next(iter(kinds["nccl"][-1:]), {})
        self.power_limit: dict[str, Any] = next(iter(kinds["power_limit"][-1:]), {})
        self.end = kinds["run_end"][-1] if kinds["run_end"] else None


def _by_copy(run, logs):
    """[logs of each model that was trained]: one log for each copy, or those of all ranks."""
    return [[log] for log in logs] if run.copies_per_node > 1 else [logs]


def _measured_steps(logs):
    """The windows of steps after the warm-up that all ranks of one copy finished.

    Returns:
        Three lists, with a value for each window: seconds of a step (of the slowest rank), number
        of steps, and loss of the last step (mean over ranks).
    """
    steps = [ranks for ranks in step_times.of_all_ranks(logs) if not ranks[0]["warm_up"]]
    losses = [sum(event.get("loss", math.nan) for event in ranks) / len(ranks) for ranks in steps]
    return step_times.slowest(steps), step_times.windows(steps), losses


def _summary(run, logs):
    copies = _by_copy(run, logs)
    measured = [_measured_steps(copy) for copy in copies]
    times_by_copy = [step_times.of_steps(times, windows) for times, windows, _ in measured]
    times, windows = (list(itertools.chain(*(each[i] for each in measured))) for i in (0, 1))
    first = logs[0]
    ends = [log.end["t_s"] for log in logs if log.end and "t_s" in log.end]
    summary = {
        "steps_measured": len(times_by_copy[0]),
        "burn_in_steps": step_times.count(step for step in first.steps if step["warm_up"]),
        "window_steps": max(log.window_steps for log in logs) if first.steps else None,
        "resumes": len(first.resumes),
        "duration_s": max(ends, default=None),
        "parameters": first.start.get("parameters"),
        "started_at": first.start.get("t_utc", first.launch.get("t_utc")),
        "ended_at": first.end["t_utc"] if first.end else None,
    }
    if all(times_by_copy):
        summarised = step_times.summary(times, windows)
        median = summarised["step_time_median_s"]
        rates = [images_per_second(times_s, run.global_batch) for times_s in times_by_copy]
        losses = measured[0][2]
        summary |= {
            "images_per_second": statistics.fmean(rates),
            **summarised,
            # JSON has no nan.
            "final_loss": losses[-1] if math.isfinite(losses[-1]) else None,
            "compile_s": _compile_s(logs, median),
            "first_epoch_images_per_second": _first_epoch(run, copies),
            "epochs_images_per_second": epochs.images_per_second(run, copies),
        }
        if len(copies) > 1:
            summary |= {
                "copies_images_per_second": rates,
                "copy_sd_images_per_second": statistics.stdev(rates),
                "overlap": _overlap(logs),
            }
    if first.evals:
        last = first.evals[-1]
        summary |= {
            key: last[key] if math.isfinite(last[key]) else None
            for key in event_log.SCORES
            if key in last
        }
    return (
        summary
        | computing.summary(run, first)
        | _start_up(logs)
        | account.summary(first)
        | _energy_and_cpu(logs)
        | memory.summary(logs)
        | nccl_log.columns(log.nccl for log in logs)
    )


def _start_up(logs):
    """Seconds of starting, importing and the first step, each the maximum over ranks.

    Starting is that of the container or, on bare metal, of Python. It is unknown with Snakemake's
    container directive, which enters the container before the first date.
    """
    launch = logs[0].launch
    by_directive = (launch.get("container") or {}).get("start") == "directive"
    launched = launch.get("t_utc")
    begins = [log.begin.get("t_utc") for log in logs]
    starts = [log.start.get("t_utc") for log in logs]
    if not launched or None in begins + starts or any(log.resumes for log in logs):
        return {}
    between = event_log.seconds_between
    if min(map(between, [launched] * len(begins) + begins, begins + starts)) < 0:
        return {}  # somebody set the clock
    return {
        "start_s": None if by_directive else max(between(launched, begin) for begin in begins),
        "import_s": max(map(between, begins, starts)) - logs[0].page_cache.get("spent_s", 0.0),
        "first_batch_s": max(
            (log.steps[0]["t_s"] - log.waited_s for log in logs if log.steps),  # for other copies
            default=None,
        ),
    }


def _compile_s(logs, median):
    """Seconds of tracing and of compiling in the first step, the maximum over ranks."""
    spent = [
        log.trace_s + max(0.0, log.steps[0]["step_time_s"] - median)
        for log in logs
        if log.trace_s is not None and log.steps
    ]
    return max(spent, default=None)


def _first_epoch(run, copies):
    """Throughput of the first of several epochs, which reads files for the first time.

    Its first step, which compiles, is left out.
    """
    if not run.epochs or run.epochs < 2:
        return None
    rates = []
    for logs in copies:
        steps = [ranks for ranks in step_times.of_all_ranks(logs) if ranks[0].get("epoch") == 1]
        if len(steps) > 1:
            times = step_times.slowest(steps[1:])
            times = step_times.of_steps(times, step_times.windows(steps[1:]))
            rates.append(images_per_second(times, run.global_batch))
    return statistics.fmean(rates) if len(rates) == len(copies) else None


def _overlap(logs):
    """Share of the copies' measured time during which all of them were measured.

    Copies share the clock of their host, by which run_start has the date of each log's time 0.
    """
    zero = logs[0].start["t_utc"]
    spans = []
    for log in logs:
        start_s = event_log.seconds_between(zero, log.start["t_utc"])
        measured = [step for step in log.steps if not step["warm_up"]]
        first, last = measured[0], measured[-1]
        spans.append((start_s + first["t_s"] - step_times.window_s(first), start_s + last["t_s"]))
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    return max(0.0, together) / statistics.fmean(end - start for start, end in spans)


def _neighbours(values):
    """What others used during the run, from the supervisor's event; {} if there is none."""
    if not values:
        return {}
    return {
        **{name: values.get(name) for name in NEIGHBOUR_FIELDS},
        "neighbours_unknown": "; ".join(f"{k}: {why}" for k, why in values["unknown"].items()),
        "disturbed": disturbances.describe_disturbance(values) or None,
    }


def _energy_and_cpu(logs):
    """Energy and CPU time, summed over all ranks."""
    ends = [log.end or {} for log in logs]
    cpu_s = [end.get("cpu_time_s") for end in ends]
    cpu_time_s = math.fsum(cpu_s) if cpu_s and None not in cpu_s else None
    return {**energies.summary(ends, logs[0].meter), "cpu_time_s": cpu_time_s}


def _status(run, logs, summary):
    """Status and message of the run from those of its ranks."""
    if logs[0].end is None:
        raise event_fields.LogError(
            f"{logs[0].path}: no run_end: the run was cut short; train it again"
        )
    differs = external_log.mismatch if run.is_external else _mismatch
    if failure := _failure(run, logs) or differs(run, logs, summary):
        return failure
    # Without step times, stalls cannot be detected.
    timed = _by_copy(run, logs) if "step_time_median_s" in summary or not run.is_external else []
    models = {event.get("device_model") for log in logs for event in (log.start, *log.resumes)}
    if len(models) > 1:
        return "unstable", f"trained on different devices: {', '.join(sorted(map(str, models)))}"
    for number, copy in enumerate(timed):
        times = step_times.of_steps(*_measured_steps(copy)[:2])
        if run.is_external and not (times and all(0 < time < math.inf for time in times)):
            continue
        by_total = images_per_second(times, run.global_batch)
        by_median = run.global_batch / statistics.median(times)
        if run.mode != inputs.INPUT_ONLY and abs(by_total / by_median - 1) > MAX_RATE_DIFFERENCE:
            prefix = f"copy {number}: " if run.copies_per_node > 1 else ""
            why = "some steps stalled" if by_total < by_median else "fast and slow steps alternate"
            return "unstable", (
                f"{prefix}{phrases.four_digits(by_total)} items/s on average, "
                f"{phrases.four_digits(by_median)} at the median step time: {why}"
            )
    if summary.get("overlap", 1.0) < MIN_OVERLAP:
        return "unstable", (
            f"all copies were measured at once in {summary['overlap']:.0%} of their time only: "
            "take more steps, or see in the logs (ready, met, step) which of them is late or slow"
        )
    return "ok", ""


def _failure(run, logs):
    """Status and message if a rank or copy failed, or has no run_end."""
    kind = "copy" if run.copies_per_node > 1 else "rank"
    ends = [log.end for log in logs]
    silent = [rank for rank, end in enumerate(ends) if end is None]
    # Then the supervisor wrote the run_end, which is about all ranks.
    supervised = any((ends[0] or {}).get(name) for name in ("hung", "before_first_step"))
    for worst in ("oom", "timeout", "failed", "skipped"):
        if worst == "failed" and silent and not supervised:
            # The others failed, or were stopped, because this one died.
            steps = logs[silent[0]].steps
            after = f"after step {steps[-1]['step']}" if steps else "before its first step"
            return "failed", f"{kind} {silent[0]} ended without a word {after}"
        for rank, end in _in_order_of_time(ends):
            if end["status"] == worst:
                # A run_end of the supervisor is about all copies.
                is_of_all = kind == "copy" and "hung" in end
                prefix = f"{kind} {rank}: " if len(logs) > 1 and not is_of_all else ""
                return worst, prefix + end["message"]
    return None


def _in_order_of_time(ends):
    """(rank, run_end) of the ranks that have one: the earliest first, stopped ones last.

    The first to fail is the cause; the others fail because it is gone.
    """
    ended = [(rank, end) for rank, end in enumerate(ends) if end]
    stopped = event_log.STOPPED_BY_SIGNAL
    return sorted(ended, key=lambda one: (one[1]["message"] == stopped, one[1].get("t_utc", "")))


def _mismatch(run, logs, summary):
    """Status and message if the ranks or copies did not do what the run's fields say."""
    copies = _by_copy(run, logs)
    if len(copies) != run.copies_per_node:
        return "failed", f"expected {run.copies_per_node} copies, found {len(copies)} logs"
    for copy in copies:
        digests = {digest for log in copy for digest in log.end["weights_sha256"]}
        if len(digests) > 1:
            return "failed", (
                f"the weights differ over the devices at the end ({len(digests)} versions): "
                "they did not train one model, so the times mean nothing"
            )
        devices = sum(len(log.start.get("devices", ())) for log in copy)
        if devices != run.devices:
            return "failed", (
                f"expected {run.devices} devices, found {devices} in the logs of "
                f"{len(copy)} rank(s)"
            )
    for (a, one), (b, other) in itertools.combinations(enumerate(copies), 2):
        shared = set(one[0].start.get("cores") or ()) & set(other[0].start.get("cores") or ())
        if shared:
            return "failed", f"copies {a} and {b} shared the cores {sorted(shared)}"
    for copy in copies:  # each warms up by itself, so they may have unequal numbers of steps
        done = [log.steps[-1]["step"] if log.steps else 0 for log in copy]
        if set(done) != {expected := copy[0].total_steps}:
            return "failed", f"expected {expected} steps, found {' and '.join(map(str, done))}"
    if logs[0].evals and not math.isfinite(logs[0].evals[-1]["loss"]):
        return "failed", "the loss on held-out items is not a number"
    if "images_per_second" not in summary:
        return "failed", "no step was measured after the warm-up"
    return None
