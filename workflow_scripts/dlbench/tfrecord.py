"""Write TFRecord files of tf.train.Example without TensorFlow.

A record is its length (u64, little-endian), the masked CRC-32C of the length,
the payload, and the masked CRC-32C of the payload. The payload is a protobuf
with its map keys sorted, which is what TensorFlow's deterministic
serialisation gives, byte for byte.

Source of the format: tensorflow/core/lib/io/record_writer.h and
tensorflow/core/example/{example,feature}.proto.
"""

import struct

import google_crc32c

_BYTES_LIST, _INT64_LIST = 1, 3
_LENGTH_DELIMITED = 2


def record(payload):
    """One framed record: 16 bytes more than its payload."""
    length = struct.pack("<Q", len(payload))
    return length + _masked_crc(length) + payload + _masked_crc(payload)


def example(features):
    """A serialised tf.train.Example.

    Args:
        features: maps names to bytes, str or int, one value each.

    Raises:
        TypeError: a value is of another type.
    """
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _feature(name, features[name])))
        for name in sorted(features)
    )
    return _field(1, entries)


def _feature(name, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _field(_BYTES_LIST, _field(1, value))
    if isinstance(value, int):
        return _field(_INT64_LIST, _field(1, _varint(value & (2**64 - 1))))
    raise TypeError(f"feature {name!r}: expected bytes, str or int, found {type(value).__name__}")


def _field(number, content):
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
