"""Read TensorBoard's event files without TensorFlow or TensorBoard.

An event file has TFRecords, each a serialised Event. Of that protobuf the time, the step, scalars
and texts are read. Histograms, images, audio and graphs are skipped.

Source: tensorflow/core/util/event.proto, framework/{summary,tensor,types}.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from dlbench.common import protobuf, tfrecord
from dlbench.imports.log_file import LogError, LogFile

VERSION = b"brain.Event:"  # in the first event of each file
# By the number of a tensor's type: how an element is packed in tensor_content, and the field that
# has it if tensor_content is empty.
ELEMENTS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}
TEXT = 7
STRINGS = 8  # the field of a tensor with its texts


@dataclass
class Event:
    """One event; `values` has (tag, value) with a float, a text, or None for other values."""

    wall_time_s: float
    step: int
    values: list[tuple[str, float | str | None]]
    is_version: bool = False


class EventFile:
    """The events of a file in their order.

    Attributes:
        cut_at: byte offset of the last record if it is incomplete, else None; set after all
            events were read.
    """

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.cut_at: int | None = None

    def __iter__(self) -> Iterator[Event]:
        """Yield the events.

        Raises:
            LogError: a record before the last one is damaged, or is no event.
        """
        offset = 0
        try:
            for offset, payload in tfrecord.payloads(_Stream(self._log.chunks()), self._log.path):
                yield parse_event(payload)
                offset += 16 + len(payload)
        except tfrecord.CutOffError:
            self.cut_at = offset
        except tfrecord.RecordError as error:
            raise LogError(str(error)) from error
        except (ValueError, IndexError, struct.error) as error:
            raise LogError(
                f"{self._log.path}: record at byte {offset}: no event: {error}"
            ) from error


def is_event_file(head: bytes) -> bool:
    """Whether the beginning of a file is that of an event file, judged by its first record."""
    try:
        _, payload = next(tfrecord.payloads(_Stream(iter([head])), ""), (0, b""))
    except tfrecord.RecordError:
        return False
    return VERSION in payload


class _Stream:
    """The chunks of a log, readable as a file."""

    def __init__(self, chunks):
        self._chunks = chunks
        self._chunk, self._at = b"", 0

    def read(self, size):
        read, parts = 0, []
        while True:
            part = self._chunk[self._at : self._at + size - read]
            self._at += len(part)
            read += len(part)
            parts.append(part)
            if read == size or not (chunk := next(self._chunks, b"")):
                return b"".join(parts)
            self._chunk, self._at = chunk, 0


def parse_event(payload: bytes) -> Event:
    """The Event of a record.

    Raises:
        ValueError, IndexError, struct.error: the record is no Event.
    """
    event = Event(0.0, 0, [])
    for number, value in protobuf.fields(payload):
        if number == 1:
            (event.wall_time_s,) = struct.unpack("<d", value)
        elif number == 2:
            event.step = _signed(value)
        elif number == 3:
            event.is_version = True
        elif number == 5:
            event.values += [
                _value(content) for part, content in protobuf.fields(value) if part == 1
            ]
    return event


def _value(content):
    tag, value = "", None
    for number, part in protobuf.fields(content):
        if number == 1:
            tag = bytes(part).decode("utf-8", "replace")
        elif number == 2:
            (value,) = struct.unpack("<f", part)
        elif number == 8:
            value = _element(part)
    return tag, value


def _element(tensor):
    """The single element of a tensor as a float or text; None for several or another type."""
    kind, content, elements, several = 0, b"", {}, False
    for number, value in protobuf.fields(tensor):
        if number == 1:
            kind = value
        elif number == 2:
            several = _elements(value) != 1
        elif number == 4:
            content = bytes(value)
        else:
            elements.setdefault(number, []).append(value)
    if several:
        return None
    if kind == TEXT:
        texts = elements.get(STRINGS, [])
        return bytes(texts[0]).decode("utf-8", "replace") if len(texts) == 1 else None
    if kind not in ELEMENTS:
        return None
    packing, field = ELEMENTS[kind]
    if content:
        return float(struct.unpack(packing, content)[0])
    if field not in elements:
        return 0.0  # as TensorFlow reads a tensor without content
    value = elements[field][-1]
    if kind in (1, 2):
        return struct.unpack(packing, value)[0]
    number = value if isinstance(value, int) else protobuf.read_varint(value, 0)[0]
    if kind == 19:
        return struct.unpack("<e", struct.pack("<H", number))[0]
    return float(_signed(number))


def _elements(shape):
    """The number of elements of a tensor with a shape; more than one if it is unknown."""
    product = 1
    for number, dimension in protobuf.fields(shape):
        size = dict(protobuf.fields(dimension)).get(1, 0) if number == 2 else 2
        product *= size
    return product


def _signed(value):
    return value - (value >> 63 << 64)
