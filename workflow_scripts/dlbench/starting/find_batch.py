"""The largest batch of a device that fits into memory, found by training a few steps with each.

- Doubling from the least batch until one does not fit, then bisection down to 1/16 of the batch.
- A batch does not fit if its try runs out of memory (an error of the framework, or a kill by the
  kernel), exceeds the time limit, or uses more than 9/10 of the memory. The rest is a reserve for
  what a longer run adds.
- Before each try the peaks of the last two batches that fitted are extrapolated. A batch that is
  expected to exceed the limit is not tried, and counts as too large until a further try changes
  that estimate.
- Two memories count. That of the GPU: by the framework's counter, else by NVML. That of the node or
  control group: what is free before the first try, for all processes of the run on the node.
- A step takes no more items than the dataset has.
- Each try is started as a run is, in a folder of its own (b8/, b16/ ...) with log and record. It
  enters no table of runs and no figure. A valid record, of the same code, data and environment, is
  not repeated, so an interrupted search continues.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import files, own_code
from dlbench.log import event_fields
from dlbench.machine import hardware, limits
from dlbench.records import costs, run_record, summaries
from dlbench.study.batch_searches import Search
from dlbench.study.runs import Run

RESERVE = 0.1  # of what there is
RESOLUTION = 16  # the batch is found to a sixteenth of itself
MEBIBYTE = 2**20
TOO_LARGE_STATUSES = ("oom", "timeout")
# Peaks of a device's memory, the best first: reserved bytes include a cache, which the allocator
# releases when memory runs short.
DEVICE_PEAKS = (*summaries.OF_DEVICES, "peak_used_bytes_per_device")
MEMORY_FIELDS = (*DEVICE_PEAKS, "peak_memory_bytes", "memory_limit_bytes")


class Failed(Error):
    """A try failed for a reason that another batch would not change: model, data, environment."""


class Try(NamedTuple):
    """A batch that was tried, and what its record says of it.

    `share`: of the memory that there is, 1: all; None if it is not known. `max_items`: items of the
    dataset for each device; None if it has no end.
    """

    batch: int
    fits: bool
    share: float | None
    message: str
    max_items: int | None = None


def largest(attempt: Callable[[int], Try], unit: int = 1) -> tuple[int, str]:
    """The largest batch that fits, and the reason that none is larger; 0 if none fits.

    `attempt` tries a batch; every batch is a multiple of `unit`.
    """
    fitting: list[Try] = []
    high: int | None = None  # low, number and high count units
    low, number = 0, 1
    reason, is_extrapolated = "", False
    while True:
        if expected := _expected(fitting, number * unit):
            high, reason, is_extrapolated = number, expected, True
        else:
            tried = attempt(number * unit)
            if tried.fits:
                fitting.append(tried)
                low = number
            else:
                high, reason, is_extrapolated = number, tried.message, False
        max_items = fitting[-1].max_items if fitting else None
        last = None if max_items is None else max_items // unit
        if last is not None and low >= last:
            return low * unit, f"a step takes no more than {max_items} items of the dataset"
        if high and is_extrapolated and not _expected(fitting, high * unit):
            high = None  # further tries let it fit
        if high is None:
            number = min(2 * low, last or 2 * low)
        elif high - low <= max(1, low // RESOLUTION):
            return low * unit, reason
        else:
            number = (low + high) // 2


def _expected(fitting: Sequence[Try], batch: int) -> str:
    """Why a batch is expected not to fit; "" if it may fit.

    Memory is extrapolated linearly from the last two batches that fitted.
    """
    known = [(one.batch, one.share) for one in fitting[-2:] if one.share is not None]
    if len(known) < 2:
        return ""
    (small, first), (large, second) = known
    slope = max(0.0, (second - first) / (large - small))
    expected = second + slope * (batch - large)
    if expected <= 1 - RESERVE:
        return ""
    return f"batch {batch} is expected to need {expected:.0%} of the memory there is"


def find(
    search: Search,
    output: Path,
    arguments: Sequence[str],
    messages: Path,
    processes: int = 1,
    memory_mb: int | None = None,
) -> dict[str, Any]:
    """Find the largest batch of a search and write found.json; the tries lie beside it.

    Args:
        arguments: those of start_run.py, after its files, that try the least batch.
        messages: where the trainers' output goes.
        processes: of the run on each node, copies included.
        memory_mb: limit of the tries on a node, MiB; None: no such limit.

    Raises Error: a try was ended from outside.
    """
    free = node_memory(memory_mb)
    tries: list[dict[str, Any]] = []

    def attempt(batch):
        run, folder = search.attempt(batch), output.parent / f"b{batch}"
        record = _record_of_try(run, folder, arguments, messages, len(tries) + 1)
        tried = judge(run, record, processes, free)
        tries.append(_entry(tried, record))
        print(f"{search.label()}: batch {batch}: {tried.message}", file=sys.stderr, flush=True)
        return tried._replace(max_items=_max_items(run, folder / "train.jsonl"))

    try:
        batch, reason = largest(attempt, search.unit)
    except Failed as error:
        batch, reason = 0, str(error)
    else:
        if not batch:
            reason = f"not even a batch of {search.unit} fits into memory: {reason}"
    return _write(search, output, batch, reason, {"node_memory_bytes": free, "tries": tries})


def skip(search: Search, output: Path, reason: str) -> dict[str, Any]:
    """Write found.json of a search that this machine cannot do, and return its content."""
    return _write(search, output, 0, reason, {"skipped": True, "tries": []})


def _write(search, output, batch, reason, further):
    found = {
        "search": search.id,
        "spec": search.run.values(),
        "batch_per_device": batch or None,
        "reason": reason,
        "reserve": RESERVE,
        "resolution": f"1/{RESOLUTION}",
        "host": hardware.host(),
        **further,
    }
    files.write_json(output, found)
    text = f"batch_per_device {batch} ({reason})" if batch else reason
    print(f"{search.label()}: {text}", file=sys.stderr, flush=True)
    return found


def _entry(tried, record):
    return {
        "batch_per_device": tried.batch,
        "fits": tried.fits,
        "share_of_memory": tried.share,
        "status": record["status"],
        "message": tried.message,
        **{name: record["summary"].get(name) for name in MEMORY_FIELDS},
    }


def _max_items(run, log):
    """Items of the dataset for each device, by the log of a try; None for an endless dataset."""
    for event in costs.head(log):
        if event["event"] == "run_start" and event.get("records"):
            return max(1, event["records"] // run.devices)
    return None


def node_memory(memory_mb: int | None = None) -> int | None:
    """Free bytes on this node, or the limit of the control group or the site if that is less."""
    read = hardware.Files()
    known = [hardware.present_facts(read)["memory_available_bytes"]]
    known += [limits.read(read)["memory_bytes"], memory_mb and memory_mb * MEBIBYTE]
    return min((number for number in known if isinstance(number, int)), default=None)


def judge(run: Run, record: dict[str, Any], processes: int, free: int | None) -> Try:
    """Decide by the record of a try whether its batch fits.

    `processes` of the run on a node share `free` bytes of its memory; None if unknown.

    Raises Failed: it failed for another reason than memory or time.
    """
    status, summary, batch = record["status"], record["summary"], run.batch_per_device
    if status in TOO_LARGE_STATUSES:
        return Try(batch, False, None, f"batch {batch}: {record['message']}")
    if status not in event_fields.SUCCEEDED:
        raise Failed(f"batch {batch} was tried and {status}: {record['message']}")
    shares = [_share(summary.get("peak_memory_bytes"), free, processes)]
    of_device = next((summary[name] for name in DEVICE_PEAKS if summary.get(name)), None)
    shares.append(_share(of_device, summary.get("memory_limit_bytes")))
    known = [share for share in shares if share is not None]
    if not known:
        return Try(batch, True, None, "fits; how much memory it needs is not known")
    share = max(known)
    text = f"holds {share:.0%} of the memory that there is"
    if share <= 1 - RESERVE:
        return Try(batch, True, share, text)
    return Try(batch, False, share, f"batch {batch} {text}, {RESERVE:.0%} of which is a reserve")


def _share(used, available, times=1):
    return times * used / available if used and available else None


def _record_of_try(run, folder, arguments, messages, number):
    """The record of a try; start_run.py trains the run unless its record is valid."""
    log = folder / "train.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    # As the last of two attempts it is recorded whatever happens, and a valid record is kept.
    flags = [f"--log={log}", f"--messages={messages}", "--attempt=2", "--attempts=2"]
    program = str(own_code.PROGRAMS / "start_run.py")
    command = [sys.executable, program, *flags, *arguments_for_batch(arguments, run, log, number)]
    finished = subprocess.run(command, check=False)
    if finished.returncode:
        raise Error(f"batch {run.batch_per_device}: the try was ended from outside; start again")
    return run_record.read(folder / "run.json")


def arguments_for_batch(arguments: Sequence[str], run: Run, log: Path, number: int) -> list[str]:
    """The arguments of start_run.py, after its files, that try another batch than the least.

    `run` is the try; its `number` counts from 1.
    """
    cut = arguments.index("--")
    place = arguments.index("--log", cut) + 1
    spec = json.dumps(run.values(), sort_keys=True)
    own = [f"--spec={spec}", f"--label={run.label()}", f"--position=try {number}"]  # the last count
    return [*arguments[:cut], *own, *arguments[cut:place], str(log), *arguments[place + 1 :]]
