"""Write and read TFRecord files of tf.train.Example without TensorFlow.

A record is its length (u64, little-endian), the masked CRC-32C of the length,
the payload, and the masked CRC-32C of the payload. The payload is a protobuf
with its map keys sorted, which is what TensorFlow's deterministic
serialisation gives, byte for byte.

Source of the format: tensorflow/core/lib/io/record_writer.h and
tensorflow/core/example/{example,feature}.proto.
"""

import functools
import os
import struct

import google_crc32c

from dlbench import Error


class RecordError(Error):
    """A TFRecord file is damaged; the message has file, place, found and expected."""


class CutOffError(RecordError):
    """The last record of a file is not there to its end: its writer was killed, or still writes."""


_BYTES_LIST, _INT64_LIST = 1, 3
_LENGTH_DELIMITED = 2
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
SMALL_BYTES = 4096
MOST_BYTES = 2**28  # a larger record is none of ours, nor of TensorBoard's


def record(payload):
    """One framed record: 16 bytes more than its payload."""
    return b"".join(_framed([payload]))


def example(features):
    """A serialised tf.train.Example.

    Args:
        features: maps names to bytes, str, int or a list of ints.

    Raises:
        TypeError: a value is of another type.
    """
    return b"".join(_pieces(features))


def framed_example(features):
    """`record(example(features))` as a list of its pieces: images in it are not copied."""
    return _framed(_joined(_pieces(features)))


def _joined(pieces):
    """The same bytes in fewer pieces: small neighbours are joined, large ones not copied."""
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
    crc = 0
    for piece in payload:
        crc = google_crc32c.extend(crc, piece)
    return [length, _masked_crc(length), *payload, _masked(crc)]


def _pieces(features):
    entries = []
    for name in sorted(features):
        value = features[name]
        if type(value) in (str, int):
            entries.append(_small_entry(name, value))
        else:
            entries += _entry(name, value)
    return [_start(1, entries), *entries]


@functools.lru_cache(maxsize=1 << 14)  # classes, sizes and formats come again and again
def _small_entry(name, value):
    return b"".join(_entry(name, value))


def _entry(name, value):
    key = _field(1, name.encode())
    feature = _feature(name, value)
    wrapped = [_start(2, feature), *feature]
    return [_start(1, [key, *wrapped]), key, *wrapped]


def _feature(name, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        kind, start = _BYTES_LIST, _start(1, [value])
    else:
        values = value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in values):
            raise TypeError(
                f"feature {name!r}: expected bytes, str, int or a list of ints, found {value!r}"
            )
        kind, value = _INT64_LIST, b"".join(_varint(number & (2**64 - 1)) for number in values)
        start = _start(1, [value])
    return [_start(kind, [start, value]), start, value]


def _field(number, content):
    return _start(number, [content]) + content


def _start(number, pieces):
    """What stands before a field of that number with that content: its key and its length."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(sum(map(len, pieces)))


def _varint(value):
    if value <= 0x7F:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc(data):
    return _masked(google_crc32c.value(data))


def _masked(crc):
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def payloads(file, where):
    """Yield (offset, payload) of each record of an open file, its checksums compared.

    Args:
        where: name of the file for messages.

    Raises:
        CutOffError: the last record is not whole.
        RecordError: a checksum differs; both with the record's place.
    """
    offset = 0
    while header := file.read(12):
        place = f"{where}: record at byte {offset}"
        if len(header) < 12:
            raise CutOffError(f"{place}: only {len(header)} of 12 header bytes: cut off")
        if header[8:] != _masked_crc(header[:8]):
            raise RecordError(
                f"{place}: the checksum of its length is {header[8:].hex()}, expected "
                f"{_masked_crc(header[:8]).hex()}{_what_else(header) if offset == 0 else ''}"
            )
        (length,) = struct.unpack("<Q", header[:8])
        if length > MOST_BYTES:
            raise RecordError(f"{place}: {length} bytes announced, more than any record has")
        payload, crc = file.read(length), file.read(4)
        if len(payload) < length or len(crc) < 4:
            raise CutOffError(f"{place}: {length} bytes announced, {len(payload)} there: cut off")
        if crc != _masked_crc(payload):
            raise RecordError(
                f"{place}: the checksum of its content is {crc.hex()}, expected "
                f"{_masked_crc(payload).hex()}"
            )
        yield offset, payload
        offset += 16 + length


def records_in(path):
    """How many records a file has, by their lengths alone; their content is not read.

    Raises:
        RecordError: the last one is cut off.
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


def parse_example(payload, where="record"):
    """The features of a serialised tf.train.Example: names mapped to lists of bytes or ints.

    Args:
        where: what it is, for messages.

    Raises:
        RecordError: it is none.
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
        return  # floats: none of ours
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
    """(number, content) of each field: bytes where it is length-delimited, else an int."""
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        value, position = read_varint(message, position)
        if key & 7 == _LENGTH_DELIMITED:
            if position + value > len(message):
                raise ValueError(f"{value} bytes announced, {len(message) - position} there")
            value, position = message[position : position + value], position + value
        yield key >> 3, value


def read_varint(data, position):
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


def _what_else(start):
    """What a file that begins like this is, where it is no TFRecord file."""
    if start.startswith(b"\x1f\x8b"):
        return "; this is a gzip file"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "; this is an HTML page"
    if start.startswith(b"version http"):
        return "; this is a git-LFS pointer, not the file"
    return ""
