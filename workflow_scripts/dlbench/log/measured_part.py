"""The measured part of a run, from its logs: its start and end, and the use of the nodes meanwhile.

The supervisor reads it right after a run, before the logs are checked, so only the needed lines are
parsed.
"""

import json
import statistics
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dlbench.log import event_fields, event_log

STEP, MEASURED = b'{"event": "step"', b'"warm_up": false'
EVENTS = tuple(
    f'{{"event": "{name}"'.encode() for name in ("run_start", "resume", "machine", "sample")
)
END = b'{"event": "run_end"'


@dataclass
class Part:
    """The measured part of one rank or copy. Dates are as event_log.utc_now writes them.

    `untimed`: its steps have no times, as those of some programs of others.
    """

    host: str | None = None
    started: str | None = None
    finished: str | None = None
    untimed: bool = False
    cpu_time_s: float | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)  # during the measured steps

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The readings of GPUs in all samples."""
        return [gpu for sample in self.samples for gpu in sample.get("gpus") or ()]


def read_parts(log: Path) -> list[Part]:
    """The measured part of each rank or copy, whose logs lie beside that of rank 0."""
    return [_part(path) for path in event_log.rank_paths(log)]


def _part(path):
    part, zero, first, last, samples = Part(), None, None, None, []
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(STEP):
                if MEASURED in line:
                    first, last = first or line, line
            elif line.startswith(EVENTS):
                event = json.loads(line)
                kind = event["event"]
                if kind == "sample":
                    samples.append(event)
                elif kind == "machine":
                    part.machine = event
                else:
                    # The steps before a resume belong to another supervisor.
                    zero, first = (event["t_utc"], event.get("t_s", 0.0)), None
                    part.host = event.get("host", part.host)
            elif line.startswith(END):
                part.cpu_time_s = json.loads(line).get("cpu_time_s")
    if zero and first:
        first, last = json.loads(first), json.loads(last)
        part.untimed = "t_s" not in first or "t_s" not in last
    if zero and first and not part.untimed:
        started_s = first["t_s"] - first["step_time_s"] * first.get("window_steps", 1)
        part.started, part.finished = _date(zero, started_s), _date(zero, last["t_s"])
        part.samples = [s for s in samples if started_s <= s["t_s"] <= last["t_s"]]
    return part


def _date(zero, t_s):
    """The date of a time on a log's clock, of which `zero` is a (date, time)."""
    date, then_s = zero
    shifted = datetime.strptime(date, event_fields.UTC_FORMAT) + timedelta(seconds=t_s - then_s)
    return shifted.strftime(event_fields.UTC_FORMAT)


def other_gpu_processes(parts: list[Part]) -> int | None:
    """The most foreign processes that a GPU of the run had at once; None if unknown."""
    counts = [gpu.get("other_gpu_processes") for part in parts for gpu in part.gpus]
    return max((count for count in counts if count is not None), default=None)


def cores_of_others(parts: list[Part]) -> tuple[float, int]:
    """(cores that other processes used, all cores) of a node, by the samples of all ranks on it.

    Raises ValueError: it cannot be computed from the samples.
    """
    of_node = [s["node_cpu_percent"] for p in parts for s in p.samples if s.get("node_cpu_percent")]
    machine = next((part.machine for part in parts if part.machine), {})
    cores = ((machine.get("hardware") or {}).get("cpu") or {}).get("threads")
    if not of_node or not cores:
        raise ValueError("its ranks sampled no CPU while they were measured")
    allowed = machine["limits"].get("group_cpus"), machine["limits"].get("cpu_time_cores")
    if any(isinstance(most, int | float) and most < cores for most in allowed):
        raise ValueError("its ranks may use a part of it only, and their samples are of all of it")
    of_ranks = [[s["cpu_percent"] for s in p.samples if s.get("cpu_percent")] for p in parts]
    rank_cores = sum(statistics.fmean(values) for values in of_ranks if values) / 100
    return max(0.0, statistics.fmean(of_node) / 100 * cores - rank_cores), cores
