"""convert_pictures: a user's pictures become shards, and those that cannot be read are listed."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from dlbench import Error
from dlbench.common import plugins, tfrecord
from dlbench.data import convert_pictures, pictures, stores
from dlbench.data.convert_pictures import UnreadablePictures, as_stored
from dlbench.study import config
from support.studies.made_studies import BLOCK, STUDY

# Its quarters differ, so that each of the eight orientations gives another picture.
QUARTERS = np.zeros((40, 60, 3), np.uint8)
QUARTERS[:20, :30], QUARTERS[:20, 30:], QUARTERS[20:, :30] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
UPRIGHT = Image.fromarray(QUARTERS)


def encoded(image=UPRIGHT, kind="JPEG", orientation=None, **options):
    content = io.BytesIO()
    exif = Image.Exif()
    if orientation:
        exif[pictures.EXIF_ORIENTATION] = orientation
        options["exif"] = exif
    image.save(content, kind, **options)
    return content.getvalue()


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)


@pytest.fixture
def own(tmp_path):
    """A folder of ten pictures in each of two classes."""
    for label, kind in (("cat", "jpg"), ("dog", "png")):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(10):
            UPRIGHT.save(tmp_path / "own" / label / f"{number}.{kind}")
    yield tmp_path / "own"
    plugins.set_user_names("datasets", "images", [])


def converted(tmp_path, **given):
    """(the manifest, the records of both splits) of a conversion."""
    output = tmp_path / "out"
    convert_pictures.convert("photos", given, output, workers=1)
    assert stores.verify(output) == []
    manifest, records = json.loads((output / "manifest.json").read_text()), {}
    for split, part in manifest["splits"].items():
        content = b"".join((output / shard["file"]).read_bytes() for shard in part["shards"])
        payloads = tfrecord.payloads(io.BytesIO(content), split)
        records[split] = [tfrecord.parse_example(payload) for _, payload in payloads]
    return manifest, records


def test_pictures_become_jpegs_with_the_number_and_the_name_of_their_class(own, tmp_path):
    manifest, records = converted(tmp_path, path=str(own))
    assert manifest["dataset"] == "photos" and manifest["class_names"] == ["cat", "dog"]
    assert manifest["reader"]["encoding"] == "jpeg" and manifest["reader"]["classes"] == 2
    assert {split: len(found) for split, found in records.items()} == {"train": 16, "validation": 4}
    for record in records["train"] + records["validation"]:
        (name,), (label,) = record["image/filename"], record["image/class/label"]
        assert name.decode().startswith(("cat/", "dog/")[label])
        (content,) = record["image/encoded"]
        original = (own / name.decode()).read_bytes()
        assert content == original if label == 0 else pixels(content).shape == (40, 60, 3)
    # The bytes do not depend on the number of processes.
    convert_pictures.convert("photos", {"path": str(own)}, tmp_path / "two", workers=2)
    assert json.loads((tmp_path / "two/manifest.json").read_text()) == manifest


def test_with_an_image_size_all_are_arrays_of_it_cropped_at_their_centres(own, tmp_path):
    manifest, records = converted(tmp_path, path=str(own), image_size=[20, 20])
    assert manifest["reader"] == {
        "encoding": "raw", "shape": [20, 20, 3], "classes": 2, "first_label": 0,
    }  # fmt: skip
    for record in records["train"]:
        array = np.frombuffer(record["image/encoded"][0], np.uint8).reshape(20, 20, 3).astype(int)
        assert abs(array[2, 2] - (250, 0, 0)).max() < 30  # a corner: nothing was stretched
        assert abs(array[2, -3] - (0, 250, 0)).max() < 30
        assert abs(array[-3, 2] - (0, 0, 250)).max() < 30


def packed(folder, form, own):
    """A form of the pictures of `own`, and what a config says of it."""
    files = sorted(own.rglob("*.*g"))
    if form == "parquet":
        images = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
        labels = [path.parent.name for path in files]
        pyarrow.parquet.write_table(pa.table({"image": images, "label": labels}), folder / "a")
        return {"parquet": str(folder / "a")}
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number, path in enumerate(files):
            archive.add(path, f"{number}{path.suffix}")
            (folder / "label").write_text(path.parent.name)
            archive.add(folder / "label", f"{number}.cls")
    return {"webdataset": str(folder / "a.tar")}


@pytest.mark.parametrize("form", ["parquet", "webdataset"])
def test_pictures_in_larger_files_are_converted_as_those_of_folders(own, tmp_path, form):
    (own / "cat" / "0.jpg").write_bytes(b"no picture")
    given = packed(tmp_path, form, own) | {"max_unreadable": 0.1}
    manifest, records = converted(tmp_path, **given)
    assert manifest["class_names"] == ["cat", "dog"] and manifest["unreadable"] == 1
    assert manifest["code_sha256"] == adopted({"photos": given})["photos"].digest
    assert adopted({"photos": given})["photos"].folder == tmp_path
    labels = [record["image/class/label"][0] for part in records.values() for record in part]
    assert sorted(labels) == 9 * [0] + 10 * [1]
    (one,) = records["train"][0]["image/encoded"]
    assert pixels(one).shape == (40, 60, 3)
    assert not list((tmp_path / "out").glob(".unpacked*"))


# What is at the top left and at the top right of a picture that was turned by its EXIF data.
RED, GREEN, BLUE, BLACK = (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)
TOPS = {1: (RED, GREEN), 2: (GREEN, RED), 3: (BLACK, BLUE), 4: (BLUE, BLACK)}
TOPS |= {5: (RED, BLUE), 6: (BLUE, RED), 7: (BLACK, GREEN), 8: (GREEN, BLACK)}


@pytest.mark.parametrize("orientation", TOPS)
def test_pictures_are_turned_as_their_exif_data_say(orientation):
    content = encoded(orientation=orientation)
    stored, height, width = as_stored(content, None, "a.jpg")
    assert (stored is content) == (orientation == 1)
    assert (height, width) == ((40, 60) if orientation < 5 else (60, 40))
    # Read as trainers do, who ignore EXIF data.
    tops = pixels(stored)[3, [3, -4]] // 200
    assert tuple(map(tuple, tops)) == TOPS[orientation]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("CMYK", "JPEG"), ("RGB", "WEBP"), ("P", "GIF"), ("RGB", "TIFF"), ("RGBA", "PNG"),
     ("1", "PNG")],
)  # fmt: skip
def test_pictures_of_other_formats_become_jpegs_that_trainers_read(mode, kind):
    stored, height, width = as_stored(encoded(UPRIGHT.convert(mode), kind), None, "a")
    assert pictures.jpeg_header(stored, "a") == (40, 60, 3) and (height, width) == (40, 60)


def test_pictures_that_cannot_be_read_are_listed_and_refused_beyond_a_share(own, tmp_path):
    (own / "cat" / "0.jpg").write_bytes(b"<!doctype html>")
    (own / "cat" / "1.jpg").write_bytes(encoded()[:400])
    (own / "dog" / "2.png").unlink()
    (own / "dog" / "2.png").symlink_to(tmp_path / "nothing")
    with pytest.raises(UnreadablePictures) as error:
        converted(tmp_path, path=str(own), max_unreadable=0.1)
    message = str(error.value)
    assert message.startswith("photos: 3 of 20 pictures below ")
    assert "cat/0.jpg (does not decode as an image: it is a web page)" in message
    assert "max_unreadable of data.images.photos is 0.1, and they are 0.15" in message
    listed = (tmp_path / "out/unreadable.txt").read_text().splitlines()
    assert [line.split(":")[0] for line in listed] == ["cat/0.jpg", "cat/1.jpg", "dog/2.png"]
    assert listed[2] == "dog/2.png: No such file or directory"
    assert not (tmp_path / "out/manifest.json").exists()

    manifest, records = converted(tmp_path, path=str(own), max_unreadable=0.15)
    assert manifest["unreadable"] == 3
    assert sum(map(len, records.values())) == 17
    UPRIGHT.save(own / "cat" / "0.jpg")
    UPRIGHT.save(own / "cat" / "1.jpg")
    (own / "dog" / "2.png").unlink()
    converted(tmp_path, path=str(own))
    assert not (tmp_path / "out/unreadable.txt").exists()
    # A class that has too few readable pictures is named.
    for number in range(9):
        (own / "dog" / f"{number}.png").write_text("no picture")
    with pytest.raises(Error, match="found one in 1 of 2 classes: dog"):
        converted(tmp_path, path=str(own), max_unreadable=0.9)


def adopted(images, dataset="photos", **changes):
    data = STUDY["data"] | {"images": images} | changes
    block = BLOCK | {"model": "cnn12", "dataset": dataset, "steps": 5}
    return stores.adopted(config.study(STUDY | {"data": data, "matrix": [block]}))


def test_the_digest_depends_on_what_records_are_made_of(own, tmp_path):
    def digest(**given):
        return adopted({"photos": given})["photos"].digest

    before = digest(path=str(own))
    assert digest(path=str(own), max_unreadable=0.5) == before
    others = [digest(path=str(own), **{key: value}) for key, value in
              (("seed", 2), ("validation_share", 0.3), ("image_size", [8, 8]))]  # fmt: skip
    manifest, _ = converted(tmp_path, path=str(own))
    assert manifest["code_sha256"] == before
    (own / "cat" / "0.jpg").write_bytes(encoded(quality=50))
    assert len({before, digest(path=str(own)), *others}) == 5


def test_each_name_is_a_dataset_and_the_one_that_is_wrong_is_named(own, tmp_path):
    (own / "labels.csv").write_text("file,label\ncat/1.jpg,7\ncat/2.jpg,7\ndog/1.png,8\n")
    both = {"photos": {"path": str(own)}, "listed": {"csv": str(own / "labels.csv")}}
    assert adopted(both, "photos")["photos"].folder == own
    with pytest.raises(Error, match=r"dataset listed: .*: expected two pictures or more of each"):
        adopted(both, "listed")
    with pytest.raises(Error, match=r"dataset photos: .*/none: expected a folder with a folder"):
        adopted({"photos": {"path": str(tmp_path / "none")}})
    with pytest.raises(Error, match=r"dataset photos is pictures of your own: set their folder"):
        adopted({"photos": {}})
    with pytest.raises(Error, match=r"dataset images is pictures .*\{photos: \{path: /data/photo"):
        adopted({}, "images")


def test_pictures_are_taken_as_they_were_converted_except_by_starts_which_look(own, here):
    given = {"path": str(own)}
    settings = STUDY | {"data": STUDY["data"] | {"images": {"photos": given}}}
    study = config.study(settings | {"matrix": [BLOCK | {"dataset": "photos", "steps": 5}]})
    assert stores.adopted(study, as_converted=True) == stores.adopted(study)  # not converted yet
    convert_pictures.convert("photos", given, here / "results/data/photos")
    before = stores.adopted(study)
    (own / "cat" / "0.jpg").unlink()
    assert stores.adopted(study, as_converted=True) == before
    assert stores.adopted(study)["photos"].digest != before["photos"].digest


def test_converted_pictures_of_a_store_need_no_source(own, tmp_path):
    convert_pictures.convert("photos", {"path": str(own)}, tmp_path / "store/photos", workers=1)
    store = adopted({"photos": {}}, store=str(tmp_path / "store"))["photos"]
    digest = adopted({"photos": {"path": str(own)}})["photos"].digest
    assert store == (tmp_path / "store/photos", digest)


def test_names_of_any_bytes_are_converted_and_control_no_terminal(own, tmp_path):
    (own / "cat" / "0.jpg").rename(own / "cat" / "\udcff.jpg")
    (own / "cat" / "1.jpg").rename(own / "cat" / "\x1b[2J\n.jpg")
    _, records = converted(tmp_path, path=str(own))
    names = {r["image/filename"][0].decode() for part in records.values() for r in part}
    assert {"cat/\ufffd.jpg", "cat/\\x1b[2J\\n.jpg"} <= names
