"""parquet: files with pictures as Hugging Face writes them."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from dlbench.data import picture_index
from dlbench.data.forms import parquet
from dlbench.data.picture_index import IndexingError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(path, labels, names=None, pictures=None, image=IMAGE, label=None):
    """A Parquet file; with the metadata of a ClassLabel if there are names."""
    pictures = pictures or [{"bytes": b"%d" % n, "path": "x"} for n in range(len(labels))]
    table = pa.table({"image": pa.array(pictures, image), "label": pa.array(labels, label)})
    if names:
        features = {"label": {"names": names, "_type": "ClassLabel"}, "image": {"_type": "Image"}}
        about = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": about})
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path, row_group_size=3)
    return path


def refused(path, **given):
    with pytest.raises(IndexingError) as error:
        parquet.index({"parquet": str(path)} | given)
    return str(error.value)


def test_classes_have_the_names_of_their_numbers_and_pictures_are_read_in_any_order(tmp_path):
    path = write(tmp_path / "a.parquet", [1, 0, 1, 0, 1], ["zebra", "ant", "unused"])
    index = parquet.index({"parquet": str(path)}, tmp_path)
    assert index.classes == ["zebra", "ant"]
    assert index.splits[""]["ant"] == [f"a.parquet: row {row}" for row in (0, 2, 4)]
    assert [index.read(f"a.parquet: row {row}") for row in (4, 0, 3)] == [b"4", b"0", b"3"]


def test_without_names_of_classes_their_numbers_are_their_names(tmp_path):
    path = write(tmp_path / "a.parquet", [10, 9, 10, 9])
    assert parquet.index({"parquet": str(path)}).classes == ["9", "10"]
    path = write(tmp_path / "b.parquet", ["dog", "cat"])
    assert parquet.index({"parquet": str(path)}).classes == ["cat", "dog"]


@pytest.mark.parametrize(
    "names",
    [
        ("data/train-0-of-1.parquet", "data/test-0-of-1.parquet"),
        ("train/0.parquet", "val/0.parquet"),
    ],
)
def test_names_of_files_or_of_their_folders_say_the_split(tmp_path, names):
    for name, count in zip((*names, "unsupervised-0.parquet"), (4, 2, 6), strict=True):
        write(tmp_path / name, [0, 1] * (count // 2))
    splits = picture_index.split(parquet.index({"parquet": str(tmp_path)}), 0.2, 1)
    assert {part: len(items) for part, items in splits.items()} == {"train": 4, "validation": 2}


def test_a_link_to_a_file_of_another_name_is_read_as_in_a_cache_of_downloads(tmp_path):
    write(tmp_path / "blobs/1a2b", [0, 1])
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train-0.parquet").symlink_to(tmp_path / "blobs/1a2b")
    assert parquet.index({"parquet": str(tmp_path / "data")}).classes == ["0", "1"]


def test_files_that_are_missing_or_cut_short_are_refused(tmp_path):
    assert "expected a Parquet file, or a folder" in refused(tmp_path)
    write(tmp_path / "test-0.parquet", [0, 1])
    assert "expected train-*.parquet beside test, found none" in refused(tmp_path)
    path = write(tmp_path / "a.parquet", [0, 1])
    path.write_bytes(path.read_bytes()[:-20])
    assert "no complete Parquet file" in refused(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, -1]}, "row 1: expected a class as label, found -1: -1 means"),
        ({"labels": [0, None]}, "row 1: expected a class as label, found None"),
        ({"labels": [0, 2], "names": ["a", "b"]}, "expected a number below 2, as there are names,"),
        ({"labels": [0.5, 1.0]}, "label: expected classes, which are whole numbers or names, foun"),
        ({"image": pa.string(), "pictures": ["a", "b"]}, "expected pictures as structs with bytes"),
    ],
)
def test_labels_and_columns_that_are_none_are_refused(tmp_path, changes, message):
    given = {"labels": [0, 1]} | changes
    assert message in refused(write(tmp_path / "a.parquet", **given))


def test_columns_of_other_names_and_pictures_that_are_paths_only_are_refused(tmp_path):
    message = refused(write(tmp_path / "a.parquet", [0, 1]), columns=["img", "label"])
    assert "found no img; there are: image, label (`columns` names others)" in message
    path = write(tmp_path / "a.parquet", [0], pictures=[{"bytes": None, "path": "/x.jpg"}])
    with pytest.raises(IndexingError, match="row 0: expected the picture's content, found none"):
        parquet.index({"parquet": str(path)}, tmp_path)
