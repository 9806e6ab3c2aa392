"""class_folders: pictures of a tar with a folder for each class, and what is refused."""

import io
import tarfile

import pytest

from dlbench.data import archives
from dlbench.data.archives import ArchiveError
from dlbench.data.class_folders import ClassFolders


def packed(path, names, format=tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=format) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


@pytest.mark.parametrize("beginning", ["", "all/ours/"])
def test_each_picture_has_the_label_of_its_folder_and_every_fifth_is_held_out(tmp_path, beginning):
    names = [f"{beginning}{name}/{n}.jpg" for name in ("dog", "cat") for n in range(5)]
    source = ClassFolders(packed(tmp_path / "x.tar", names))
    assert (source.count("train"), source.count("validation")) == (8, 2)
    found = [source.features(s, n) for s in ("train", "validation") for n in range(source.count(s))]
    assert sorted(record["image/filename"] for record in found) == sorted(names)
    for record in found:
        assert record["image/encoded"] == record["image/filename"].encode()
        label = ["cat", "dog"].index(record["image/class/text"])
        assert record["image/class/label"] == label
        assert f"/{record['image/class/text']}/" in f"/{record['image/filename']}"


@pytest.mark.parametrize(
    ("names", "stray", "number"),
    [
        (["cat/1.jpg", "dog/1.jpg", "a.jpg"], "a.jpg", 0),
        (["all/cat/1.jpg", "all/dog/1.jpg", "all/x.jpg"], "all/x.jpg", 2),
        (["1.jpg", "2.jpg"], "1.jpg", 0),
    ],
)
def test_a_picture_in_no_folder_of_a_class_is_refused_with_its_number(
    tmp_path, names, stray, number
):
    with pytest.raises(ArchiveError, match=rf"{stray} \(record {number}, .*as in cat/0001\.jpg"):
        ClassFolders(packed(tmp_path / "x.tar", names))


@pytest.mark.parametrize(
    ("format", "kind"), [(tarfile.PAX_FORMAT, "PAX"), (tarfile.GNU_FORMAT, r"GNU \(a long name\)")]
)
def test_another_format_of_tar_is_named_with_its_remedy(tmp_path, format, kind):
    path = packed(tmp_path / "x.tar", [f"cat/{'ä' * 120}.jpg"], format)
    with pytest.raises(ArchiveError, match=rf"headers of the kind {kind} .*tar --format=ustar"):
        ClassFolders(path)


def test_long_names_are_whole(tmp_path):
    names = [f"{'long' * 20}/{'cat' * 15}/{n}{'x' * 60}.jpg" for n in range(3)]
    path = packed(tmp_path / "x.tar", names)
    assert [name for name, _, _ in archives.tar_index(path)] == names
    gnu = packed(tmp_path / "gnu.tar", ["cat/1.jpg"], tarfile.GNU_FORMAT)
    assert [name for name, _, _ in archives.tar_index(gnu)] == ["cat/1.jpg"]
