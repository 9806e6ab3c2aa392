"""Horovod's timeline: rank 0's activities for each tensor, in the trace format of Chrome.

- A JSON array on one line, whose `]` may be missing.
- `pid` is the tensor. B begins an activity of it, E without a name ends the innermost one; times
  are in microseconds. NEGOTIATE_ALLREDUCE lasts from the first rank that is ready until all are.
  ALLREDUCE is the operation, which contains its parts (QUEUE, MEMCPY_IN_FUSION_BUFFER,
  NCCL_ALLREDUCE, ...). X events are ranks that became ready, i events marks of cycles.
- Tensors are fused and run concurrently: the seconds of an activity, summed over tensors, exceed
  the time by the clock. So they are in the notes of a run and in no column.

Source: horovod/common/{timeline.cc,common.h}, Horovod 0.28.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from dlbench.imports import log_file, log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogError, LogFile

FAMILY = None
ATTACHES = True
MAX_EVENT_BYTES = 2**20
MAX_DEPTH = 64  # of activities within one another; Horovod has 2
MAX_ACTIVITIES = 1000  # names; Horovod has about 50
NEAR_END = 8  # characters that an unfinished word, number or escape may have
WHITE = " \t\r\n"


def recognise(log: LogFile) -> bool:
    head = log.head
    return (
        head.lstrip().startswith(b"[")
        and b'"process_name"' in head
        and b'"ph"' in head
        and (b"start_time_since_epoch_in_micros" in head or b'"NEGOTIATE_' in head)
    )


def read(log: LogFile) -> Iterator[Imported]:
    timeline = _Timeline(log)
    cut_at = None
    for offset, event in _events(log):
        if event is None:
            cut_at = offset
        else:
            timeline.add(offset, event)
    yield timeline.imported(cut_at)


def _events(log):
    """Yield (byte offset, event) of each event, and (byte offset, None) if the last is cut short.

    A LogError if the file has something else between the events.
    """
    # Latin-1 has one character for each byte, so positions are byte offsets.
    decoder, rest, start, in_array = json.JSONDecoder(), "", 0, False
    for chunk in log_file.in_utf8(log.chunks()):
        rest += chunk.decode("latin-1")
        position = 0
        while True:
            while position < len(rest) and rest[position] in WHITE + (
                "[" if not in_array else ",]"
            ):
                in_array = in_array or rest[position] == "["
                position += 1
            if position == len(rest):
                break
            try:
                event, end = decoder.raw_decode(rest, position)
            except (json.JSONDecodeError, RecursionError, ValueError) as error:
                if not _unfinished(rest, error):
                    raise _damaged(log, start + position, rest[position:]) from error
                break
            if not isinstance(event, dict):
                raise _damaged(log, start + position, rest[position:])
            yield start + position, event
            position = end
        rest, start = rest[position:], start + position
        if len(rest) > MAX_EVENT_BYTES:
            raise _damaged(log, start, rest)
    if rest:
        yield start, None


def _unfinished(rest, error):
    """Whether the error is at the end of the text, so that more bytes could complete the JSON."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or len(rest) - error.pos <= NEAR_END


def _damaged(log, offset, text):
    return LogError(
        f"{log.path}, byte {offset}: expected an event, found {log_lines.printable(text, 40)}"
    )


class _Timeline:
    def __init__(self, log):
        self.log = log
        self.open = defaultdict(list)  # (name, start) of activities that have not ended, by tensor
        self.tensors = set()
        self.seconds, self.times = Counter(), Counter()
        self.started_at = None

    def add(self, offset, event):
        phase, pid = event.get("ph"), event.get("pid")
        if phase == "M":
            args = event.get("args")
            micros = (
                args.get("start_time_since_epoch_in_micros") if isinstance(args, dict) else None
            )
            micros = log_lines.real(micros, 0, 1e17)
            self.started_at = self.started_at or (micros and log_lines.date(micros / 1e6))
        elif phase in ("B", "E"):
            at_us = log_lines.real(event.get("ts"), 0, 1e17)
            if at_us is None or log_lines.count(pid, 0) is None:
                raise self._error(offset, "an event without its time or its tensor")
            self.tensors.add(pid)
            (self._begin if phase == "B" else self._end)(offset, event, pid, at_us)

    def _begin(self, offset, event, pid, at_us):
        name = event.get("name")
        if not isinstance(name, str):
            raise self._error(offset, "an activity begins without a name")
        if len(self.open[pid]) == MAX_DEPTH or len(self.times) == MAX_ACTIVITIES:
            raise self._error(offset, "more activities than Horovod has: is this its timeline?")
        self.open[pid].append((name[:80], at_us))

    def _end(self, offset, event, pid, at_us):
        if not self.open[pid]:
            raise self._error(offset, "an activity ends that did not begin")
        name, start_us = self.open[pid].pop()
        if at_us < start_us:
            raise self._error(offset, f"{name} ends before it begins")
        self.seconds[name] += (at_us - start_us) / 1e6
        self.times[name] += 1

    def _error(self, offset, reason):
        return LogError(f"{self.log.path}, byte {offset}: {reason}")

    def imported(self, cut_at):
        if not self.times:
            raise LogError(f"{self.log.path}: no activity in it that ended")
        run = Imported({})
        if self.started_at:
            run.notes.append(f"Horovod's timeline began at {self.started_at:%Y-%m-%dT%H:%M:%SZ}")
        sums = ", ".join(
            f"{_activity_label(name)} {seconds:.6g} s ({self.times[name]} times)"
            for name, seconds in self.seconds.most_common(log_lines.MAX_NAMES)
        )
        run.notes.append(
            f"rank 0's activities summed over {len(self.tensors)} tensors, which overlap: {sums}"
        )
        if unfinished := sum(map(len, self.open.values())):
            run.notes.append(f"{unfinished} activities left out: they did not end")
        if cut_at is not None:
            run.notes.append(f"the event at byte {cut_at} left out: cut short")
        return run


def _activity_label(name):
    """
    >>> _activity_label("NEGOTIATE_ALLREDUCE"), _activity_label("MEMCPY_IN_FUSION_BUFFER")
    ('negotiation of allreduce', 'memcpy in fusion buffer')
    """
    name = "".join(c if c.isprintable() else "?" for c in name)
    start, _, rest = name.partition("NEGOTIATE_")
    label = f"negotiation of {rest}" if not start and rest else name
    return label.replace("_", " ").lower()
