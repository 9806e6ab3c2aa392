"""content_digests: the digest of a user's files, of which those that changed are read again."""

import os

from dlbench.data import content_digests, picture_index


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def digest(folder, known=None):
    index = picture_index.of_folder(folder)
    contents = content_digests.contents("reading", folder, index.groups, known)
    return content_digests.digest(index.classes, contents), contents


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


def test_only_classes_whose_listing_changed_are_read_again(tmp_path):
    before, contents = digest(make(tmp_path, "cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"))
    known = {key: entry | {"content": f"of {key}"} for key, entry in contents.items()}
    os.utime(tmp_path / "dog/1.jpg", (1, 1))
    _, again = digest(tmp_path, known)
    assert again["/cat"]["content"] == "of /cat"
    assert again["/dog"]["content"] == contents["/dog"]["content"]
    for damaged in ({"/cat": []}, {"/cat": {"listing": contents["/cat"]["listing"]}}, {}):
        assert digest(tmp_path, damaged)[0] == before
