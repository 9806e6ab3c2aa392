"""conversion: shards that are the same each time, and verified."""

import json

import pytest

from dlbench import conversion
from dlbench.conversion import DataError
from dlbench.datasets import digits


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    conversion.fetch("digits", folder)
    return folder


@pytest.fixture
def converted(source, tmp_path):
    conversion.convert("digits", source, tmp_path / "digits", "0" * 64)
    return tmp_path / "digits"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_converting_twice_gives_the_same_bytes(source, converted, tmp_path):
    conversion.convert("digits", source, tmp_path / "again", "0" * 64)
    assert contents(converted) == contents(tmp_path / "again")


def test_the_manifest_describes_every_shard(converted):
    manifest = json.loads((converted / "manifest.json").read_text())
    names = {shard["file"] for split in manifest["splits"].values() for shard in split["shards"]}
    assert names | {"manifest.json"} == set(contents(converted))
    for split, part in manifest["splits"].items():
        assert part["records"] == sum(shard["records"] for shard in part["shards"])
        assert part["records"] == digits.SPLITS[split]
    assert manifest["source"] == digits.FILES
    assert conversion.verify(converted) == []


def test_splits_have_no_image_in_common_by_construction(source):
    seen = [split for split, _, _ in digits.examples(source)]
    assert len(seen) == 1797
    assert seen.count("validation") == 360


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda shard: shard.unlink(), "missing"),
        (lambda shard: shard.write_bytes(shard.read_bytes()[:-1]), "bytes, found"),
        (lambda shard: flip(shard, 1000), "expected sha256"),
    ],
)
def test_a_damaged_shard_is_named(converted, damage, message):
    shard = converted / "train-00002-of-00004"
    damage(shard)
    (problem,) = conversion.verify(converted)
    assert problem.startswith(str(shard))
    assert message in problem


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_folder_without_a_sound_manifest_is_named(tmp_path):
    assert "is this the folder of a converted dataset?" in conversion.verify(tmp_path)[0]
    (tmp_path / "manifest.json").write_text("{")
    assert "is not JSON" in conversion.verify(tmp_path)[0]


def test_a_source_file_that_is_not_the_published_one_is_refused_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "fetch", lambda name, path: path.write_bytes(b"<html>login</html>"))
    with pytest.raises(DataError) as error:
        conversion.fetch("digits", tmp_path)
    assert "expected 57523 bytes" in str(error.value)
    assert "found 18" in str(error.value)
    assert (tmp_path / "digits.csv.gz.bad").read_bytes().startswith(b"<html>")
    assert not (tmp_path / "digits.csv.gz").exists()


def test_a_source_with_fewer_records_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "SPLITS", digits.SPLITS | {"train": 1500})
    with pytest.raises(DataError, match="expected 1500 train records, found 1437"):
        conversion.convert("digits", source, tmp_path / "digits", "0" * 64)
    assert not (tmp_path / "digits" / "manifest.json").exists()
