"""Make the record of a run from its event logs.

- All step times are those of one rank, the slowest over the measured steps
  (dlbench/records/step_times.py). A step's loss is the mean over the ranks.
- Throughput is items over time: all items of the measured steps over the time of that rank.
- Compile time is the time of tracing, plus what the first step took longer than the median one.
- Copies of a run (copies_per_node) have logs as ranks do, but each trains its own model. Throughput
  is the mean over the copies, step times are those of all copies.
- The verdict on the run is that of run_status.py.
- `differences` compares a record with its logs, which are parsed again.

Needs the standard library only: a record is written where the run was trained.
"""

import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

from dlbench.common.files import sha256
from dlbench.log import energies, event_fields, event_log
from dlbench.machine import nccl_log
from dlbench.records import account, belief, run_record, run_status, step_times, summaries
from dlbench.records.step_times import images_per_second
from dlbench.study.runs import Run

READ = (
    *("launch", "begin", "stage", "page_cache", "machine", "run_start", "compile", "met"),
    *("windows", "warm_up", "step", "eval", "sample", "resume", "imported", "profile", "metric"),
    "checkpoint_written",
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

    Raises LogError: a log is missing, is no event log, is that of another run, or has no run_end.
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
    firsts = [copy[0] for copy in step_times.by_copy(run, logs)]
    summary = summaries.of_other_program(firsts, summary) if run.is_external else summary
    summary |= summaries.metric_summary(firsts)
    status, message = run_status.status(run, logs, summary)
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
        "provenance": summaries.from_logs(logs),
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
        self.steps, self.evals = summaries.steps(self.start, kinds["step"]), kinds["eval"]
        self.stages, self.samples, self.resumes = (kinds[k] for k in ("stage", "sample", "resume"))
        self.imported, self.metrics = next(iter(kinds["imported"]), None), kinds["metric"]
        self.writes = kinds["checkpoint_written"]
        self.profile: dict[str, Any] = next(iter(kinds["profile"]), {})
        self.calibration: dict[str, Any] = next(iter(kinds["calibration"]), {})
        self.neighbours: dict[str, Any] = next(iter(kinds["neighbours"][-1:]), {})
        self.meter: dict[str, Any] = next(iter(kinds["power_meter"][-1:]), {})
        self.nccl: dict[str, Any] = next(iter(kinds["nccl"][-1:]), {})
        self.power_limit: dict[str, Any] = next(iter(kinds["power_limit"][-1:]), {})
        self.end = kinds["run_end"][-1] if kinds["run_end"] else None


def _summary(run, logs):
    copies = step_times.by_copy(run, logs)
    measured = [step_times.measured(copy) for copy in copies]
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
            "epochs_images_per_second": summaries.by_epochs(run, copies),
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
        | summaries.of_model(run, first)
        | _start_up(logs)
        | account.summary(first)
        | _energy_and_cpu(logs)
        | summaries.of_memory(logs)
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
        "disturbed": run_status.describe_disturbance(values) or None,
    }


def _energy_and_cpu(logs):
    """Energy and CPU time, summed over all ranks."""
    ends = [log.end or {} for log in logs]
    cpu_s = [end.get("cpu_time_s") for end in ends]
    cpu_time_s = math.fsum(cpu_s) if cpu_s and None not in cpu_s else None
    return {**energies.summary(ends, logs[0].meter), "cpu_time_s": cpu_time_s}


def differences(record: dict[str, Any], log: Path) -> list[tuple[str, Any, Any]]:
    """The differences between a record and its logs. The record must be of this parser's version.

    Args:
        record: as run_record.read returns it.
        log: path of rank 0's log; those of the other ranks or copies are beside it.

    Returns [(name, value in the record, value from the logs)]; [] if they agree. Raises Error: the
    record names no run, or a log cannot be read or is not that of the run.
    """
    logs = rank_logs(log)
    expected = content(Run.from_spec(record["spec"]), logs)
    expected["files"] = run_record.files_of(belief.files(logs))
    recorded, expected = dict(_flat(record)), dict(_flat(json.loads(json.dumps(expected))))
    # An older record may lack a fact of provenance.
    names = [name for name in expected if name in recorded or not name.startswith("provenance")]
    only_recorded = [
        name for name in recorded if name.startswith("summary.") and name not in expected
    ]
    return [
        (name, recorded.get(name), expected.get(name))
        for name in [*names, *only_recorded]
        if not _same(recorded.get(name), expected.get(name))
    ]


def _flat(values):
    """Yield (name, value); the values of summary and provenance one by one."""
    for name, value in values.items():
        if name in ("summary", "provenance"):
            yield from ((f"{name}.{key}", part) for key, part in value.items())
        else:
            yield name, value


def _same(one, other):
    """Whether two values are equal; floats may differ by the rounding of other Python versions."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if type(one) is float and type(other) in (int, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
