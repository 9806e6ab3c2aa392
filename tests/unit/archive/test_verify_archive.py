"""verify_archive: changes in archives are reported, and harmful archives are refused unread."""

import argparse
import io
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random

import pytest

from dlbench.archive import verify_archive
from dlbench.archive.verify_archive import Refused
from dlbench.command.archives import add_limit
from dlbench.records import run_record
from support.archives import made_archives
from support.archives.made_archives import ARCHIVE, REPOSITORY
from support.archives.opened_archives import SOUND, problems
from support.archives.opened_archives import sound as sound
from support.programs import in_process


def rewritten(source, output, change):
    """A zip whose entries are those of another, each through change(name, content) -> content."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(output, "w") as new:
        for entry in old.infolist():
            content = change(entry.filename, old.read(entry))
            if content is not None:
                new.writestr(entry, content)
    return output


def flipped(content):
    return bytes([content[0] ^ 1]) + content[1:]


def test_what_was_written_is_sound_and_one_flipped_byte_in_any_kind_of_file_is_named(tmp_path):
    source = made_archives.archived() / ARCHIVE
    assert problems(source) == []
    with zipfile.ZipFile(source) as archive:
        names = [e.filename for e in archive.infolist() if e.file_size]
    tested = {(*n.split("/")[2:-1][:2], Path(n).suffix): n for n in names}.values()
    assert len(tested) > 40 and len({Path(name).suffix for name in tested}) > 15
    path = rewritten(
        source,
        tmp_path / "x.zip",
        lambda name, content: flipped(content) if name in tested else content,
    )
    found = problems(path)
    for name in tested:
        assert any(name.removeprefix("archive/") in line for line in found), name


def test_a_record_whose_files_were_replaced_is_named_even_where_all_lists_agree(tmp_path):
    source = made_archives.archived() / ARCHIVE
    with zipfile.ZipFile(source) as archive:
        log = min(n for n in archive.namelist() if n.endswith("train.jsonl"))
        content = archive.read(log)
    name = log.removeprefix("archive/data/")
    path = made_archives.changed(
        source, tmp_path / "x.zip", {name: content.replace(b'"loss": 2.0', b'"loss": 1.0')}
    )
    assert problems(path) == [f"{name}: not as the run's record says"]
    record = name.replace("train.jsonl", "run.json")
    with zipfile.ZipFile(source) as archive:
        content = archive.read(f"archive/data/{record}")
    forged = content.replace(b'"status": "ok"', b'"status": "OK"')
    for forgery, words in (
        (forged, "changed after it was written"),
        (b"[]", "not a whole record"),
        (b"[" * 100_000, "not a whole record"),
    ):
        (problem,) = problems(made_archives.changed(source, path, {record: forgery}))
        assert record in problem and words in problem


def test_files_added_and_removed_are_named(sound, tmp_path):
    gone = rewritten(sound, tmp_path / "gone.zip", lambda n, c: None if "a.txt" in n else c)
    assert problems(gone) == [
        "data/notes/a.txt: missing",
        "bag-info.txt: expected the Payload-Oxum 7.1",
    ]
    more = rewritten(sound, tmp_path / "more.zip", lambda n, c: c)
    with zipfile.ZipFile(more, "a") as archive:
        archive.writestr("archive/data/new", b"")
        archive.writestr("archive/extra.txt", b"")
    found = problems(more)
    assert "data/new: not in manifest-sha256.txt: it was added" in found
    assert "extra.txt: not in tagmanifest-sha256.txt: it was added" in found


def test_a_changed_or_missing_tag_file_is_named(sound, tmp_path):
    path = tmp_path / "x.zip"
    for name in ("bagit.txt", "bag-info.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt"):
        at = f"archive/{name}"
        rewritten(sound, path, lambda n, c, at=at: flipped(c) if n == at else c)
        assert any(name in line for line in problems(path))
        rewritten(sound, path, lambda n, c, at=at: None if n == at else c)
        assert any(f"{name}: missing" in line for line in problems(path))
    line = b"0" * 64 + b"  data/\x1b[2J\n"
    more = rewritten(sound, path, lambda n, c: c + line if "/manifest" in n else c)
    assert repr("data/\x1b[2J: missing") in problems(more)
    assert "\x1b" not in verify(more).stderr


def test_a_zip_with_damage_anywhere_is_refused_or_named_or_has_the_same_content(sound):
    content, random = sound.read_bytes(), Random(1)
    for number in range(1500):
        damaged = bytearray(content)
        for at in random.sample(range(len(content)), (1, 1, 2, 5, 30)[number % 5]):
            damaged[at] = random.randrange(256)
        sound.write_bytes(damaged)
        try:
            found = problems(sound)
        except Refused:
            continue
        if not found:  # dates, versions and padding say nothing of the content
            with verify_archive.open_bag(sound) as bag:
                assert {name: bag.read(f"data/{name}") for name in bag.payload} == SOUND


def test_what_is_cut_off_or_no_bag_is_refused(sound):
    content = sound.read_bytes()
    for part in (*(content[:length] for length in range(0, len(content), 50)), b"no zip"):
        sound.write_bytes(part)
        with pytest.raises(Refused, match="no whole zip file"):
            problems(sound)
    with zipfile.ZipFile(sound, "w") as archive:
        archive.writestr("a/x", b"1")
        archive.writestr("b/x", b"1")
    with pytest.raises(Refused, match="expected one folder in it, found a, b"):
        problems(sound)


def test_bytes_beside_the_files_are_named(sound):
    content = sound.read_bytes()
    before = "10 bytes before archive/data/results/tables/runs.csv are no"
    for changed, what in (
        (b"#!/bin/sh\n" + content, before),
        (content + b"more", "bytes after its end"),
        (content[:-2] + struct.pack("<H", 5) + b"hello", "the zip file has a comment"),
    ):
        sound.write_bytes(changed)
        (problem,) = problems(sound)
        assert what in problem and what in verify(sound).stderr


def test_bytes_between_files_and_comments_of_files_are_named(sound, tmp_path):
    content = sound.read_bytes()
    with zipfile.ZipFile(sound) as archive:
        second = archive.infolist()[1].header_offset
        start, names = archive.start_dir, archive.namelist()
    moved = bytearray(content[:second] + b"hidden" + content[second:])
    for name in names[1:]:
        at = moved.index(name.encode(), start) - 4
        (offset,) = struct.unpack_from("<L", moved, at)
        struct.pack_into("<L", moved, at, offset + 6)
    struct.pack_into("<L", moved, len(moved) - 6, start + 6)
    (tmp_path / "x.zip").write_bytes(moved)
    assert problems(tmp_path / "x.zip") == [f"6 bytes before {names[1]} are no part of any file"]
    with zipfile.ZipFile(sound, "a") as archive:
        archive.infolist()[0].comment = b"hello"
        archive._didModify = True
    assert problems(sound) == ["archive/data/results/tables/runs.csv: has a comment"]


def test_a_bag_that_others_packed_as_a_stream_has_no_spare_bytes(sound, tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def tell(self):
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    (tmp_path / "x.zip").write_bytes(pipe.getvalue())
    assert problems(tmp_path / "x.zip") == []


def test_many_files_of_one_fault_are_a_few_lines_and_a_count(sound):
    with zipfile.ZipFile(sound, "a") as archive:
        for number in range(1000):
            archive.writestr(f"archive/data/{number}", b"")
    finished = verify(sound)
    lines = finished.stderr.splitlines()
    assert len(lines) < 10, finished.stderr
    assert "and 995 more: not in manifest-sha256.txt: it was added" in lines
    assert lines[-1].endswith("1001 problem(s)")
    lines = verify_archive.summarise([f"{n}: kind {n}" for n in range(250)])
    assert (len(lines), lines[-1]) == (101, "and 150 more problems")


def test_a_falsified_record_is_found_by_its_logs(tmp_path):
    source = made_archives.archived() / ARCHIVE
    with zipfile.ZipFile(source) as archive:
        name = min(n for n in archive.namelist() if re.search(r"runs/lenet5.*/run\.json", n))
        record = json.loads(archive.read(name))
    record["summary"]["images_per_second"] *= 2
    del record["record_sha256"]
    forged = json.dumps({**record, "record_sha256": run_record.digest(record)}).encode()
    name = name.removeprefix("archive/data/")
    path = made_archives.changed(source, tmp_path / "x.zip", {name: forged})
    assert problems(path) == []
    finished = verify(path, "--deep")
    assert finished.returncode == 1
    assert f"{name}: summary.images_per_second: 32.0, by its logs 16.0" in finished.stderr
    assert "1 problem(s)" in finished.stderr
    honest = verify(source, "--deep")
    assert honest.returncode == 0, honest.stderr
    assert "8 runs; 8 records say what their logs do; SHA-256" in honest.stdout


def test_nothing_is_unpacked_over_what_is_there(sound, tmp_path):
    refusal = pytest.raises(Refused, match="expected a new or an empty folder")
    with verify_archive.open_bag(sound) as bag, refusal:
        verify_archive.unpack(bag, tmp_path, lambda name: True)
    assert os.listdir(tmp_path) == ["sound.zip"]


def verify(path, *options):
    return in_process.dlbench("verify", path, *options)


def test_the_program_needs_no_package_and_ends_with_1_and_a_list(sound, tmp_path):
    command = [sys.executable, "-S", REPOSITORY / "workflow_scripts/dlbench", "verify"]
    command.append(made_archives.archived() / ARCHIVE)
    finished = subprocess.run(command, text=True, capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert re.search(r": sound: \d+ files, 8 runs; SHA-256 [0-9a-f]{64}\n$", finished.stdout)
    bad = rewritten(sound, tmp_path / "x.zip", lambda n, c: flipped(c) if "/notes/a" in n else c)
    finished = verify(bad)
    assert finished.returncode == 1
    assert "data/notes/a.txt: changed: its SHA-256 is not the one in manifest" in finished.stderr
    assert "1 problem(s)" in finished.stderr
    assert verify(sound, "--limit-gb", "1e-9").returncode == 2
    parser = argparse.ArgumentParser()
    add_limit(parser)
    assert parser.parse_args([]).limit_gb == verify_archive.DEFAULT_LIMIT_BYTES / 10**9 == 100
    found = json.loads(verify(bad, "--json").stdout)
    assert found["runs"] == 0 and "data/notes/a.txt: changed" in found["problems"][0]
    assert "no such file" in verify(tmp_path / "none").stderr.lower()


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
