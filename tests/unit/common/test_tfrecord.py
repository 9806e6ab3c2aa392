"""tfrecord and protobuf: what is written has the bytes of the format, or its damage is named."""

import contextlib
import io

import google_crc32c
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.common import tfrecord
from dlbench.common.tfrecord import example, record

INT64 = st.integers(-(2**63), 2**63 - 1)
# Also of the sizes from which values are not copied.
SIZES = st.sampled_from([4095, 4096, 4097, 20_000])
BYTES = st.binary(max_size=300) | st.builds(bytes, SIZES)
FEATURES = st.dictionaries(st.text(max_size=20), BYTES | INT64, max_size=8)


def payloads(data):
    return [payload for _, payload in tfrecord.payloads(io.BytesIO(data), "shard")]


def decoded(payload):
    """The features of an example, by the reader of any message."""
    found = {}
    for _, entries in tfrecord.fields(payload):
        for _, entry in tfrecord.fields(entries):
            parts = dict(tfrecord.fields(entry))
            ((kind, values),) = tfrecord.fields(parts[2])
            ((_, value),) = tfrecord.fields(values)
            if kind == 3:
                value, _ = tfrecord.read_varint(value, 0)
                value -= (value >> 63) << 64
            found[parts[1].decode()] = value
    return found


@given(st.lists(st.binary(max_size=500), max_size=5))
def test_records_come_back_whole_and_in_order(contents):
    assert payloads(b"".join(map(record, contents))) == contents


@given(FEATURES)
def test_examples_come_back_with_their_values_and_are_framed_in_pieces(features):
    assert decoded(example(features)) == features
    parsed = tfrecord.parse_example(example(features))
    assert parsed == {name: [value] for name, value in features.items()}
    assert b"".join(tfrecord.framed_example(features)) == record(example(features))


@given(st.lists(INT64, max_size=30))
def test_lists_of_ints_are_kept_in_order(numbers):
    assert tfrecord.parse_example(example({"tokens": numbers})) == {"tokens": numbers}


def test_records_have_the_bytes_that_the_format_says():
    """The checksum of 123456789 is 0xe3069283, the check value of CRC-32C."""
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert record(b"") == bytes.fromhex("000000000000000029039807d8ea82a2")
    head, end = bytes.fromhex("090000000000000037f97139"), bytes.fromhex("e5b08ac7")
    assert record(b"123456789") == head + b"123456789" + end
    assert record(bytes(300))[:8] == bytes.fromhex("2c01000000000000")


@pytest.mark.parametrize(
    ("features", "written"),
    [
        ({}, "0a00"),
        ({"x": b"\xff"}, "0a0c0a0a0a017812050a030a01ff"),
        ({"x": -1}, "0a150a130a0178120e1a0c0a0a" + "ff" * 9 + "01"),
        ({"x": 300}, "0a0d0a0b0a017812061a040a02ac02"),
        ({"label": 3}, "0a100a0e0a056c6162656c12051a030a0103"),
        ({"x": "\u00e9"}, "0a0d0a0b0a017812060a040a02c3a9"),
    ],
)
def test_examples_have_the_bytes_that_the_format_says(features, written):
    assert example(features) == bytes.fromhex(written)
    assert example({"b": 1, "a": b"x"}) == example({"a": b"x", "b": 1})  # names are sorted


WRONG = [1.5, None, [1.5], [b"x"], True, [True], [1, 2.5], (1, 2), bytearray(b"x"), {"a": 1}]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_value_that_is_no_bytes_or_ints_is_refused(value):
    with pytest.raises(TypeError, match="feature 'x': expected bytes, str, int or a list of ints"):
        example({"x": value})


@given(st.binary(max_size=60))
@hypothesis.example(b"\xff" * 11)  # a number of more than 64 bits
@hypothesis.example(b"\x0a\x04\x0a\x02\x08\x01")  # a name that is a number
@hypothesis.example(b"\x0a\x7f\x0a")  # fewer bytes than announced
def test_what_is_no_example_is_refused_or_parsed_but_never_crashes(payload):
    with contextlib.suppress(tfrecord.RecordError):
        tfrecord.parse_example(payload)


@given(features=FEATURES, place=st.integers(0, 500), put=st.binary(max_size=4))
def test_an_example_with_some_bytes_changed_never_crashes(features, place, put):
    payload = example(features)
    place %= max(1, len(payload))
    with contextlib.suppress(tfrecord.RecordError):
        tfrecord.parse_example(payload[:place] + put + payload[place + len(put) :])


def test_examples_of_other_writers_are_parsed():
    unpacked = "0a0b0a090a017812041a020805"  # older writers: numbers one by one
    floats = "0a0f0a0d0a0178120812060a040000803f"  # none of ours: left out
    assert tfrecord.parse_example(bytes.fromhex(unpacked)) == {"x": [5]}
    assert tfrecord.parse_example(bytes.fromhex(floats)) == {"x": []}


def test_records_are_counted_without_reading_them(tmp_path):
    path = tmp_path / "shard"
    path.write_bytes(b"".join(map(record, [b"", b"abc", b"x" * 1000])))
    assert tfrecord.count_records(path) == 3
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tfrecord.RecordError, match="record at byte 35 is cut off"):
        tfrecord.count_records(path)


@given(st.binary(max_size=60), st.data())
def test_any_flipped_bit_is_noticed(content, data):
    framed = bytearray(record(content) + record(b"next"))
    position = data.draw(st.integers(0, len(framed) - 1))
    framed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(tfrecord.RecordError, match="the checksum of its"):
        payloads(framed)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3), st.data())
def test_any_cut_is_noticed_unless_it_is_between_records(contents, data):
    framed = [record(content) for content in contents]
    ends = [sum(map(len, framed[:number])) for number in range(len(framed) + 1)]
    cut = data.draw(st.integers(0, ends[-1]))
    if cut in ends:
        assert payloads(b"".join(framed)[:cut]) == contents[: ends.index(cut)]
    else:
        with pytest.raises(tfrecord.RecordError, match="cut off"):
            payloads(b"".join(framed)[:cut])


def test_a_damaged_record_is_named_with_its_place_after_those_before_it():
    framed = bytearray(record(b"whole") + record(b"damaged"))
    framed[-5] ^= 1
    reader = tfrecord.payloads(io.BytesIO(framed), "shard-7")
    assert next(reader) == (0, b"whole")
    with pytest.raises(tfrecord.RecordError, match="shard-7: record at byte 21: the checksum of"):
        next(reader)
    with pytest.raises(tfrecord.RecordError, match=r"train-0, record 3: not a tf\.train\.Example"):
        tfrecord.parse_example(b"\xff" * 11, "train-0, record 3")


# A varint, eight bytes, a text and four bytes.
MESSAGE = bytes([8, 150, 1, 17, *range(8), 26, 2, 104, 105, 37, *range(4)])


def test_fields_of_all_wire_types_are_read():
    found = list(tfrecord.fields(MESSAGE))
    assert found == [(1, 150), (2, bytes(range(8))), (3, b"hi"), (4, bytes(range(4)))]


def test_a_message_that_is_cut_off_within_a_field_is_refused():
    for length in (1, 2, 5, 11, 14, 17):
        with pytest.raises((ValueError, IndexError)):
            list(tfrecord.fields(MESSAGE[:length]))


def test_an_unknown_wire_type_or_a_number_of_more_than_64_bits_is_refused():
    for kind in (3, 4, 6, 7):
        with pytest.raises(ValueError, match=f"a field of kind {kind}"):
            list(tfrecord.fields(bytes([8 | kind, 1])))
    with pytest.raises(ValueError, match="more than 64 bits"):
        tfrecord.read_varint(bytes([255] * 10 + [1]), 0)
