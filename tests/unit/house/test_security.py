"""Logs, archives and tables from others cannot write files, run code or fill the memory.

Calls that run what they are given are found by ruff's rules of flake8-bandit.
"""

import contextlib
import gzip
import io
import struct
import tarfile

import google_crc32c
import pytest

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.common.own_code import PROGRAMS
from dlbench.data import archives
from dlbench.data.archives import ArchiveError
from dlbench.images import oci
from dlbench.imports import kinds, log_file
from dlbench.imports.log_file import LogError, LogFile
from dlbench.study import config, config_schema
from support.logs import log_samples
from support.logs.log_samples import KINDS
from support.runs.made_runs import SETTINGS

# What runs code in data, or writes where data says, and ruff does not know.
HARMFUL = ("__import__", "allow_pickle=True", "cloudpickle", "full_load", "joblib",
           "unpack_archive", "unsafe_load")  # fmt: skip


def test_no_program_runs_what_it_reads():
    for path in PROGRAMS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in HARMFUL if word in text], path


# Logs of others.


def test_a_log_that_unpacks_to_much_more_than_a_log_does_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "ANY_RATIO_BYTES", 2 << 20)
    # Parts that are packed one by one are one file, too.
    megabyte = gzip.compress((b"0" * 4095 + b"\n") * 256)
    (tmp_path / "log").write_bytes(gzip.compress(b"step 1\n") + 3 * megabyte)
    for read in (LogFile.chunks, LogFile.lines, LogFile.text):
        with pytest.raises(LogError, match="unpacks to more than 200 times its"):
            list(read(LogFile(tmp_path / "log")))


def test_a_line_that_does_not_end_is_refused(tmp_path):
    (tmp_path / "log").write_bytes(b"step 1\n" + b"9" * (log_file.MAX_LINE_BYTES + 1))
    with pytest.raises(LogError, match="line 2: longer than 16777216 bytes"):
        list(LogFile(tmp_path / "log").lines())


@pytest.mark.parametrize("part", [b"[", b'{"a":'])
def test_json_that_is_nested_too_deeply_is_refused_or_left_out(part, tmp_path):
    for kind in ("hf_trainer", "horovod_timeline", "mlperf",
                 "tf_cnn_benchmark_log", "tf_cnn_metric_log"):  # fmt: skip
        content = KINDS[kind](0.125, 12).encode()
        at = content.find(b"\n", len(content) // 2) + 1
        before = b":::MLLOG " * (kind == "mlperf")
        (tmp_path / kind).write_bytes(content[:at] + before + part * 200_000 + b"\n" + content[at:])
        with contextlib.suppress(LogError):
            assert all(run.status for run in kinds.load(kind).read(LogFile(tmp_path / kind)))


def test_a_record_that_says_it_is_larger_than_memory_is_refused(tmp_path):
    header = struct.pack("<Q", 1 << 40)
    crc = google_crc32c.value(header)
    masked = struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(log_samples.tensorboard(0.125, 12) + header + masked + b"x")
    with pytest.raises(LogError, match="its length is 1099511627776 bytes, more than"):
        list(kinds.load("tensorboard").read(LogFile(path)))
    with open(path, "rb") as file, pytest.raises(tfrecord.RecordError, match="its length is"):
        list(tfrecord.payloads(file, path))


# Archives of others.


def bomb(path, kind, size_bytes=1 << 30):
    """A small tar.gz whose first member unpacks to a gigabyte."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size_bytes
    parts = member.tobuf(tarfile.GNU_FORMAT), bytes(1 << 20), bytes(1024)
    header, megabyte, end = map(gzip.compress, parts)
    path.write_bytes(header + megabyte * (size_bytes >> 20) + end)


HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@pytest.mark.parametrize("kind", HEADERS, ids=["pax", "global pax", "long name", "long link"])
def test_a_header_as_large_as_memory_is_refused(kind, tmp_path):
    bomb(tmp_path / "x.tar.gz", kind)
    (tmp_path / "layout").mkdir()
    path = tmp_path / "x.tar.gz"
    for call in (
        lambda: list(archives.tar_gz_members(path, {"a": 1})),
        lambda: archives.small_member(path, "a", 100),
        lambda: oci.unpack(path, tmp_path / "layout"),
    ):
        with pytest.raises(Error, match="header of 1073741824 bytes"):
            call()


def packed(*members):
    """A tar.gz with the given members: (name, content, further fields)."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data, fields in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in fields.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


@pytest.mark.parametrize(
    "member",
    [
        ("../outside", b"x", {}),
        ("/outside", b"x", {}),
        ("a/../../outside", b"x", {}),
        ("wanted", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("wanted", b"", {"type": tarfile.LNKTYPE, "linkname": "../outside"}),
        ("wanted", b"", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}),
        ("wanted", b"", {"type": tarfile.FIFOTYPE}),
    ],
    ids=["parent", "root", "within", "link", "hard link", "device", "fifo"],
)
def test_members_that_reach_outside_or_are_no_files_are_refused(member, here):
    place = here / "archives"
    place.mkdir()
    (place / "x.tar.gz").write_bytes(packed(member))
    with pytest.raises(ArchiveError):
        list(archives.tar_gz_members(place / "x.tar.gz", {"wanted": 1}))
    if not member[2]:
        (place / "x.tar").write_bytes(gzip.decompress((place / "x.tar.gz").read_bytes()))
        with pytest.raises(ArchiveError, match="leads out"):
            list(archives.tar_index(place / "x.tar"))
    assert [path.name for path in here.iterdir()] == ["archives"]


# Configs.


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d of one"])
def test_a_text_that_can_be_no_argument_is_named_with_its_key(text):
    for changes, where in (
        ({"study": text}, "study: "),
        ({"site": SETTINGS["site"] | {"modules": ["gcc", text]}}, "site.modules[1]: "),
    ):
        with pytest.raises(config_schema.ConfigError) as refused:
            config.study(SETTINGS | changes)
        assert str(refused.value).startswith(f"{where}expected text, found ")
        str(refused.value).encode()
