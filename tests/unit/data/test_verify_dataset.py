"""verify_dataset: differences from the manifest are reported with file and position."""

import gzip
import os
import shutil

import pytest

from dlbench.common import tfrecord
from dlbench.data import convert_dataset, fetch_dataset, verify_dataset


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    fetch_dataset.fetch("digits", folder / "source")
    convert_dataset.convert("digits", folder / "source", folder / "digits")
    return folder / "digits"


@pytest.fixture
def converted(digits, tmp_path):
    return shutil.copytree(digits, tmp_path / "digits")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda shard: shard.unlink(), "train-00002-of-00004: missing"),
        (lambda shard: os.truncate(shard, 5000), "cut off (4 of 359 records are whole; expected"),
        (lambda shard: flip(shard, 8), "the checksum of its length is"),
        (lambda shard: flip(shard, 1300), "record at byte 1193: the checksum of its content"),
        (lambda shard: drop_last(shard), "expected 359 records, found 358"),
        (lambda shard: shard.write_bytes(b""), "expected 359 records, found 0"),
        (lambda shard: shard.write_bytes(gzip.compress(b"x" * 999)), "this is a gzip file"),
        (lambda shard: shard.write_text("<html>login</html>"), "this is an HTML page"),
        (lambda shard: shard.write_text("version https://git-lfs.github.com"), "git-LFS pointer"),
    ],
)
def test_a_damaged_shard_is_named_with_its_place(converted, damage, message):
    shard = converted / "train-00002-of-00004"
    damage(shard)
    (problem,) = verify_dataset.verify(converted)
    assert str(shard) in problem and message in problem


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def drop_last(path):
    with open(path, "rb") as file:
        offsets = [offset for offset, _ in tfrecord.payloads(file, path)]
    os.truncate(path, offsets[-1])


def test_a_folder_without_a_sound_manifest_is_named(tmp_path):
    assert "is this the folder of a converted dataset?" in verify_dataset.verify(tmp_path)[0]
    (tmp_path / "manifest.json").write_text("{")
    assert "is not JSON" in verify_dataset.verify(tmp_path)[0]


def test_where_only_sizes_are_compared_no_record_is_read(converted):
    shard = converted / "train-00002-of-00004"
    flip(shard, 1300)
    assert verify_dataset.verify(converted, content=False) == []
    os.truncate(shard, 5000)
    (problem,) = verify_dataset.verify(converted, content=False)
    assert problem.startswith(f"{shard}: expected ") and problem.endswith(" bytes, found 5000")
