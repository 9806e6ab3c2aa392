"""own_pictures and picture_index: pictures of folders and CSV files, their classes and digests."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dlbench.common import terminal
from dlbench.data import own_pictures, picture_index
from dlbench.data.own_pictures import Settings
from dlbench.data.picture_index import Index, IndexingError


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


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def of_csv(path, text, columns=("file", "label")):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return picture_index.of_csv(path, path.parent, columns)


def refused(folder):
    with pytest.raises(IndexingError) as error:
        picture_index.check_classes(picture_index.of_folder(folder))
    return str(error.value)


def test_a_path_without_pictures_is_told_from_one_that_is_not_there(tmp_path):
    assert "pictures for each class, found nothing there" in refused(tmp_path / "nope")
    (tmp_path / "file").touch()
    assert "pictures for each class, found a file" in refused(tmp_path / "file")


def test_classes_are_folders_in_the_order_of_names_with_the_pictures_of_folders_in_them(tmp_path):
    names = ("dog/b.JPG", "dog/a.png", "cat/more/c.jpeg", "cat/d.webp", "cat/notes.txt")
    index = picture_index.of_folder(make(tmp_path, *names, "cat/.hidden.jpg", ".git/x.jpg"))
    assert index.classes == ["cat", "dog"]
    assert index.splits == {
        "": {"cat": ["cat/d.webp", "cat/more/c.jpeg"], "dog": ["dog/a.png", "dog/b.JPG"]}
    }


@pytest.mark.parametrize("validation", ["validation", "val", "valid", "test"])
def test_folders_of_splits_are_the_splits(tmp_path, validation):
    make(tmp_path, "train/cat/1.jpg", "train/dog/2.jpg", f"{validation}/cat/3.jpg")
    make(tmp_path, f"{validation}/dog/4.jpg")
    splits = picture_index.split(picture_index.of_folder(tmp_path), 0.2, 1)
    held_out = [(f"{validation}/cat/3.jpg", 0), (f"{validation}/dog/4.jpg", 1)]
    train = [("train/cat/1.jpg", 0), ("train/dog/2.jpg", 1)]
    assert splits == {"train": train, "validation": held_out}


def test_a_class_may_have_the_name_of_a_split_and_train_alone_is_split(tmp_path):
    make(tmp_path / "a", "train/1.jpg", "train/2.jpg", "plane/1.jpg", "plane/2.jpg")
    assert picture_index.of_folder(tmp_path / "a").classes == ["plane", "train"]
    make(tmp_path / "b", *(f"train/{label}/{n}.jpg" for label in "ab" for n in range(2)))
    splits = picture_index.split(picture_index.of_folder(tmp_path / "b"), 0.2, 1)
    assert [len(splits[part]) for part in ("train", "validation")] == [2, 2]


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(2, 40), min_size=2, max_size=4),
    st.floats(0.01, 0.99),
    st.integers(0, 5),
)
def test_each_picture_is_in_one_split_and_each_class_in_both(counts, share, seed):
    classes = {label: [f"{label}/{n}" for n in range(count)] for label, count in counts.items()}
    index = Index(Path(), {"": classes})
    splits = picture_index.split(index, share, seed)
    assert splits == picture_index.split(index, share, seed)
    both = sorted(name for name, _ in splits["train"] + splits["validation"])
    assert both == sorted(name for names in classes.values() for name in names)
    for number, count in enumerate(counts.values()):
        held_out = sum(label == number for _, label in splits["validation"])
        assert 1 <= held_out <= count - 1 and abs(held_out - share * count) <= 1


def test_another_seed_holds_out_other_pictures():
    index = Index(Path(), {"": {label: [f"{label}{n}" for n in range(50)] for label in "ab"}})
    assert picture_index.split(index, 0.2, 1) != picture_index.split(index, 0.2, 2)


def test_a_folder_without_pictures_is_named_with_what_is_there(tmp_path):
    assert "expected a folder with a folder of pictures" in refused(tmp_path / "none")
    others = make(tmp_path / "a", "cat/1.heic", "cat/2.heic", "cat/x.txt")
    assert refused(others).endswith("there are: 2 of .heic, 1 of .txt")
    (tmp_path / "b").mkdir()
    assert refused(tmp_path / "b").endswith("there are: no files")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"), "found one in 1 of 2 classes: dog"),
        (("cat/1.jpg", "cat/2.jpg"), "expected two classes or more, found cat"),
        (("cat/1.jpg", "dog/1.jpg", "2.jpg", "3.png"), "found 2 outside: 2.jpg, 3.png"),
        (("cat/1.jpg", "dog/x.txt"), "found none in dog"),
        (("train/cat/1.jpg", "val/cat/1.jpg", "dog/1.jpg"), "found both: dog beside train/"),
        (("val/cat/1.jpg", "val/dog/1.jpg"), "expected train/ beside val/, found none"),
        (("train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/B/1.jpg"), "only train has b; on"),
    ],
)
def test_pictures_that_make_no_classes_are_refused(tmp_path, names, message):
    assert message in refused(make(tmp_path, *names))


def test_a_link_to_a_folder_above_itself_is_refused(tmp_path):
    make(tmp_path, "cat/1.jpg", "dog/1.jpg")
    (tmp_path / "cat" / "again").symlink_to(tmp_path)
    assert "a folder that has this link" in refused(tmp_path)


def test_a_csv_has_a_path_and_a_class_in_each_line(tmp_path):
    make(tmp_path, "x/1.jpg", "2.jpg", "3.jpg")
    index = of_csv(tmp_path / "l.csv", "id,file,label\n1,x/1.jpg,dog\n2,2.jpg,cat\n3,3.jpg,dog\n")
    assert index.splits == {"": {"cat": ["2.jpg"], "dog": ["3.jpg", "x/1.jpg"]}}
    index = of_csv(tmp_path / "l.csv", "a,b\n2.jpg,10\n3.jpg,9\n", ("a", "b"))
    assert index.classes == ["9", "10"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,class\n1.jpg,a\n", "found no file and no label; there are: name, class"),
        ("file,label\n", "expected a line for each picture, found none"),
        ("", "there are: none"),
        ("file,label\n1.jpg,0.5\n", "line 2: expected a path and a class"),
        ("file,label\n1.jpg\n", "found '1.jpg' and ''"),
        ("file,label\n1.jpg,a\n1.jpg,b\n", "line 3: 1.jpg is in an earlier line, too"),
        (
            "file,label\n1.jpg,a\n2.jpg,a\n3.jpg,b\n4.jpg,b\n5.jpg,b\n",
            "4 of 5 paths do not exist below {folder}: 2.jpg, 3.jpg, 4.jpg, ...",
        ),
    ],
)
def test_a_csv_that_names_no_pictures_or_no_classes_is_refused(tmp_path, text, message):
    make(tmp_path, "1.jpg")
    with pytest.raises(IndexingError) as error:
        of_csv(tmp_path / "labels.csv", text)
    assert message.format(folder=tmp_path) in str(error.value)


def test_a_csv_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(IndexingError, match="cannot be read"):
        picture_index.of_csv(tmp_path / "none.csv", tmp_path, ("file", "label"))
    (tmp_path / "l.csv").write_bytes(b"file,label\n\xff.jpg,a\n")
    with pytest.raises(IndexingError, match="expected a CSV file in UTF-8"):
        picture_index.of_csv(tmp_path / "l.csv", tmp_path, ("file", "label"))


# Digests of contents, of which those that changed are read again


def digest(folder, known=None):
    index = picture_index.of_folder(folder)
    contents = picture_index.contents("reading", folder, index.groups, known)
    return picture_index.digest(index.classes, contents), contents


def test_the_digest_is_of_names_and_contents_and_not_of_places_and_times(tmp_path):
    names = ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg")
    first, _ = digest(make(tmp_path / "a", *names))
    make(tmp_path / "b", *names)
    os.utime(tmp_path / "b/cat/1.jpg", (1, 1))
    assert digest(tmp_path / "b")[0] == first
    (tmp_path / "b/cat/1.jpg").write_bytes(b"another!!")
    assert digest(tmp_path / "b")[0] != first
    (tmp_path / "a/cat/1.jpg").rename(tmp_path / "a/cat/3.jpg")
    assert digest(tmp_path / "a")[0] != first


def test_reading_pictures_says_how_many_are_read_and_when_all_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "EVERY_S", 0)
    monkeypatch.setattr(picture_index, "READERS", 1)
    folder = make(tmp_path, "cat/1.jpg", "cat/2.jpg")
    digest(folder)
    said = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == [f"reading: {done} of 2" for done in (0, 1, 1, 2)]


def test_only_classes_whose_listing_changed_are_read_again(tmp_path):
    before, contents = digest(make(tmp_path, "cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"))
    known = {key: entry | {"content": f"of {key}"} for key, entry in contents.items()}
    os.utime(tmp_path / "dog/1.jpg", (1, 1))
    _, again = digest(tmp_path, known)
    assert again["/cat"]["content"] == "of /cat"
    assert again["/dog"]["content"] == contents["/dog"]["content"]
    for damaged in ({"/cat": []}, {"/cat": {"listing": contents["/cat"]["listing"]}}, {}):
        assert digest(tmp_path, damaged)[0] == before
