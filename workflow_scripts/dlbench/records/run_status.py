"""The verdict on a run: its status and why, from its logs, and whether others disturbed it.

- The first rank that failed says what became of the run; those that it left behind fail after it.
- If weights differ between ranks at the end, they did not train one model, and the run failed. So
  it did if ranks did not take all steps.
- If the median step time implies a throughput that differs by more than MAX_RATE_DIFFERENCE, the
  run is unstable: some steps stalled or, if the median is the slower one, fast and slow steps
  alternate. Mode input is exempt, since batches without a model arrive in bursts.
- If copies were not measured at the same time, the run is unstable.
- A completed run is unstable if neighbours used more than they may
  (dlbench/starting/neighbours.py).

What is to be done for a run (judgement.py) follows from its record. Needs the standard library
only.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dlbench.common import phrases
from dlbench.log import event_fields, event_log
from dlbench.records import step_times
from dlbench.records.step_times import images_per_second
from dlbench.study.runs import Run
from dlbench.trainer.reading import inputs

MAX_RATE_DIFFERENCE = 0.05
MIN_OVERLAP = 0.9
# Share of a run's own disk traffic (journals, metadata, late writes) that is counted as others'.
UNATTRIBUTED_SHARE = 0.2
# A run whose items are in memory reads less than this and does not wait for a disk.
MIN_READ_BYTES_PER_S = 1e5
# Cores that daemons and the kernel use on an idle node, for each core of the node.
HOUSEKEEPING = 0.002


def status(run: Run, logs: Sequence[Any], summary: Mapping[str, Any]) -> tuple[str, str]:
    """Status and message of the run from those of its ranks."""
    if logs[0].end is None:
        raise event_fields.LogError(
            f"{logs[0].path}: no run_end: the run was cut short; train it again"
        )
    differs = _mismatch_of_program if run.is_external else _mismatch
    if failure := _failure(run, logs) or differs(run, logs, summary):
        return failure
    # Without step times, stalls cannot be detected.
    timed = (
        step_times.by_copy(run, logs)
        if "step_time_median_s" in summary or not run.is_external
        else []
    )
    models = {event.get("device_model") for log in logs for event in (log.start, *log.resumes)}
    if len(models) > 1:
        return "unstable", f"trained on different devices: {', '.join(sorted(map(str, models)))}"
    for number, copy in enumerate(timed):
        times = step_times.of_steps(*step_times.measured(copy)[:2])
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
    copies = step_times.by_copy(run, logs)
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


def _mismatch_of_program(run, logs, numbers):
    """Status and message of a run if nothing was measured, or not by all of its copies."""
    count = sum(bool(log.imported) for log in logs)
    if count < run.copies_per_node:
        return "failed", f"expected {run.copies_per_node} copies, found {count} logs"
    if numbers.get("images_per_second") or logs[0].metrics:
        return None
    if logs[0].is_logged and (steps := numbers["burn_in_steps"]):
        return "failed", (
            f"all {steps} steps that it logged are warm-up (warmup_steps: {run.warmup_steps}): let "
            "it take more, or name fewer"
        )
    return "failed", "neither throughput nor a metric in its log"


def describe_disturbance(values: dict[str, Any]) -> str:
    """What others used beyond the limits of the config, or a quota took; "" if nothing.

    `values`: of the event `neighbours`; {} if the log has none.
    """
    share = values.get("share")
    reasons = [values["power_limit_changed"]] if values.get("power_limit_changed") else []
    if share is None:
        return "; ".join(reasons)
    others, cores = values.get("others_cpu_cores"), values.get("cores") or 0
    limit = cores_for_others(share, values.get("device_cores") or 0, cores)
    if others is not None and others - (values.get("resolution_cpu_cores") or 0) > limit:
        reasons.append(f"others used {describe_share(others, cores)}")
    throttled = values.get("quota_throttled_percent") or 0.0
    throttled_s, span_s = values.get("quota_throttled_s") or 0.0, values.get("span_s") or 0.0
    # Some kernels count too little time, so the share of periods is checked too.
    if throttled > 100 * share or throttled_s > limit * span_s:
        reasons.append(
            f"a quota of CPU time stopped the run's control group in {throttled:.0f} % of its "
            f"periods ({throttled_s:.1f} s, all CPUs added up, in {span_s:.1f} s)"
        )
    gpu_processes = values.get("other_gpu_processes")
    if gpu_processes:
        noun = "process" if gpu_processes == 1 else "processes"
        reasons.append(f"others had {gpu_processes} {noun} on a GPU of the run")
    memory, io = (values.get(f"{name}_pressure_percent") or 0 for name in ("memory", "io"))
    if memory > 100 * share:
        reasons.append(f"processes waited for memory {memory:.0f} % of the time")
    disk = values.get("others_disk_bytes_per_s") or 0
    own_disk = values.get("own_disk_bytes_per_s") or 0
    own_read = values.get("own_disk_read_bytes_per_s", math.inf) or 0  # earlier logs do not say it
    if (
        disk > UNATTRIBUTED_SHARE * own_disk
        and io > 100 * share
        and own_read >= MIN_READ_BYTES_PER_S
    ):
        reasons.append(
            f"others moved {disk / 1e6:.0f} MB/s to or from disks, for which processes waited "
            f"{io:.0f} % of the time"
        )
    return "; ".join(reasons)


def cores_for_others(share: float, device_cores: float, cores: float) -> float:
    """Cores that others may use: a share of the run's cores, plus housekeeping on all cores."""
    return share * device_cores + HOUSEKEEPING * cores


def describe_share(others: float, cores: float) -> str:
    return f"{others:.2f} of {cores} cores"
