"""The operations of a trace: how often each was executed, and its self time.

A trace is gzipped JSON in Chrome's trace format, which ui.perfetto.dev opens. A complete event
(`ph` is X) is work in a track, which is a thread (`tid`) of a process (`pid`); `ts` and `dur` are
microseconds. Its category `cat` is one of PyTorch's profiler:
    kernel, gpu_memcpy, gpu_memset    by a device, on one of its streams
    cpu_op                            by the framework, on a thread of the host
- The operations are those of devices if the trace has any, else those of the host.
- The self time of an operation excludes other operations within it on the same track. So the self
  times of a track add up to the time in which the track was busy.
- An event with an `operation` under `args` counts as that operation, any other by its name.

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
MOST = 20  # operations that are reported
MAX_CHARACTERS = 160  # of a name; those of kernels may be whole C++ templates


def read(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """The operations of a trace by decreasing time, as `summarise` returns them.

    Raises:
        OSError: the file cannot be read, or is not gzipped.
        ValueError, KeyError, TypeError: it is not such a trace.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return summarise(json.load(file)["traceEvents"])


def summarise(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The operations of some events by decreasing time, at most MOST.

    Returns:
        For each its name (`operation`), whether a device or the host executed it (`place`), how
        often (`count`), its self time in seconds (`spent_s`), and the `share` of that in the self
        time of all operations, also of those that are not reported.

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
    """(name of the operation, self time in microseconds) of each event."""
    tracks: dict[tuple[Any, Any], list[Event]] = {}
    for event in events:
        tracks.setdefault((event.get("pid"), event.get("tid")), []).append(event)
    for track in tracks.values():
        self_us: list[float] = []
        outer: list[tuple[float, int]] = []  # end and number of the enclosing events
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
    return terminal.message(str(name), MAX_CHARACTERS)
