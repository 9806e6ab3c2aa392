"""The fields of each event of a training log, and the checks of a log that is read.

- `parse_event` checks one line, `Sequence` the order of lines. So code that uses events needs no
  further checks: a missing or wrong field, a missing or repeated step is a LogError.
- Fields that are not listed may have any value, except in events that become rows of tables
  (ROWS), which have no other fields. Events that are not listed may have any fields.
- Programs of others (dlbench/study/other_trainers.py) log neither all fields of our trainer nor
  every step.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.log import metrics

NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no such numbers
UTC_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
STATUSES = ("ok", "oom", "timeout", "failed", "unstable", "skipped")
SUCCEEDED = ("ok", "unstable")  # the statuses of runs whose measured steps are complete
STAGES = ("imports", "other", "data")  # of a trainer, before its run_start
MOST = 10.0**30  # of a number, so that sums of squares are finite
MAX_WHOLE, MAX_COUNT, MAX_INDEX = 2**53, 2**62, 2**31 - 1  # limits of the tables' types
MAX_DEPTH = 20  # of nested facts
DLBENCH_TRAINER = "dlbench"
Event = dict[str, Any]  # as parsed from one line


class LogError(Error):
    """A training log is damaged or incomplete; the message has file, line and reason."""


class Kind(NamedTuple):
    """The kind of a field: its label in messages, and a function that accepts valid values."""

    label: str
    accepts: Callable[[Any], bool]


def _is_number(value):
    if type(value) is float:
        return -MOST <= value <= MOST
    return type(value) is int and -MAX_WHOLE <= value <= MAX_WHOLE


def _is_date(value):
    try:
        datetime.strptime(value, UTC_FORMAT)
    except (TypeError, ValueError):
        return False
    return True


def _is_plain(value, depth=0):
    """Whether facts are nested to at most MAX_DEPTH levels."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return depth < MAX_DEPTH and all(_is_plain(part, depth + 1) for part in value)


def _list_of(kind):
    return Kind(
        f"a list, each {kind.label}",
        lambda value: type(value) is list and all(map(kind.accepts, value)),
    )


def _entries(fields):
    """A list of mappings with these fields and no others."""
    checks = _compiled(fields)

    def accepts(value):
        if type(value) is not list:
            return False
        return all(type(entry) is dict and not _wrong(entry, checks, ()) for entry in value)

    return Kind(f"a list of entries with {', '.join(fields)}", accepts)


def _compiled(fields):
    """(name, whether it is required, kind) of each field."""
    return [(name.removesuffix("?"), not name.endswith("?"), kind) for name, kind in fields.items()]


TEXT = Kind("text", lambda value: type(value) is str)
FLAG = Kind("true or false", lambda value: type(value) is bool)
DATE = Kind("a date such as 2026-11-21T01:02:03.000004Z", _is_date)
STATUS = Kind(f"one of {', '.join(STATUSES)}", lambda value: value in STATUSES)
COUNT = Kind("a count", lambda value: type(value) is int and 0 <= value <= MAX_COUNT)
INDEX = Kind("a small count", lambda value: type(value) is int and 0 <= value <= MAX_INDEX)
METRIC_NAME = Kind(f"a name of {metrics.NAME_RULE}", metrics.is_name)
DIRECTION = Kind('"higher", "lower" or ""', lambda value: value in metrics.BETTER)
STAGE = Kind(f"one of {', '.join(STAGES)}", lambda value: value in STAGES)
STEP = Kind("a count from 1", lambda value: type(value) is int and 1 <= value <= MAX_COUNT)
NUMBER = Kind("a number", _is_number)
SECONDS = Kind("seconds, 0 or more", lambda value: _is_number(value) and value >= 0)
RATE = Kind("a rate above 0", lambda value: _is_number(value) and value > 0)
# A loss may be anything that a float can be.
SCORE = Kind("a number, nan or inf", lambda value: type(value) is float or _is_number(value))
FACTS = Kind("a mapping", lambda value: type(value) is dict and _is_plain(value))
PLAIN = Kind("plain facts", _is_plain)
NUMBERS = Kind(
    "a mapping to numbers",
    lambda value: type(value) is dict and all(map(SCORE.accepts, value.values())),
)
TEXTS, INDICES, SCORES = _list_of(TEXT), _list_of(INDEX), _list_of(SCORE)
COUNTS = _list_of(COUNT)
GPU = Kind("a GPU's number or UUID", lambda value: TEXT.accepts(value) or INDEX.accepts(value))
GPU_SAMPLE = {
    "utilisation_percent?": NUMBER, "memory_used_bytes?": COUNT, "power_w?": NUMBER,
    "temperature_c?": NUMBER, "clock_sm_mhz?": NUMBER, "clock_memory_mhz?": NUMBER,
    "other_gpu_processes?": COUNT, "energy_j?": NUMBER,
}  # fmt: skip

# The fields of each energy: see dlbench/machine/energy.py.
ENERGY = {
    "energy_j?": NUMBER, "energy_source?": TEXT, "energy_samples?": COUNT,
    "energy_sampled_share?": NUMBER, "energy_resolution_s?": SECONDS, "energy_unknown?": TEXT,
    "energy_note?": TEXT,
}  # fmt: skip
HOST_ENERGY = {f"host_{name}": kind for name, kind in ENERGY.items()}
NODE_ENERGY = {f"node_{name}": kind for name, kind in ENERGY.items()}
LIMITS = _entries(
    {"uuid": TEXT, "restored": FLAG}
    | dict.fromkeys(("found_w", "enforced_w", "enforced_last_w?"), NUMBER)
)

# With a question mark: may be absent or null.
EVENTS = {
    "launch": {
        "t_utc?": DATE, "made_from?": FACTS, "container?": FACTS, "limits?": FACTS, "job?": FACTS,
        "site?": FACTS, "study?": TEXT, "modules?": TEXTS, "command?": PLAIN, "git_commit?": TEXT,
        "git_dirty?": PLAIN, "user_files?": PLAIN, "network?": PLAIN, "session?": FACTS,
    },
    "begin": {"t_utc": DATE, "containment?": FACTS},
    "stage": {"t_utc": DATE, "name": STAGE},
    "page_cache": {
        "asked": TEXT, "spent_s": SECONDS, "files?": COUNT, "bytes?": COUNT,
        "kept_before?": NUMBER, "kept?": NUMBER,
    },
    "run_start": {
        "t_utc": DATE, "spec": FACTS, "log_version?": COUNT, "rank?": INDEX, "size?": INDEX,
        "copy?": INDEX, "devices?": TEXTS, "cores?": INDICES, "total_steps?": COUNT,
        "binding?": FACTS, "bindings?": PLAIN, "logger?": TEXT, "model_flops_per_item?": NUMBER,
        "records?": COUNT, "parameters?": COUNT, "host?": TEXT, "device_model?": TEXT,
        "platform?": TEXT, "versions?": FACTS, "strategy_settings?": FACTS, "load_average?": PLAIN,
        "data_sha256?": PLAIN, "item_shape?": INDICES, "attention?": TEXT, "stated?": FACTS,
        "forward_flops_per_item?": COUNT, "forward_values_per_item?": COUNT,
        "flops_unknown?": TEXTS, "recomputed_flops_per_item?": COUNT,
    },
    "machine": {
        "hardware": FACTS, "software": FACTS, "limits": FACTS, "libraries?": PLAIN,
        "variables": FACTS, "present": FACTS, "unknown": FACTS, "gathered_s?": SECONDS,
    },
    "nccl": {
        "version?": TEXT, "network?": TEXT, "transports?": FACTS, "nvls?": FLAG,
        "algorithms?": FACTS,
    },
    "compile": {"t_s?": SECONDS, "trace_s?": SECONDS},
    "ready": {"t_s": SECONDS},
    "met": {"t_s": SECONDS, "waited_s": SECONDS},
    "windows": {
        "step": COUNT, "steps_per_sync": STEP, "single_step_s?": SECONDS,
        "window_step_s?": SECONDS, "probe_steps?": STEP,
    },
    "warm_up": {"step": STEP, "passed_s": SECONDS, "last_step": STEP, "total_steps": STEP},
    "step": {
        "step": STEP, "t_s?": SECONDS, "step_time_s": SCORE, "loss?": SCORE,
        "learning_rate?": SCORE, "warm_up": FLAG, "epoch?": INDEX, "window_steps?": STEP,
        "rank?": INDEX, "losses?": SCORES, "learning_rates?": SCORES,
    },
    "eval": {
        "epoch?": INDEX, "step?": COUNT, "t_s?": SECONDS, "split?": TEXT, "loss?": SCORE,
        "top1?": SCORE, "top5?": SCORE, "iou?": SCORE, "perplexity?": SCORE, "examples?": COUNT,
    },
    "sample": {
        "t_s?": NUMBER, "rank?": INDEX, "cpu_percent?": NUMBER, "memory_bytes?": COUNT,
        "node_cpu_percent?": NUMBER, "node_memory_available_bytes?": COUNT,
        "load_average_1min?": NUMBER, "package_energy_j?": NUMBER, "dram_energy_j?": NUMBER,
        "gpu?": GPU, "throttle_reasons?": TEXT, **GPU_SAMPLE,
        "gpus?": _entries({"gpu": GPU, "throttle_reasons?": TEXTS, **GPU_SAMPLE}),
        "xids?": _entries({"gpu": TEXT, "xid": COUNT, "message": TEXT}),
    },
    "checkpoint": {"step": COUNT, "t_s": SECONDS},
    "checkpoint_written": {
        "step": COUNT, "t_s": SECONDS, "write_s": SECONDS, "waited_s": SECONDS, "bytes": COUNT,
    },
    "resume": {
        "step": COUNT, "t_s": SECONDS, "t_utc": DATE, "host?": TEXT, "devices?": TEXTS,
        "device_model?": TEXT,
    },
    "output": {"t_s": SECONDS, "bytes": COUNT},
    "parts": {"step": STEP, "seconds": NUMBERS},
    "calibration": {
        "tflops?": RATE, "matrix_size?": STEP, "gb_per_s?": RATE, "copied_bytes?": COUNT,
        "spent_s?": SECONDS, "kept?": FLAG, "unknown?": TEXT,
    },
    "profile": {
        "spent_s": SECONDS, "steps?": STEP, "bytes?": COUNT, "sha256?": TEXT, "unknown?": TEXT,
    },
    "imported": {"kind": TEXT, "notes": TEXTS, "numbers": NUMBERS, "contradicts?": TEXT},
    "metric": {"name": METRIC_NAME, "value": NUMBER, "unit": TEXT, "better": DIRECTION},
    "neighbours": {
        "t_utc?": DATE, "span_s": SECONDS, "host": TEXT, "cores?": COUNT,
        "others_cpu_cores?": NUMBER, "node_others_cpu_cores?": NUMBER, "node_cores?": COUNT,
        "resolution_cpu_cores?": NUMBER, "steal_cpu_cores?": NUMBER,
        "cpu_pressure_percent?": NUMBER, "memory_pressure_percent?": NUMBER,
        "io_pressure_percent?": NUMBER, "others_disk_bytes_per_s?": NUMBER,
        "own_disk_bytes_per_s?": NUMBER, "own_disk_read_bytes_per_s?": NUMBER,
        "cpu_clock_mhz?": NUMBER, "cpu_throttle_count?": NUMBER, "load_before_1min?": NUMBER,
        "quota_throttled_percent?": NUMBER, "quota_throttled_s?": NUMBER,
        "other_gpu_processes?": COUNT, "waited_for_quiet_s": SECONDS, "share?": NUMBER,
        "device_cores?": COUNT, "unknown": FACTS, "power_limit_changed?": TEXT,
    },
    "power_meter": {
        "scope": TEXT, "command": TEXTS, "trouble?": TEXT, "power_least_w?": NUMBER,
        "power_mean_w?": NUMBER, "power_most_w?": NUMBER, **NODE_ENERGY,
    },
    "power_limit": {"asked_w": NUMBER, "gpus": LIMITS, "trouble?": TEXT},
    "run_end": {
        "status": STATUS, "message": TEXT, "t_utc": DATE, "t_s?": SECONDS,
        "weights_sha256?": TEXTS, "cpu_time_s?": SECONDS, **ENERGY, **HOST_ENERGY,
        **NODE_ENERGY,
        "peak_memory_bytes?": COUNT, "hung?": FLAG, "time_limit_s?": SECONDS,
        "before_first_step?": FLAG,
        "peak_allocated_bytes_per_device?": COUNTS, "peak_reserved_bytes_per_device?": COUNTS,
        "device_memory_unknown?": TEXT, "device_memory_limit_bytes?": COUNT,
    },
}  # fmt: skip
ROWS = ("step", "eval", "sample", "metric")
WITHOUT_NULL = ("step", "eval")
LISTS = ("losses", "learning_rates")  # of a window: a number for each of its steps
# Fields that our trainer always writes.
REQUIRED_OF_DLBENCH = {
    "step": ("t_s", "loss", "learning_rate", "epoch"),
    "eval": ("epoch", "step", "t_s", "split", "loss"),
    "sample": ("t_s",),
}
# Those fields of facts that are read.
PARTS = {
    "machine": {
        "present": {"host": TEXT, "cpus": INDICES, "gpus": PLAIN},
        "limits": {"group_cpus?": PLAIN, "cpu_time_cores?": PLAIN, "memory_bytes?": PLAIN},
    },
    "launch": {
        "container": {"start?": TEXT, "digest?": TEXT},
        "job": {"scheduler": TEXT, "id": TEXT, "submitted_at?": DATE, "started_at?": DATE},
        "site": {},
        "session": {"id": TEXT, "started_at?": DATE, "host?": TEXT},
    },
}
_CHECKS = {kind: _compiled(fields) for kind, fields in EVENTS.items()}
_PARTS = {
    kind: {name: _compiled(fields) for name, fields in parts.items()}
    for kind, parts in PARTS.items()
}


def parse_event(line: bytes) -> Event:
    """The event on one line of a log.

    Losses and scores that are not finite come back as float nan or inf. Raises LogError: the line
    is not an event, or a field is missing or wrong.
    """
    try:
        event = json.loads(line)
        kind = event["event"]
        if type(kind) is not str:
            raise TypeError(f"no event is called {kind!r}"[:80])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LogError(f"not an event of a training log: {error!r}") from error
    checks = _CHECKS.get(kind)
    if checks is None:
        return event
    rows = kind in ROWS
    if rows:
        for name, value in event.items():
            if type(value) is str and value in NOT_FINITE:
                event[name] = float(value)
        if "losses" in event:
            _make_floats(event)
    wrong = _wrong(event, checks, ("event",) if rows else None)
    if kind in WITHOUT_NULL and None in event.values():
        wrong = f"expected no null, found {line[:200]!r}"
    for name, inner in _PARTS.get(kind, {}).items():
        if not wrong and event.get(name) is not None:
            wrong = _wrong(event[name], inner)
    if wrong:
        raise LogError(f"{kind}: {wrong}; was the log changed or damaged?")
    return event


def _make_floats(event):
    for name in LISTS:
        values = event.get(name)
        if type(values) is list:
            event[name] = [float(value) if value in NOT_FINITE else value for value in values]


def _wrong(event, checks, others=None):
    """A message about the first missing or wrong field of a mapping; "" if all are right.

    `others` are further fields that it may have; None: any.
    """
    known = 0
    for name, needed, kind in checks:
        if name not in event:
            if needed:
                return f"{name} is missing"
            continue
        value = event[name]
        if not (kind.accepts(value) or (value is None and not needed)):
            return f"expected {name} to be {kind.label}, found {repr(value)[:80]}"
        known += 1
    if others is not None and known + len(others) < len(event):
        unknown = event.keys() - {name for name, _, _ in checks} - {*others}
        return f"there is no {', '.join(sorted(unknown))}"
    return ""


class Sequence:
    """Checks the order of a log's events; in logs of our trainer also that no step is missing."""

    def __init__(self) -> None:
        self._start: Event | None = None
        self._is_dlbench = self._imported = False
        self._step, self._t_s = 0, -1.0
        self._total: tuple[str, Any] = "", None  # which event says it, and the last step

    def check(self, event: Event) -> None:
        """Check the next event of the log.

        Raises LogError: it cannot follow the events before it.
        """
        kind = event["event"]
        if kind == "run_start":
            if self._start:
                raise LogError("run_start: a second one: are these two logs in one?")
            self._start = event
            self._total = kind, event.get("total_steps")
            self._is_dlbench = event["spec"].get("trainer", DLBENCH_TRAINER) == DLBENCH_TRAINER
        self._imported = self._imported or kind == "imported"
        well = kind == "run_end" and event["status"] in SUCCEEDED
        if not self._start and (kind == "step" or well):
            raise LogError(f"{kind}: there is no run_start before it")
        if not self._is_dlbench:
            if well and not self._imported:
                raise LogError("run_end: all is well, but nothing was imported")
            return
        for name in REQUIRED_OF_DLBENCH.get(kind, ()):
            if event.get(name) is None:
                raise LogError(f"{kind}: {name} is missing; was the log changed or damaged?")
        if kind == "step":
            self._check_step(event)
        elif kind == "warm_up":
            self._total = kind, event["total_steps"]
        elif well:
            self._check_end(event, *self._total)

    def _check_step(self, event):
        step, expected = event["step"], self._step + event.get("window_steps", 1)
        if step != expected:
            raise LogError(
                f"step: expected step {expected}, found {step}: lines are missing or doubled, or "
                "two processes wrote this log"
            )
        if "window_steps" in event or "losses" in event:
            self._check_window(event, event.get("window_steps", 1))
        if not (event["t_s"] > self._t_s and 0 < event["step_time_s"] <= MOST):
            raise LogError(
                f"step: step {step} ends at {event['t_s']} s, the step before it at {self._t_s} s, "
                f"and took {event['step_time_s']} s: expected a later end and a time above 0, so "
                "the program that wrote the log timed its steps wrongly (t_s, step_time_s)"
            )
        self._step, self._t_s = step, event["t_s"]

    def _check_window(self, event, steps):
        for name in LISTS:
            if name in event or (name == "losses" and steps > 1):
                count = len(event.get(name, ()))
                if count != steps:
                    raise LogError(
                        f"step: expected {steps} {name} in the window that ends with step "
                        f"{event['step']}, found {count}: was the log changed or damaged?"
                    )

    def _check_end(self, event, said_by, total):
        if event.get("weights_sha256") is None:
            raise LogError("run_end: weights_sha256 is missing; was the log changed or damaged?")
        if self._step != total:
            raise LogError(
                f"run_end: all is well after step {self._step}, but {said_by} says that there are "
                f"{total}: lines are missing"
            )
