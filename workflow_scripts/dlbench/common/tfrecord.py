"""Write and read TFRecord files of tf.train.Example without TensorFlow.

A record is its length (u64, little-endian), the masked CRC-32C of the length,
the payload, and the masked CRC-32C of the payload. The payload is a protobuf
with its map keys sorted, which is what TensorFlow's deterministic
serialisation gives, byte for byte.

Checksums are computed by google-crc32c. Without it records can still be read, as in a trainer's
environment made by hand, but their checksums are not compared.

Source of the format: tensorflow/core/lib/io/record_writer.h and
tensorflow/core/example/{example,feature}.proto.
"""

import functools
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from dlbench import Error

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5  # wire types
FIXED_SIZES = {FIXED_64: 8, FIXED_32: 4}  # bytes


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, content) of each field: an int for a varint, else the bytes.

    >>> list(fields(bytes([8, 150, 1, 18, 2, 16, 1])))
    [(1, 150), (2, b'\\x10\\x01')]

    Raises:
        ValueError: a field is longer than the message, or of an unknown wire type.
        IndexError: a number is cut off.
    """
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = read_varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, position = read_varint(message, position)
        elif kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise ValueError(f"a field of kind {kind}")
        if position + size > len(message):
            raise ValueError("a field longer than its message")
        yield key >> 3, message[position : position + size]
        position += size


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(number, position after it) of a protobuf varint."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value & (2**64 - 1), position
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


class RecordError(Error):
    """A TFRecord file is damaged; the message has file, place, expected and found."""


class CutOffError(RecordError):
    """The last record of a file is incomplete: its writer was killed, or still writes."""


class Readable(Protocol):
    """An open file that can be read."""

    def read(self, size: int, /) -> bytes: ...


_BYTES_LIST, _INT64_LIST = 1, 3
_LENGTH_DELIMITED = 2
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
SMALL_BYTES = 4096
MAX_BYTES = 2**28  # of a record; neither we nor TensorBoard write a larger one


def record(payload: bytes) -> bytes:
    """One framed record: 16 bytes more than its payload."""
    return b"".join(_framed([payload]))


def example(features: Mapping[str, Any]) -> bytes:
    """A serialised tf.train.Example.

    `features`: maps names to bytes, str, int or a list of ints. Raises TypeError: a value is of
    another type.
    """
    return b"".join(_pieces(features))


def framed_example(features: Mapping[str, Any]) -> list[bytes]:
    """`record(example(features))` as a list of pieces, which avoids copies of images."""
    return _framed(_joined(_pieces(features)))


def _joined(pieces):
    """The same bytes in fewer pieces: small neighbours are joined, large pieces stay."""
    joined, small = [], []
    for piece in pieces:
        if len(piece) < SMALL_BYTES:
            small.append(piece)
        else:
            joined += [b"".join(small), piece]
            small = []
    return [*joined, b"".join(small)]


def _framed(payload):
    length = struct.pack("<Q", sum(map(len, payload)))
    checksums, crc = _checksums(), 0
    if checksums is None:
        raise Error("records cannot be written without the package google-crc32c")
    for piece in payload:
        crc = checksums.extend(crc, piece)
    return [length, _masked_crc(length), *payload, _masked(crc)]


def _pieces(features):
    entries = []
    for name in sorted(features):
        value = features[name]
        if type(value) in (str, int):
            entries.append(_small_entry(name, value))
        else:
            entries += _entry(name, value)
    return [_head(1, entries), *entries]


@functools.lru_cache(maxsize=1 << 14)  # few classes, sizes and formats, in many records
def _small_entry(name, value):
    return b"".join(_entry(name, value))


def _entry(name, value):
    key = _field(1, name.encode())
    feature = _feature(name, value)
    wrapped = [_head(2, feature), *feature]
    return [_head(1, [key, *wrapped]), key, *wrapped]


def _feature(name, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        kind, head = _BYTES_LIST, _head(1, [value])
    else:
        values = value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in values):
            raise TypeError(
                f"feature {name!r}: expected bytes, str, int or a list of ints, found {value!r}"
            )
        kind, value = _INT64_LIST, b"".join(_varint(number & (2**64 - 1)) for number in values)
        head = _head(1, [value])
    return [_head(kind, [head, value]), head, value]


def _field(number, content):
    return _head(number, [content]) + content


def _head(number, pieces):
    """The key and the length that precede the content of a field."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(sum(map(len, pieces)))


def _varint(value):
    if value <= 0x7F:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@functools.cache
def _checksums() -> ModuleType | None:
    """The package that computes CRC-32C; None where it is not installed."""
    try:
        import google_crc32c
    except ModuleNotFoundError:
        return None
    return google_crc32c


def _masked_crc(data):
    return _masked(_checksums().value(data))


def _differs(data, found):
    """Whether a checksum is not that of the data; False if checksums cannot be computed."""
    return _checksums() is not None and found != _masked_crc(data)


def _masked(crc):
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def payloads(file: Readable, where: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, payload) of each record of an open file, and compare its checksums.

    `where`: the file's name in messages.

    Raises:
        CutOffError: the last record is incomplete.
        RecordError: a checksum differs. Both messages have the record's place.
    """
    offset = 0
    while header := file.read(12):
        place = f"{where}: record at byte {offset}"
        if len(header) < 12:
            raise CutOffError(f"{place}: only {len(header)} of 12 header bytes: cut off")
        if _differs(header[:8], header[8:]):
            raise RecordError(
                f"{place}: the checksum of its length is {header[8:].hex()}, expected "
                f"{_masked_crc(header[:8]).hex()}{_other_format(header) if offset == 0 else ''}"
            )
        (length,) = struct.unpack("<Q", header[:8])
        if length > MAX_BYTES:
            raise RecordError(f"{place}: its length is {length} bytes, more than any record has")
        payload, crc = file.read(length), file.read(4)
        if len(payload) < length or len(crc) < 4:
            raise CutOffError(f"{place}: expected {length} bytes, found {len(payload)}: cut off")
        if _differs(payload, crc):
            raise RecordError(
                f"{place}: the checksum of its content is {crc.hex()}, expected "
                f"{_masked_crc(payload).hex()}"
            )
        yield offset, payload
        offset += 16 + length


def count_records(path: Path | str) -> int:
    """Number of records in a file, from their lengths alone; their content is not read.

    Raises RecordError: the last record is cut off.
    """
    size_bytes, count, offset = os.path.getsize(path), 0, 0
    with open(path, "rb", buffering=0) as file:
        while offset < size_bytes:
            header = os.pread(file.fileno(), 8, offset)
            length = struct.unpack("<Q", header)[0] if len(header) == 8 else size_bytes
            if offset + 16 + length > size_bytes:
                raise RecordError(f"{path}: record at byte {offset} is cut off")
            offset, count = offset + 16 + length, count + 1
    return count


def parse_example(payload: bytes, where: str = "record") -> dict[str, list[Any]]:
    """The features of a serialised tf.train.Example: lists of bytes or ints, by name.

    `where`: names the payload in messages. Raises RecordError: the payload is not a
    tf.train.Example.
    """
    try:
        features = {}
        for _, content in _fields(payload):
            for _, entry in _fields(content):
                parts = dict(_fields(entry))
                features[parts[1].decode()] = [
                    value for kind, values in _fields(parts[2]) for value in _values(kind, values)
                ]
        return features
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{where}: not a tf.train.Example: {error!r}") from error


def _values(kind, content):
    if kind not in (_BYTES_LIST, _INT64_LIST):
        return  # lists of floats, which no dataset here has
    for _, value in _fields(content):
        if kind == _BYTES_LIST:
            yield value
        elif isinstance(value, int):  # not packed, as older writers do
            yield value - (value >> 63 << 64)
        else:
            position = 0
            while position < len(value):
                number, position = read_varint(value, position)
                yield number - (number >> 63 << 64)


def _fields(message):
    """(number, content) of each field: bytes if it is length-delimited, else an int."""
    position, end = 0, len(message)
    while position < end:
        key, value = message[position], message[position + 1]
        if key | value < 0x80:  # one byte each, as usual: a third of the time of read_varint
            position += 2
        else:
            key, position = read_varint(message, position)
            value, position = read_varint(message, position)
        if key & 7 == _LENGTH_DELIMITED:
            if position + value > end:
                raise ValueError(f"expected {value} bytes, found {end - position}")
            value, position = message[position : position + value], position + value
        yield key >> 3, value


def _other_format(start):
    """The end of a message: the format of a file with this beginning, if it is known."""
    if start.startswith(b"\x1f\x8b"):
        return "; this is a gzip file"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "; this is an HTML page"
    if start.startswith(b"version http"):
        return "; this is a git-LFS pointer, not the file"
    return ""
