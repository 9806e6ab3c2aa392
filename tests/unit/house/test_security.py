"""Logs, archives and tables from others cannot write files, run code or fill the memory."""

import ast
import gzip
import io
import multiprocessing
import resource
import struct
import tarfile
from pathlib import Path

import google_crc32c
import pytest

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.data import archives
from dlbench.data.archives import ArchiveError
from dlbench.images import oci
from dlbench.imports import kinds, log_file
from dlbench.imports.log_file import LogError, LogFile
from dlbench.study import config, config_schema
from support.logs import log_samples
from support.logs.log_samples import KINDS
from support.runs.made_runs import SETTINGS

SCRIPTS = Path(__file__).parents[3] / "workflow_scripts"
SOURCES = sorted(SCRIPTS.rglob("*.py"))
NAMES = kinds.names()
# What runs what it is given, by the name that is called.
RUNS_CODE = {
    "eval", "exec", "__import__", "os.system", "os.popen", "extractall", "unpack_archive",
    "yaml.load", "full_load", "unsafe_load",
}  # fmt: skip
CODE_IN_DATA = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
MORE_ADDRESSES_BYTES = 2 << 30
MAX_GROWN_BYTES = 200 << 20
FORK = multiprocessing.get_context("fork")


def calls(source):
    """(names, call) of each call in a file; the names of a.b.c(x) are c and b.c."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            words = ast.unparse(node.func).split(".")
            yield {words[-1], ".".join(words[-2:])}, node


def keywords(call):
    return {keyword.arg: keyword.value for keyword in call.keywords}


def is_true(value):
    return not (isinstance(value, ast.Constant) and not value.value)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_no_program_runs_what_it_reads(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    imported = {
        (alias.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert not imported & CODE_IN_DATA
    for names, call in calls(source):
        given, where = keywords(call), f"line {call.lineno}"
        assert not names & RUNS_CODE, f"{where}: {names & RUNS_CODE}"
        assert not ("shell" in given and is_true(given["shell"])), f"{where}: a shell"
        pickles = given.get("allow_pickle")
        assert pickles is None or not is_true(pickles), f"{where}: pickles"
        assert pickles or not names & {"np.load", "numpy.load"}, f"{where}: allow_pickle=False"


def test_the_search_for_such_calls_finds_them(tmp_path):
    bad = {
        "eval(x)": "eval", "a.exec(x)": "exec", "tar.extractall(x)": "extractall",
        "run(x, shell=True)": "a shell", "os.system(x)": "os.system",
        "yaml.load(x)": "yaml.load", "np.load(x)": "allow_pickle",
        "np.load(x, allow_pickle=True)": "pickles", "import pickle": "pickle",
    }  # fmt: skip
    for text, why in bad.items():
        path = tmp_path / "bad.py"
        path.write_text(text)
        with pytest.raises(AssertionError, match=why):
            test_no_program_runs_what_it_reads(path)


# Logs of others.


def sample(name):
    content = KINDS[name](0.125, 12)
    return content.encode() if isinstance(content, str) else content


def read_all(name, path):
    for imported in kinds.load(name).read(LogFile(path)):
        assert imported.status


def outcome_in_little_memory(call):
    """The outcome of a call in a forked process with limited memory, "read" or "refused: ..."."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=send_outcome, args=(call, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"it was ended by {process.exitcode}") from None
    finally:
        process.join()


def send_outcome(call, sender):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_ADDRESSES_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = most_resident()
    try:
        call()
        outcome = "read"
    except Error as error:
        outcome = f"refused: {error}"
    grown = most_resident() - before
    sender.send(outcome if grown < MAX_GROWN_BYTES else f"it took {grown} bytes; {outcome}")


def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_log(name, path):
    list(kinds.load(name).read(LogFile(path)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
def test_a_log_that_unpacks_to_much_more_than_a_log_does_is_refused(name, tmp_path):
    path = tmp_path / "train.jsonl"
    megabyte = gzip.compress((b"0" * 4095 + b"\n") * 256)
    # Parts that are packed one by one are one file, too.
    more = megabyte * (2 * log_file.ANY_RATIO_BYTES >> 20)
    path.write_bytes(gzip.compress(sample(name)) + more)
    output = outcome_in_little_memory(lambda: read_log(name, path))
    assert output.startswith("refused: ") and "train.jsonl" in output


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b'{"a":' * 200_000, b"9" * (20 << 20)], ids=["[", "{", "long"]
)
def test_a_line_without_end_or_depth_is_refused_or_left_out(name, line, tmp_path):
    content = sample(name)
    at = content.find(b"\n", len(content) // 2) + 1
    path = tmp_path / "train.jsonl"
    path.write_bytes(content[:at] + line + b"\n" + content[at:])
    assert outcome_in_little_memory(lambda: read_log(name, path)).startswith(("refused: ", "read"))


def test_a_record_that_says_it_is_larger_than_memory_is_refused(tmp_path):
    header = struct.pack("<Q", 1 << 40)
    crc = google_crc32c.value(header)
    masked = struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(log_samples.tensorboard(0.125, 12) + header + masked + b"x")
    with pytest.raises(LogError, match="its length is 1099511627776 bytes, more than"):
        read_all("tensorboard", path)
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
        output = outcome_in_little_memory(call)
        assert output.startswith("refused: ") and "header of 1073741824 bytes" in output


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
def test_members_that_reach_outside_or_are_no_files_are_refused(member, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "archives"
    place.mkdir()
    (place / "x.tar.gz").write_bytes(packed(member))
    with pytest.raises(ArchiveError):
        list(archives.tar_gz_members(place / "x.tar.gz", {"wanted": 1}))
    if not member[2]:
        (place / "x.tar").write_bytes(gzip.decompress((place / "x.tar.gz").read_bytes()))
        with pytest.raises(ArchiveError, match="leads out"):
            list(archives.tar_index(place / "x.tar"))
    (tmp_path / "layout").mkdir()
    with pytest.raises(Error):
        oci.unpack(place / "x.tar.gz", tmp_path / "layout")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["archives", "layout"]


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
