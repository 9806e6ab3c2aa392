"""Numbers and facts of a record, from the logs of a run; needs the standard library only.

- FLOPs are those of the model's forward pass, as the trainer counted them, times the passes of the
  run's mode (dlbench/trainer/model_flops.py).
- Throughput from epochs is a check of that from steps, without step times or batch size.
- Peaks of memory are of whole runs, start-up, warm-up and evaluations included. Of a device: those
  of arrays and of the allocator, as the framework counts them; and of memory in use on a GPU by
  NVML, at the samples, which includes the framework's libraries and other processes. Of a process:
  its peak resident set size, by the kernel. Available is the memory of a GPU, or the part of it
  that the framework may take, as with JAX; on CPUs that of the node, or of the control group if
  that is less. Of a dataset, if the run sets `page_cache`: the share in memory before it was
  opened.
- Numbers of another program (dlbench/study/other_trainers.py) are those that
  dlbench/imports/train_external.py read from its log; those of CPU, memory, GPUs and energy were
  sampled from outside. If it wrote its log with programs/logger/dlbench_log.py, the log has its
  steps as our trainer logs them, and the record has what a record of ours has.
- Provenance: where, on what devices and by what the run was trained.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from dlbench import Error
from dlbench.log import energies, event_fields, event_log, metrics
from dlbench.machine import binding, fingerprints
from dlbench.machine.limits import OF_GROUPS
from dlbench.records import account, step_times
from dlbench.study.runs import Run
from dlbench.trainer import model_flops
from dlbench.trainer.reading import inputs

OF_A_MODEL = ("loss", "losses", "learning_rate", "learning_rates")  # fields of a step


def steps(start: dict[str, Any], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events `step` of a log; without loss and learning rate where the run has no model.

    `start`: its run_start, {} if it has none.
    """
    if start.get("spec", {}).get("mode") != inputs.INPUT_ONLY:
        return events
    return [{k: v for k, v in event.items() if k not in OF_A_MODEL} for event in events]


def of_model(run: Run, log: Any) -> dict[str, Any]:
    """The numbers of a run; None where its log is too old to have them.

    `log`: the parse_run.RankLog of the first rank.
    """
    start = log.start
    forward, unknown = start.get("forward_flops_per_item"), start.get("flops_unknown")
    needed = start.get("model_flops_per_item")  # as another program states it
    needed = needed or (forward and forward * model_flops.PASSES[run.mode])
    again = start.get("recomputed_flops_per_item") if run.mode != "forward" else None
    return {
        "model_flops_per_item": needed,
        "hardware_flops_per_item": needed + again if needed and again else None,
        "values_per_item": start.get("forward_values_per_item"),
        "flops_unknown": "; ".join(unknown) if unknown else None,
        **_profile(log.profile),
        "attainable_tflops": log.calibration.get("tflops"),
        "attainable_gb_per_s": log.calibration.get("gb_per_s"),
        **({"compile_s": None} if run.mode == inputs.INPUT_ONLY else {}),  # nothing is compiled
    }


def _profile(profile):
    """What the event `profile` of a log says, if there is one."""
    if not profile:
        return {}
    return {
        "profiled_steps": profile.get("steps"),
        "trace_file": event_log.TRACE if profile.get("sha256") else None,
        "trace_unknown": profile.get("unknown"),
    }


def by_epochs(run: Run, copies: Sequence[Sequence[Any]]) -> float | None:
    """Epochs times the items of the dataset, over their time by the logs' clocks; or None.

    The time is that of the measured epochs, without evaluations between them, on the rank that took
    longest. None for a run that resumed. `copies`: the logs of each copy's ranks, a list for each.
    """
    rates = []
    for logs in copies:
        records = logs[0].start.get("records")
        steps = [ranks for ranks in step_times.of_all_ranks(logs) if not ranks[0]["warm_up"]]
        if not run.epochs or not records or any(log.resumes for log in logs):
            return None
        seconds = max((_seconds(events) for events in zip(*steps, strict=True)), default=0)
        if seconds <= 0:
            return None
        epochs = {ranks[0]["epoch"] for ranks in steps}
        rates.append(len(epochs) * records / seconds)
    return statistics.fmean(rates)


def _seconds(steps):
    """From the beginning to the end of each epoch, by the clock of one rank."""
    epochs = {}
    for step in steps:
        epochs.setdefault(step["epoch"], []).append(step)
    return math.fsum(
        events[-1]["t_s"] - (events[0]["t_s"] - step_times.window_s(events[0]))
        for events in epochs.values()
    )


OF_DEVICES = ("peak_allocated_bytes_per_device", "peak_reserved_bytes_per_device")


def of_memory(logs: list[Any]) -> dict[str, Any]:
    """The numbers of a run, in bytes, of the device and the process with the highest peaks.

    A number is None if one of the processes does not report it. `logs`: the parse_run.RankLog of
    each rank or copy.
    """
    ends = [log.end or {} for log in logs]
    used = [_of_nvml(log.samples) for log in logs]
    reasons = [reason for end in ends if (reason := end.get("device_memory_unknown"))]
    return {
        **{name: _most(_largest(end.get(name)) for end in ends) for name in OF_DEVICES},
        "peak_used_bytes_per_device": _most(used),
        "peak_memory_bytes": _most(end.get("peak_memory_bytes") for end in ends),
        "memory_limit_bytes": min(filter(None, map(_limit, logs)), default=None),
        "device_memory_unknown": reasons[0] if reasons else None,
        "page_cache_share": logs[0].page_cache.get("kept"),
    }


def _most(values):
    values = list(values)
    return max(values) if values and None not in values else None


def _largest(values):
    return max(values, default=None) if values else None


def _of_nvml(samples):
    """Bytes in use on the fullest GPU of a process, at any of its samples."""
    readings = (gpu.get("memory_used_bytes") for s in samples for gpu in s.get("gpus") or ())
    return max((value for value in readings if value is not None), default=None)


def _limit(log):
    """Bytes that a process may use: of its smallest GPU, else of the node or control group."""
    limits = [(log.end or {}).get("device_memory_limit_bytes")]
    for machine in log.machines:
        of_gpus = [kind.get("memory_bytes") for kind in _gpus(machine["hardware"])]
        of_node = (machine["present"], machine["limits"], log.launch.get("limits") or {})
        limits += of_gpus or [part.get("memory_bytes") for part in of_node]
    # A missing limit is a text, and logs are not checked for that.
    return min((n for n in limits if event_fields.COUNT.accepts(n) and n), default=None)


def _gpus(hardware):
    """The kinds of GPUs in the facts of a machine, which may have any form."""
    gpus = hardware.get("gpus")
    kinds = gpus.get("kinds") if isinstance(gpus, dict) else None
    return [kind for kind in kinds if isinstance(kind, dict)] if isinstance(kinds, list) else []


def of_other_program(logs: list[Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run's record; of several copies the mean rate and mean step times.

    Args:
        logs: the first parse_run.RankLog of the run, or of each copy, with an `imported` event
            where the program's log was read.
        measured: the numbers from the steps of a program that logged them; {} of others.
    """
    found, outside = _of_programs(logs), _from_outside(logs)
    known = {k: v for k, v in measured.items() if v is not None or k not in found}
    return found | known | outside


def _of_programs(logs):
    """What the logs of the program, or of its copies, say."""
    each = [_of_program(log) for log in logs]
    rates = [numbers.get("images_per_second") for numbers in each]
    if len(each) == 1 or None in rates:
        return each[0]
    times = {name for name in each[0] if name.startswith("step_time_")}
    return {
        **each[0],
        **{name: _mean(numbers.get(name) for numbers in each) for name in times},
        "images_per_second": statistics.fmean(rates),
        "copies_images_per_second": rates,
        "copy_sd_images_per_second": statistics.stdev(rates),
        "overlap": _overlap(logs),
        "duration_s": max((log.end or {}).get("t_s", 0.0) for log in logs),
    }


def _of_program(log):
    numbers = log.imported["numbers"] if log.imported else {}
    return {
        "duration_s": log.end.get("t_s") if log.end else None,
        "started_at": log.start.get("t_utc"),
        "ended_at": log.end["t_utc"] if log.end else None,
        "resumes": 0,
        **account.summary(log),
        "contradicts": (log.imported or {}).get("contradicts"),
        # JSON has no nan.
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }


def _from_outside(logs):
    """What the program, or its copies, used: all ranks of one, since its processes are sampled."""
    ends = [log.end or {} for log in logs]
    cpu_s: list[Any] = [end.get("cpu_time_s") for end in ends]
    return {
        **energies.summary(_energies_of_copies(ends), logs[0].meter),
        "cpu_time_s": None if None in cpu_s else math.fsum(cpu_s),
        **of_memory(logs),
    }


def metric_summary(firsts: list[Any]) -> dict[str, Any]:
    """{"metrics": those that the program names, and of its checkpoints}; {} if there are none.

    `firsts`: the first RankLog of the run, or of each copy, of which the mean counts. Raises
    LogError: one comes twice.
    """
    each = [_metrics(log) for log in firsts]
    named = [
        {"name": key[0], "value": _mean(one[key] for one in each), "unit": key[1], "better": key[2]}
        for key in each[0]
        if all(key in one for one in each)
    ]
    return {"metrics": named} if named else {}


def _metrics(log):
    """Values of a log's metrics by name, unit and direction."""
    named = [{key: event[key] for key in metrics.KEYS} for event in log.metrics]
    named += [dict(zip(metrics.KEYS, one, strict=True)) for one in of_checkpoints(log)]
    try:
        metrics.check(named)
    except Error as error:
        raise event_fields.LogError(f"{log.path}: {error}") from None
    return {(one["name"], one["unit"], one["better"]): one["value"] for one in named}


def of_checkpoints(log: Any) -> Iterator[tuple[Any, ...]]:
    """Metrics of the checkpoints that a run wrote: name, value, unit, better.

    Medians over writes: seconds until all is written, seconds of them without steps, bytes; and how
    much longer a measured step is beside a write, in the median. `log`: that of the first rank.
    """
    named = (("write_s", "write_s", "s"), ("wait_s", "waited_s", "s"), ("bytes", "bytes", "B"))
    for name, key, unit in named if log.writes else ():
        value = statistics.median(write[key] for write in log.writes)
        yield f"checkpoint_{name}", value, unit, metrics.LOWER
    spans = [(w["t_s"] - w["write_s"] + w["waited_s"], w["t_s"]) for w in log.writes]
    times: dict[bool, list[float]] = {True: [], False: []}
    for step in log.steps if spans else ():
        if not step["warm_up"]:
            began_s, ended_s = step["t_s"] - step_times.window_s(step), step["t_s"]
            beside = any(first < ended_s and began_s < last for first, last in spans)
            times[beside] += [step["step_time_s"]] * step_times.window_steps(step)
    if all(times.values()):
        more_s = statistics.median(times[True]) - statistics.median(times[False])
        yield "checkpoint_step_loss_s", more_s, "s", metrics.LOWER


def _energies_of_copies(ends):
    """The run_end of each copy, with energies of the node in the first alone: all sampled it."""
    of_node = ("host_", "node_")
    others = [{k: v for k, v in end.items() if not k.startswith(of_node)} for end in ends[1:]]
    return [ends[0], *others]


def _overlap(logs):
    """Share of the copies' time during which all of them ran; they have no common barrier."""
    zero = logs[0].start["t_utc"]
    spans = []
    for log in logs:
        start_s = event_log.seconds_between(zero, log.start["t_utc"])
        spans.append((start_s, start_s + (log.end or {}).get("t_s", 0.0)))
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    mean_s = statistics.fmean(end - start for start, end in spans)
    return max(0.0, together) / mean_s if mean_s else 0.0


def _mean(values):
    known = list(values)
    if len(known) == 1:
        return known[0]
    return None if None in known else statistics.fmean(known)


OF_LAUNCH = (
    "command",
    "container",
    "study",
    "site",
    "job",
    "modules",
    "git_commit",
    "git_dirty",
    "user_files",
    "network",
    "refused",
    "session",
)
OF_START = (
    "device_model",
    "devices",
    "cores",
    "host",
    "platform",
    "versions",
    "strategy_settings",
    "load_average",
    "parameters",
    "data_sha256",
    "item_shape",
    "attention",
)
OF_RESUME = ("step", "t_utc", "host", "device_model")


def from_logs(logs: Sequence[Any]) -> dict[str, Any]:
    """The `provenance` of a record. `logs`: the parse_run.RankLog of each rank or copy."""
    start, launch, imported = logs[0].start, logs[0].launch, logs[0].imported
    return {
        **{key: launch.get(key) for key in OF_LAUNCH},
        # Not among the fields that trainers check, whose code is part of each run.
        "release": release if isinstance(release := launch.get("release"), str) else None,
        "time_limit_s": (logs[0].end or {}).get("time_limit_s"),  # at which it was stopped
        # Whether it failed for a reason that may pass, and measured nothing.
        "before_first_step": bool((logs[0].end or {}).get("before_first_step")),
        "containment": [log.begin.get("containment") for log in logs],
        "imported": imported and {key: imported[key] for key in ("kind", "notes")},
        **{key: start.get(key) for key in OF_START},
        "bindings": binding.from_starts([log.start for log in logs]),
        "hosts": list(dict.fromkeys(log.start["host"] for log in logs if "host" in log.start)),
        "xids": _xids(logs),
        "resumed": [{key: event.get(key) for key in OF_RESUME} for event in logs[0].resumes],
        **_machines(logs),
    }


def _xids(logs):
    """Errors of GPUs: the first of each GPU and number, with how many `times` it was logged."""
    kinds: dict[Any, dict[str, Any]] = {}
    for log in logs:
        host = log.start.get("host", "its node")
        for error in (error for sample in log.samples for error in sample.get("xids") or ()):
            key = host, error["gpu"], error["xid"]
            kinds.setdefault(key, {"host": host, **error, "times": 0})["times"] += 1
    return list(kinds.values())


def _machines(logs):
    """The facts of all ranks' machines; limits that a container hides are taken from the launch."""
    facts = fingerprints.provenance([log.machines for log in logs])
    outside = logs[0].launch.get("limits")
    if facts and outside:
        inside = facts["limits"]
        added = {name: outside.get(name) for name in OF_GROUPS if inside.get(name) is None}
        known = [f"limits.{name}" for name, value in added.items() if value is not None]
        facts["limits"] = inside | added
        facts["unknown"] = {k: v for k, v in facts["unknown"].items() if k not in known}
    return facts
