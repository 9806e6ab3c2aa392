"""convert_dataset: conversions are reproducible, resumed after a kill, and verified."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from dlbench.common import plugins, tfrecord
from dlbench.data import convert_dataset, stores
from dlbench.data.convert_dataset import DataError
from dlbench.data.datasets import blends, digits
from dlbench.data.sources import ArraySource, WrongRecord, as_bytes

PROGRAMS = Path(__file__).parents[3] / "workflow_scripts"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("workers", [1, 5])
def test_the_bytes_do_not_depend_on_the_number_of_workers(source, converted, tmp_path, workers):
    convert_dataset.convert("digits", source, tmp_path / "again", workers=workers)
    assert contents(converted) == contents(tmp_path / "again")


def test_the_manifest_describes_every_shard(converted):
    manifest = json.loads((converted / "manifest.json").read_text())
    names = {shard["file"] for split in manifest["splits"].values() for shard in split["shards"]}
    assert names | {"manifest.json"} == set(contents(converted))
    for split, part in manifest["splits"].items():
        assert part["records"] == sum(shard["records"] for shard in part["shards"])
        assert part["records"] == digits.SPLITS[split]
    assert manifest["source"]["digits.csv.gz"]["sha256"] == digits.FILES["digits.csv.gz"]["sha256"]
    assert stores.verify(converted) == []


def test_every_record_is_written_once(source, converted):
    opened = digits.open(source)
    for split in digits.SPLITS:
        every = (opened.features(split, index) for index in range(opened.count(split)))
        wanted = sorted(map(tfrecord.example, every))
        found = []
        for shard in converted.glob(f"{split}-*"):
            with open(shard, "rb") as file:
                found += [payload for _, payload in tfrecord.payloads(file, shard)]
        assert sorted(found) == wanted


def test_what_an_earlier_conversion_finished_is_kept(source, converted):
    """One shard and the manifest are lost; of the others there are notes, as after a kill."""
    manifest = json.loads((converted / "manifest.json").read_text())
    recipe = {key: manifest[key] for key in ("code_sha256", "seed", "check", "source")}
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            note = converted / f".{shard['file']}.json"
            note.write_text(json.dumps({"recipe": recipe, "shard": shard}))
    before = contents(converted)
    (converted / "manifest.json").unlink()
    (converted / "train-00001-of-00004").unlink()
    times = {path.name: path.stat().st_mtime_ns for path in converted.glob("[tv]*")}
    convert_dataset.convert("digits", source, converted)
    assert contents(converted) == {n: c for n, c in before.items() if not n.startswith(".")}
    for name, mtime_ns in times.items():
        assert (converted / name).stat().st_mtime_ns == mtime_ns


@pytest.mark.ci
def test_a_killed_conversion_leaves_whole_shards_only_and_goes_on(tmp_path):
    folder = tmp_path / "blends"
    command = [*conversion(tmp_path, folder), "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    kill_at_work(process, folder)
    process.wait()
    assert not (folder / "manifest.json").exists()
    (first,) = folder.glob(".train-*.json")
    mtime_ns = folder.joinpath(first.name[1:-5]).stat().st_mtime_ns
    subprocess.run(command, check=True, capture_output=True)
    assert folder.joinpath(first.name[1:-5]).stat().st_mtime_ns == mtime_ns
    assert stores.verify(folder) == []
    assert not list(folder.glob(".train-*"))


def conversion(source, folder):
    program = [sys.executable, PROGRAMS / "convert_dataset.py", "blends"]
    return [*program, "--source", source, "--output", folder]


def kill_at_work(process, folder):
    deadline = time.monotonic() + 60
    while not list(folder.glob(".train-*.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)


@pytest.mark.ci
def test_the_workers_of_a_killed_conversion_end_with_it(tmp_path):
    """Else a rule's pipe would stay open, and its workflow wait forever."""
    folder = tmp_path / "blends"
    command = [*conversion(tmp_path, folder), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
    kill_at_work(process, folder)
    process.communicate(timeout=20)  # until nobody has the pipe any more


def test_a_source_with_fewer_records_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "SPLITS", digits.SPLITS | {"train": 1500})
    output = r"expected 1500 train records, found 1437: SPLITS in .*digits\.py says how many"
    with pytest.raises(DataError, match=output):
        convert_dataset.convert("digits", source, tmp_path / "digits")
    assert not (tmp_path / "digits" / "manifest.json").exists()


def test_generated_blends_are_the_same_in_every_process():
    image, mask = blends.blend(7)
    code = "from dlbench.data.datasets import blends; import sys;"
    code += "sys.stdout.buffer.write(blends.blend(7)[0].tobytes())"
    command = [sys.executable, "-c", code]
    again = subprocess.run(command, cwd=PROGRAMS, capture_output=True, check=True)
    assert again.stdout == image.tobytes()
    shares = [blends.blend(number)[1].mean() for number in range(50)]
    assert 0.005 < sum(shares) / 50 < max(shares) < 0.5
    assert set(mask.ravel().tolist()) <= {0, 1}


# Verification


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
    (problem,) = stores.verify(converted)
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
    assert "is this the folder of a converted dataset?" in stores.verify(tmp_path)[0]
    (tmp_path / "manifest.json").write_text("{")
    assert "is not JSON" in stores.verify(tmp_path)[0]


def test_where_only_sizes_are_compared_no_record_is_read(converted):
    shard = converted / "train-00002-of-00004"
    flip(shard, 1300)
    assert stores.verify(converted, content=False) == []
    os.truncate(shard, 5000)
    (problem,) = stores.verify(converted, content=False)
    assert problem.startswith(f"{shard}: expected ") and problem.endswith(" bytes, found 5000")


IMAGES = np.zeros((4, 2, 2, 1), np.uint8)


@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf, -1e-9])
def test_a_label_that_is_no_whole_number_is_refused_with_its_record(wrong):
    source = ArraySource({"train": (IMAGES, np.array([0, 1.0, wrong, 1]))})
    assert [source.features("train", n)["image/class/label"] for n in (0, 1, 3)] == [0, 1, 1]
    with pytest.raises(WrongRecord, match=f"train record 2, .* label, found {wrong}"):
        source.features("train", 2)


def test_numbers_become_bytes_within_their_limits():
    assert as_bytes(np.array([[-9.0, -5, 0, 5, 9]]), -5, 5).tolist() == [[0, 0, 128, 255, 255]]
    assert as_bytes(np.array([[0, 5]]), 0, 5).dtype == np.uint8


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_record(wrong):
    numbers = np.ones((7, 1, 4, 1))
    numbers[5, 0, 2, 0] = wrong
    with pytest.raises(WrongRecord, match=f"record 5 of 7, .*found {wrong} as number 2"):
        as_bytes(numbers, 0, 1)


def test_values_of_any_source_that_are_not_finite_stop_a_conversion(tmp_path, monkeypatch):
    images = np.ones((4, 2, 2, 1), np.float32)
    images[3, 1, 1, 0] = np.nan
    dataset = types.SimpleNamespace(
        TITLE="", LICENCE="", CITATION="", KIND="image", FILES={}, SPLITS={"train": 4},
        SHARDS={"train": 1}, open=lambda folder: ArraySource({"train": (images, np.zeros(4))}),
        READER={"encoding": "raw", "dtype": "float32", "shape": [2, 2, 1], "classes": 1,
                "first_label": 0},
    )  # fmt: skip
    monkeypatch.setattr(plugins, "load", lambda kind, name: dataset)
    with pytest.raises(DataError, match="train record 3: expected finite values, found 1 of 4"):
        convert_dataset.convert("x", tmp_path, tmp_path / "out", workers=1)
    images[3] = 1
    convert_dataset.convert("x", tmp_path, tmp_path / "out", workers=1)
    images[3] = np.nan
    convert_dataset.convert("x", tmp_path, tmp_path / "unchecked", workers=1, check="none")
