"""own_pictures: what a config says of a user's pictures, and whether they changed."""

import os

import pytest
from PIL import Image

from dlbench.data import own_pictures
from dlbench.data.own_pictures import Settings
from dlbench.data.picture_index import IndexingError


@pytest.fixture
def own(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (4, 4)).save(tmp_path / "own" / label / f"{number}.png")
    return tmp_path / "own"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "a", "parquet": "b"}, "expected one place of pictures, found parquet and path"),
        ({"path": "a", "columns": ("x", "y")}, "columns: only with csv or parquet, found path"),
        ({"path": "a", "validation": "b"}, "validation: only with webdataset, found path"),
    ],
)
def test_keys_that_contradict_one_another_are_refused(given, message):
    with pytest.raises(IndexingError) as error:
        Settings(**given)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({"webdataset": "/data/a{1,2}/x.tar"}, "/data"),
        ({"webdataset": "/data/a/x-*.tar", "validation": "/data/b/x.tar"}, "/data"),
        ({"parquet": "data/x.parquet"}, f"{os.getcwd()}/data"),
        ({"csv": "/data/x.csv", "path": "/pictures"}, "/pictures"),
    ],
)
def test_the_folder_of_pictures_is_known_without_looking(given, folder):
    assert str(Settings(**given).folder) == folder


def test_contents_are_read_once_before_a_conversion_too(own, tmp_path):
    output, given = tmp_path / "results" / "photos", {"path": str(own)}
    first = own_pictures.identify("photos", given, output)
    picture, before = own / "cat" / "0.png", (own / "cat" / "0.png").stat()
    picture.write_bytes(b"x" * before.st_size)
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert own_pictures.identify("photos", given, output) == first  # it is not read again
    os.utime(picture)
    again = own_pictures.identify("photos", given, output)
    assert again != first
    # So they are where nothing can be noted.
    (tmp_path / "file").write_text("no folder")
    found = own_pictures.identify("photos", given, tmp_path / "file" / "photos")
    assert found == again


def test_larger_files_are_identified_by_their_contents_and_not_opened(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no archive")
    given = {"parquet": str(path)}
    first = own_pictures.identify("photos", given, tmp_path / "results")
    path.write_bytes(b"another")
    assert own_pictures.identify("photos", given, tmp_path / "results").digest != first.digest
    with pytest.raises(IndexingError, match="found none"):
        own_pictures.identify("photos", {"parquet": str(tmp_path / "b.parquet")}, tmp_path)


def test_what_is_at_a_path_is_found_by_the_names_of_files(own, tmp_path):
    assert own_pictures.at(own) == {"path": str(own)}
    with pytest.raises(IndexingError, match="2 of 2 shards do not exist"):
        own_pictures.at(tmp_path / "train-{0..1}.tar")
