"""The operations of a trace: how often each was done, and the time that it took itself.

A trace is gzipped JSON in the format of Chrome's traces, which ui.perfetto.dev opens. A complete
event (`ph` is X) is something done in a track, a thread (`tid`) of a process (`pid`); `ts` and
`dur` are microseconds. Its category `cat` says what it is, in the words of PyTorch's profiler:
    kernel, gpu_memcpy, gpu_memset    by a device, on one of its streams
    cpu_op                            by the framework, on a thread of the host
- What devices did are the operations, if the trace has any of that; else those of the host are.
- The time of an operation is its own: what another one takes within it, on the same track, is that
  one's. So the times of a track add up to the time in which anything was done on it.
- What says under `args` which `operation` it is counts as that, anything else by its name.

Runs inside images too, so it needs the standard library only.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

from dlbench.common import terminal

Event = dict[str, Any]  # of a trace
OF_DEVICES = ("kernel", "gpu_memcpy", "gpu_memset")
OF_HOST = ("cpu_op",)
MOST = 20  # operations that are told
MOST_CHARACTERS = 160  # of a name; those of kernels are whole templates of C++


def read(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """The operations of a trace, those that took most first, as `summarise` gives them.

    Raises:
        OSError: the file cannot be read, or is not gzipped.
        ValueError, KeyError, TypeError: it is no such trace.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return summarise(json.load(file)["traceEvents"])


def summarise(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The operations of some events, at most MOST of them, those that took most first.

    Returns:
        For each its name (`operation`), whether a device or the host did it (`place`), how often
        (`count`), its own time in seconds (`spent_s`), and the `share` of that in the time of all
        operations, also of those that are not told.

    >>> track = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    >>> add = {**track, "name": "add", "ts": 0, "dur": 4e6}
    >>> copy = {**track, "name": "copy", "ts": 1e6, "dur": 1e6}
    >>> [(one["operation"], one["spent_s"], one["share"]) for one in summarise([add, copy])]
    [('add', 3.0, 0.75), ('copy', 1.0, 0.25)]
    """
    done = [event for event in events if event.get("ph") == "X"]
    chosen, place = [event for event in done if event.get("cat") in OF_DEVICES], "device"
    if not chosen:
        chosen, place = [event for event in done if event.get("cat") in OF_HOST], "host"
    counts: dict[str, int] = {}
    spent_us: dict[str, float] = {}
    for name, self_us in _self_times(chosen):
        counts[name] = counts.get(name, 0) + 1
        spent_us[name] = spent_us.get(name, 0.0) + self_us
    whole_us = sum(spent_us.values())
    if not whole_us:
        return []
    return [
        {
            "operation": name,
            "place": place,
            "count": counts[name],
            "spent_s": round(spent_us[name] / 1e6, 9),
            "share": round(spent_us[name] / whole_us, 9),
        }
        for name in sorted(spent_us, key=lambda name: (-spent_us[name], name))[:MOST]
    ]


def _self_times(events: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """(name of the operation, microseconds of its own) for each event."""
    tracks: dict[tuple[Any, Any], list[Event]] = {}
    for event in events:
        tracks.setdefault((event.get("pid"), event.get("tid")), []).append(event)
    for track in tracks.values():
        self_us: list[float] = []
        outer: list[tuple[float, int]] = []  # end and number of those that are under way
        ordered = sorted(track, key=lambda event: (event["ts"], -event.get("dur", 0)))
        for number, event in enumerate(ordered):
            begin, end = event["ts"], event["ts"] + event.get("dur", 0)
            while outer and outer[-1][0] <= begin:
                outer.pop()
            if outer:
                self_us[outer[-1][1]] -= min(end, outer[-1][0]) - begin
            self_us.append(end - begin)
            outer.append((end, number))
        for event, each_us in zip(ordered, self_us, strict=True):
            yield _name(event), max(0.0, each_us)


def _name(event):
    name = (event.get("args") or {}).get("operation") or event.get("name")
    return terminal.message(str(name), MOST_CHARACTERS)
