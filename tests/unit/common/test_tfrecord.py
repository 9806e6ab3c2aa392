"""tfrecord: read back by a reader of the test; by TensorFlow's in tests/trainer."""

import contextlib
import io
import struct

import google_crc32c
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.common import tfrecord
from dlbench.common.tfrecord import example, record

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


def test_what_is_no_example_is_named_by_its_place():
    with pytest.raises(tfrecord.RecordError, match=r"train-0, record 3: not a tf\.train\.Example"):
        tfrecord.parse_example(b"\xff" * 11, "train-0, record 3")


@given(st.lists(st.binary(max_size=500), max_size=5))
def test_our_reader_gives_what_the_other_one_gives(contents):
    framed = b"".join(map(record, contents))
    assert [payload for _, payload in tfrecord.payloads(io.BytesIO(framed), "x")] == contents


def test_records_are_counted_without_reading_them(tmp_path):
    path = tmp_path / "shard"
    path.write_bytes(b"".join(map(record, [b"", b"abc", b"x" * 1000])))
    assert tfrecord.count_records(path) == 3
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tfrecord.RecordError, match="record at byte 35 is cut off"):
        tfrecord.count_records(path)


def test_records_have_the_bytes_that_the_format_says():
    """The checksum of 123456789 is 0xe3069283, the check value of CRC-32C."""
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert record(b"") == bytes.fromhex("000000000000000029039807d8ea82a2")
    assert record(b"123456789") == (
        bytes.fromhex("090000000000000037f97139") + b"123456789" + bytes.fromhex("e5b08ac7")
    )


def test_examples_have_the_bytes_that_the_format_says():
    assert example({}) == bytes.fromhex("0a00")
    assert example({"x": b"\xff"}) == bytes.fromhex("0a0c0a0a0a017812050a030a01ff")
    assert example({"x": -1}) == bytes.fromhex("0a150a130a0178120e1a0c0a0a" + "ff" * 9 + "01")
    assert example({"x": 300}) == bytes.fromhex("0a0d0a0b0a017812061a040a02ac02")
    assert example({"x": "\u00e9"}) == example({"x": "\u00e9".encode()})


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 4095, 4096, 4097, 20_000]), st.integers(0, 255)),
        max_size=5,
    )
)
def test_large_values_are_framed_as_small_ones_are(sizes):
    features = {f"{n}": bytes([byte]) * size for n, (size, byte) in enumerate(sizes)}
    framed = b"".join(tfrecord.framed_example(features))
    assert framed == record(example(features))
    assert [decoded(payload) for payload in payloads(framed)] == [features]


@given(st.binary(max_size=60), st.data())
def test_any_flipped_bit_is_noticed(content, data):
    framed = bytearray(record(content) + record(b"next"))
    position = data.draw(st.integers(0, len(framed) - 1))
    framed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(tfrecord.RecordError, match="the checksum of its"):
        list(tfrecord.payloads(io.BytesIO(framed), "shard"))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3), st.data())
def test_any_cut_is_noticed_unless_it_is_between_records(contents, data):
    framed = [record(content) for content in contents]
    ends = {sum(map(len, framed[:number])) for number in range(len(framed) + 1)}
    cut = data.draw(st.integers(0, sum(map(len, framed))))
    reader = tfrecord.payloads(io.BytesIO(b"".join(framed)[:cut]), "shard")
    if cut in ends:
        assert [payload for _, payload in reader] == contents[: len(list(ends_before(ends, cut)))]
    else:
        with pytest.raises(tfrecord.RecordError, match="cut off"):
            list(reader)


def ends_before(ends, cut):
    return (end for end in ends if 0 < end <= cut)


def test_a_damaged_record_is_named_with_its_place_after_those_before_it():
    framed = bytearray(record(b"whole") + record(b"damaged"))
    framed[-5] ^= 1
    reader = tfrecord.payloads(io.BytesIO(framed), "shard-7")
    assert next(reader) == (0, b"whole")
    with pytest.raises(tfrecord.RecordError, match="shard-7: record at byte 21: the checksum of"):
        next(reader)


def test_examples_of_other_writers_are_parsed():
    unpacked = "0a0b0a090a017812041a020805"  # older writers: numbers one by one
    floats = "0a0f0a0d0a0178120812060a040000803f"  # none of ours: left out
    assert tfrecord.parse_example(bytes.fromhex(unpacked)) == {"x": [5]}
    assert tfrecord.parse_example(bytes.fromhex(floats)) == {"x": []}


@pytest.mark.parametrize("value", [True, [True], [1, 2.5], (1, 2), bytearray(b"x"), {"a": 1}])
def test_what_only_resembles_bytes_or_ints_is_refused(value):
    with pytest.raises(TypeError, match="feature 'x': expected"):
        example({"x": value})
