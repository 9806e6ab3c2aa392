"""webdataset: shards of samples, each a picture and a class."""

import io
import tarfile

import pytest

from dlbench.data import picture_index
from dlbench.data.forms import webdataset
from dlbench.data.picture_index import IndexingError


def shard(path, **contents):
    """A tar file as the package webdataset writes it, with times in PAX headers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1.5
            archive.addfile(member, io.BytesIO(content))
    return path


SAMPLES = {f"{n}.jpg": b"picture %d" % n for n in range(4)} | {
    f"{n}.cls": b"%d" % (n % 2) for n in range(4)
}


def refused(pattern, **given):
    with pytest.raises(IndexingError) as error:
        webdataset.index({"webdataset": str(pattern)} | given)
    return str(error.value)


def test_samples_are_pictures_with_the_class_beside_them(tmp_path):
    shard(tmp_path / "a-09.tar", **{"x/1.PNG": b"one", "x/1.cls": b"dog\n", "x/1.json": b"{}"})
    shard(tmp_path / "a-10.tar", **{"x/1.cls": b"cat", "__key__": b"", "x/1.jpg": b"two"})
    index = webdataset.index({"webdataset": f"{tmp_path}/a-{{09..10}}.tar"})
    assert index.splits == {"": {"cat": ["a-10.tar:x/1.jpg"], "dog": ["a-09.tar:x/1.PNG"]}}
    assert [index.read(name) for name in index.names] == [b"two", b"one"]


def test_shards_that_are_held_out_are_named(tmp_path):
    for name in ("train/0.tar", "val/0.tar"):
        shard(tmp_path / name, **SAMPLES)
    given = {"webdataset": f"{tmp_path}/train/*.tar", "validation": f"{tmp_path}/val/0.tar"}
    splits = picture_index.split(webdataset.index(given), 0.2, 1)
    assert {part: len(names) for part, names in splits.items()} == {"train": 4, "validation": 4}
    assert splits["validation"][0] == ("val/0.tar:0.jpg", 0)


def test_braces_mean_each_name():
    assert list(webdataset.expanded("{08..10}.tar")) == ["08.tar", "09.tar", "10.tar"]
    assert list(webdataset.expanded("{a,b}-{0..1}")) == ["a-0", "a-1", "b-0", "b-1"]


def test_shards_that_do_not_exist_are_counted_and_the_first_named(tmp_path, monkeypatch):
    shard(tmp_path / "1.tar", **SAMPLES)
    message = refused(tmp_path / "{0..9}.tar")
    assert f"9 of 10 shards do not exist: {tmp_path}/0.tar, {tmp_path}/2.tar, " in message
    assert "there is no such file" in refused(tmp_path / "b*.tar")
    monkeypatch.setattr(webdataset, "MAX_SHARDS", 10)
    for last in (10, 999999999):
        assert "more than 10 shards" in refused(f"{{0..{last}}}.tar")
    assert "more than" not in refused("{0..9}.tar")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"4.jpg": b"", "5.jpg": b""}, "found none in 2 of 6: 4, 5"),
        ({"4.cls": b"1"}, "expected a picture in each sample, found none in 1 of 5: 4"),
        ({"4.json": b"1"}, "expected a class, as in 0001.cls beside 0001.jpg,"),
        ({"3.png": b""}, "expected one picture and one class in a sample, found 3.jpg and 3.png"),
        ({"3.cls": b"0.5"}, "3.cls: expected a class, which is a whole number or a name, found"),
        ({"3.cls": b"x" * 2000}, "3.cls: expected a class"),
    ],
)
def test_samples_without_a_picture_or_a_class_are_refused(tmp_path, changes, message):
    assert message in refused(shard(tmp_path / "a.tar", **(SAMPLES | changes)))


@pytest.mark.parametrize("kept", [0.2, 0.55, 0.9])
def test_a_tar_that_is_cut_short_is_refused(tmp_path, kept):
    path = shard(tmp_path / "a.tar", **{f"{n}.jpg": b"x" * 3000 for n in range(20)})
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    assert "expected a complete tar file that is not compressed" in refused(path)


def test_a_file_that_is_no_plain_tar_or_ends_between_two_members_is_refused(tmp_path):
    path = shard(tmp_path / "a.tar", **SAMPLES)
    with tarfile.open(path) as archive:
        end = archive.getmembers()[4].offset
    path.write_bytes(path.read_bytes()[:end])
    assert "its end is missing" in refused(path)
    (tmp_path / "a.tar").write_text("no tar")
    assert "expected a complete tar file" in refused(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "b.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    assert "that is not compressed" in refused(tmp_path / "b.tar")
