"""protobuf: fields of messages that are whole, cut off, or no messages."""

import pytest

from dlbench.common import protobuf

# A varint, eight bytes, a text and four bytes.
MESSAGE = bytes([8, 150, 1, 17, *range(8), 26, 2, 104, 105, 37, *range(4)])


def test_fields_of_all_wire_types_are_read():
    found = list(protobuf.fields(MESSAGE))
    assert found == [(1, 150), (2, bytes(range(8))), (3, b"hi"), (4, bytes(range(4)))]


def test_a_message_that_is_cut_off_within_a_field_is_refused():
    for length in (1, 2, 5, 11, 14, 17):
        with pytest.raises((ValueError, IndexError)):
            list(protobuf.fields(MESSAGE[:length]))


def test_an_unknown_wire_type_or_a_number_of_more_than_64_bits_is_refused():
    for kind in (3, 4, 6, 7):
        with pytest.raises(ValueError, match=f"a field of kind {kind}"):
            list(protobuf.fields(bytes([8 | kind, 1])))
    with pytest.raises(ValueError, match="more than 64 bits"):
        protobuf.read_varint(bytes([255] * 10 + [1]), 0)
