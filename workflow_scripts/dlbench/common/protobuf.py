"""Messages of Protocol Buffers, read without a description of their fields.

Source: protobuf.dev, "Encoding".
"""

from collections.abc import Iterator
from typing import Any

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
