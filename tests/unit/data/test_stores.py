"""stores: existing shards are used in place."""

import hashlib
import io
import json

import pytest
from PIL import Image

from dlbench.common.tfrecord import RecordError, example, record
from dlbench.data import stores
from dlbench.data.pictures import PictureError
from dlbench.data.stores import AdoptionError
from dlbench.study import config

STUDY = config.read("config.yaml")
JPEG = io.BytesIO()
Image.new("RGB", (8, 8)).save(JPEG, "JPEG")
JPEG = JPEG.getvalue()


def shards(folder, pattern, label, first=1, count=2, records=3, content=JPEG):
    """Shards of both splits; labels count from `first`."""
    folder.mkdir(parents=True, exist_ok=True)
    image = "image/encoded" if label == "image/class/label" else "image"
    for split in ("train", "validation"):
        for number in range(count):
            framed = b"".join(
                record(example({image: content, label: first + index})) for index in range(records)
            )
            (folder / pattern.format(split=split, number=number, count=count)).write_bytes(framed)
    return folder


MODELS = "{split}-{number:05d}-of-{count:05d}"
TFDS = "imagenet2012-{split}.tfrecord-{number:05d}-of-{count:05d}"


@pytest.mark.parametrize(
    ("pattern", "label", "first", "layout"),
    [
        (MODELS, "image/class/label", 1, "tensorflow/models"),
        (TFDS, "label", 0, "tfds"),
        (MODELS, "label", 0, "tfds"),
    ],
)
@pytest.mark.parametrize("check", ["header", "decode"])
def test_layouts_are_recognised_by_their_keys(tmp_path, pattern, label, first, layout, check):
    folder = shards(tmp_path / "there", pattern, label, first)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    stores.adopt("imagenet", folder, tmp_path / "manifest.json", check)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["reader"]["layout"], manifest["reader"]["first_label"]) == (layout, first)
    assert manifest["splits"]["train"]["records"] == 6
    assert manifest["folder"] == str(folder)
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert stores.verify(tmp_path) == []


def test_splits_may_lie_in_folders_of_their_own(tmp_path):
    flat = shards(tmp_path / "flat", MODELS, "image/class/label")
    for split in ("train", "validation"):
        (tmp_path / "there" / split).mkdir(parents=True)
        for path in flat.glob(f"{split}-*"):
            path.rename(tmp_path / "there" / split / path.name)
    stores.adopt("imagenet", tmp_path / "there", tmp_path / "manifest.json")
    assert stores.verify(tmp_path) == []


@pytest.mark.parametrize(
    ("label", "first", "content", "message"),
    [
        ("image/class/label", 0, JPEG, "has label 0, expected 1 .. 1000"),
        ("label", 1000, JPEG, "has label 1000, expected 0 .. 999"),
        ("class", 0, JPEG, "unknown layout: expected the keys"),
        ("label", 1, b"\x89PNG", "its images are png, and those of this dataset are re"),
    ],
)
def test_shards_of_another_kind_are_refused(tmp_path, label, first, content, message):
    folder = shards(tmp_path / "there", MODELS, label, first, content=content)
    with pytest.raises(AdoptionError, match=message):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json")


@pytest.mark.parametrize("check", ["header", "decode"])
def test_a_picture_that_is_cut_off_is_named_with_its_place(tmp_path, check):
    folder = shards(tmp_path / "there", MODELS, "label", content=JPEG[:-2])
    with pytest.raises(PictureError, match=r"00000-of-00002: record at byte 0: this JPEG has no e"):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json", check)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image": JPEG, "label": [1, 2]}, "expected one value of type int as label, found int, i"),
        ({"image": JPEG, "label": []}, "expected one value of type int as label, found none"),
        ({"image": 5, "label": 1}, "expected one value of type bytes as image, found int"),
    ],
)
def test_features_of_another_kind_are_named_with_their_place(tmp_path, features, message):
    folder = shards(tmp_path / "there", MODELS, "label")
    (folder / "train-00000-of-00002").write_bytes(record(example(features)))
    with pytest.raises(AdoptionError, match=rf"train-00000.*: record at byte 0: {message}"):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json")


def test_a_label_out_of_range_is_found_anywhere_when_all_is_read(tmp_path):
    folder = shards(tmp_path / "there", MODELS, "image/class/label")
    bad = record(example({"image/encoded": b"x", "image/class/label": 1001}))
    with open(folder / "train-00001-of-00002", "ab") as file:
        file.write(bad)
    stores.adopt("imagenet", folder, tmp_path / "manifest.json", "header")
    with pytest.raises(AdoptionError, match=r"train-00001-of-00002: record at byte \d+ has label"):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json", "decode")


def test_missing_shards_and_wrong_folders_are_named(tmp_path):
    folder = shards(tmp_path / "there", MODELS, "image/class/label", count=3)
    (folder / "train-00001-of-00003").unlink()
    with pytest.raises(AdoptionError, match=r"expected 3 shards .* found 2; missing: 00001"):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json")
    with pytest.raises(AdoptionError, match="no such folder"):
        stores.adopt("imagenet", tmp_path / "absent", tmp_path / "manifest.json")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(AdoptionError, match="neither flat nor in train/; there are 1 entries"):
        stores.adopt("imagenet", tmp_path / "other", tmp_path / "manifest.json")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda content: content[:-1], "record at byte .* is cut off"),
        (lambda content: record(b"\xff" * 11), r"record at byte 0: not a tf\.train"),
    ],
)
def test_a_shard_that_is_cut_off_or_of_other_records_is_named(tmp_path, changed, message):
    folder = shards(tmp_path / "there", MODELS, "image/class/label")
    path = folder / "validation-00000-of-00002"
    path.write_bytes(changed(path.read_bytes()))
    with pytest.raises(RecordError, match=rf"validation-00000-of-00002: {message}"):
        stores.adopt("imagenet", folder, tmp_path / "manifest.json")


def test_a_store_is_used_where_it_lies_unless_it_is_damaged(converted, tmp_path):
    stores.adopt("digits", converted, tmp_path / "mine" / "manifest.json")
    manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text())
    assert manifest["folder"] == str(converted)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["manifest.json"]
    assert stores.verify(tmp_path / "mine") == []
    (converted / "train-00000-of-00004").unlink()
    with pytest.raises(AdoptionError, match=r"is damaged:\n.*train-00000-of-00004: missing"):
        stores.adopt("digits", converted, tmp_path / "manifest.json")


def test_the_config_says_what_is_there_already(converted, tmp_path):
    def adopted(**data):
        return stores.adopted(config.study(STUDY | {"data": STUDY["data"] | data}))

    assert adopted() == {}
    of_ours = adopted(store=str(converted.parent))
    assert {name: used.folder for name, used in of_ours.items()} == {"digits": converted}
    folder = shards(tmp_path / "shards", MODELS, "image/class/label")
    of_others = adopted(tfrecords={"digits": str(folder)})
    assert of_others["digits"].folder == folder
    assert of_others["digits"].digest != of_ours["digits"].digest
    # The recipe is the digest of the store.
    manifest = (converted / "manifest.json").read_bytes()
    assert stores.recipes(of_ours) == {"digits": hashlib.sha256(manifest).hexdigest()}
