"""tfrecord: read back by a reader of its own; by TensorFlow's in tests/trainer."""

import contextlib
import io
import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import tfrecord
from dlbench.tfrecord import example, record

INT64 = st.integers(-(2**63), 2**63 - 1)
FEATURES = st.dictionaries(st.text(max_size=20), st.one_of(st.binary(max_size=300), INT64))


def masked_crc(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def payloads(data):
    """The payloads of a file of records, their checksums verified."""
    position = 0
    while position < len(data):
        header = data[position : position + 8]
        (length,) = struct.unpack("<Q", header)
        (crc,) = struct.unpack_from("<I", data, position + 8)
        assert crc == masked_crc(header)
        payload = data[position + 12 : position + 12 + length]
        (crc,) = struct.unpack_from("<I", data, position + 12 + length)
        assert crc == masked_crc(payload)
        yield payload
        position += 16 + length


def varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value, position


def fields(data):
    """(number, content) of the length-delimited and integer fields of a protobuf message."""
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        size, position = varint(data, position)
        if key & 7 == 0:
            yield key >> 3, size
        else:
            yield key >> 3, data[position : position + size]
            position += size


def decoded(payload):
    (_, features) = next(fields(payload), (1, b""))
    found = {}
    for _, entry in fields(features):
        parts = dict(fields(entry))
        ((kind, values),) = fields(parts[2])
        ((_, value),) = fields(values)
        if kind == 3:
            value, _ = varint(value, 0)
            value -= (value >> 63) << 64
        found[parts[1].decode()] = value
    return found


@given(st.lists(st.binary(max_size=500), max_size=5))
def test_records_come_back_whole_and_in_order(contents):
    assert list(payloads(b"".join(map(record, contents)))) == contents


@given(FEATURES)
def test_examples_come_back_with_their_values(features):
    assert decoded(example(features)) == features


@given(FEATURES)
def test_the_pieces_of_a_framed_example_are_its_bytes(features):
    assert b"".join(tfrecord.framed_example(features)) == record(example(features))


def test_names_are_sorted_so_that_equal_examples_have_equal_bytes():
    assert example({"b": 1, "a": b"x"}) == example({"a": b"x", "b": 1})
    assert example({"label": 3}) == bytes.fromhex("0a100a0e0a056c6162656c12051a030a0103")


@pytest.mark.parametrize("value", [1.5, None, [1.5], [b"x"]])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(TypeError, match="feature 'x': expected bytes, str, int or a list of ints"):
        example({"x": value})


@given(FEATURES)
def test_examples_are_parsed_as_they_were_written(features):
    parsed = tfrecord.parse_example(example(features))
    assert parsed == {name: [value] for name, value in features.items()}


@given(st.lists(INT64, max_size=30))
def test_lists_of_ints_are_kept_in_order(numbers):
    assert tfrecord.parse_example(example({"tokens": numbers})) == {"tokens": numbers}


@given(st.binary(max_size=60))
def test_what_is_no_example_is_refused_or_parsed_but_never_crashes(payload):
    with contextlib.suppress(tfrecord.RecordError):
        tfrecord.parse_example(payload)


@given(st.lists(st.binary(max_size=500), max_size=5))
def test_our_reader_gives_what_the_other_one_gives(contents):
    framed = b"".join(map(record, contents))
    assert [payload for _, payload in tfrecord.payloads(io.BytesIO(framed), "x")] == contents


def test_records_are_counted_without_reading_them(tmp_path):
    path = tmp_path / "shard"
    path.write_bytes(b"".join(map(record, [b"", b"abc", b"x" * 1000])))
    assert tfrecord.records_in(path) == 3
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tfrecord.RecordError, match="record at byte 35 is cut off"):
        tfrecord.records_in(path)
