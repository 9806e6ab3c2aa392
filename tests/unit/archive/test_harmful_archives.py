"""Harmful archives are refused before any file is unpacked."""

import io
import re
import struct
import zipfile

import pytest

from dlbench.archive import verify_archive
from dlbench.archive.verify_archive import Refused
from support.archives.opened_archives import problems
from support.archives.opened_archives import sound as sound


def entry(name, mode=0o100644, content=b"x"):
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made, content


@pytest.mark.parametrize(
    "name",
    ["archive/../../x", "/etc/x", "archive/data//x", "archive/./x", "archive/data/C:x",
     "archive/data/a\x1bb", "archive/data/con", "archive/data/NUL.txt", "archive/data/x.",
     "archive/data/x ", f"archive/data/{'x' * 300}", "archive/data/" + "x/" * 600 + "x"],
)  # fmt: skip
def test_names_that_lead_elsewhere_or_that_some_systems_cannot_have_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(*entry(name))
    with pytest.raises(Refused, match=re.escape(repr(name))):
        problems(tmp_path / "x.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_links_devices_pipes_files_of_one_name_bombs_and_backslashes_are_refused(tmp_path):
    path, mine = tmp_path / "x.zip", "archive/data/a"
    links = [[entry(mine, mode)] for mode in (0o120777, 0o020666, 0o060666, 0o010644)]
    twice = [[(mine, b"1"), (other, b"2")] for other in (mine, "archive/data/A")]
    for message, bad in (
        ("a link or a device", links),
        ("more than once", twice),
        ("a decompression bomb", [[(mine, bytes(100 << 20))]]),
    ):
        for entries in bad:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in entries:
                    archive.writestr(name, content, zipfile.ZIP_DEFLATED)
            with pytest.raises(Refused, match=message):
                problems(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(*entry("archive/data/..-x"))
    path.write_bytes(path.read_bytes().replace(b"data/..-x", b"data/..\\x"))
    with pytest.raises(Refused, match="has a character"):
        problems(path)


def test_a_size_that_is_not_the_announced_one_is_found_and_not_unpacked(tmp_path):
    """The directory says 10 bytes of 1 MiB: no more than those are read."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/zeros", bytes(1 << 20))
    content = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(
        content.replace(struct.pack("<L", 1 << 20), struct.pack("<L", 10))
    )
    with verify_archive.open_bag(tmp_path / "x.zip") as bag:
        read = io.BytesIO()
        with pytest.raises(Refused, match="damaged"):
            for block in bag.blocks("data/zeros"):
                read.write(block)
    assert len(read.getvalue()) <= 10


def test_files_that_share_bytes_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("archive/data/a", b"1" * 100)
        archive.writestr("archive/data/b", b"1" * 100)
        second = archive.getinfo("archive/data/b").header_offset
    content = (tmp_path / "x.zip").read_bytes()
    at = content.rfind(struct.pack("<L", second) + b"archive/data/b")
    assert at > 0
    shared = content[:at] + struct.pack("<L", 0) + content[at + 4 :]
    (tmp_path / "x.zip").write_bytes(shared)
    with pytest.raises(Refused, match=r"overlaps another file|no whole zip file"):
        problems(tmp_path / "x.zip")


def test_more_bytes_than_the_limit_and_other_ways_of_packing_are_refused(sound, tmp_path):
    with pytest.raises(Refused, match="--limit-gb"), verify_archive.open_bag(sound, 10):
        pass
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("archive/data/x", b"1")
    with pytest.raises(Refused, match="packed in a way that is not ours"):
        problems(tmp_path / "x.zip")


def test_a_directory_that_would_fill_the_memory_is_refused(sound):
    content = bytearray(sound.read_bytes())
    at = content.rfind(b"PK\x05\x06")
    content[at + 12 : at + 16] = struct.pack("<L", 0x7FFFFFFF)
    sound.write_bytes(content)
    with pytest.raises(Refused, match="its directory has 2147483647 bytes"):
        problems(sound)
