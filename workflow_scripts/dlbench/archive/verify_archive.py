"""Verify and unpack bags, which may be damaged or malicious; they are read in place.

- Before any content is read, these are refused: names that lead out of the folder or that some
  system does not allow, links and devices, more files or bytes than the limits, and decompression
  bombs.
- Then every digest is compared, both manifests must list every file, and each record must match the
  files beside it. No content is executed or unpickled; files are read as streams.
- Digests detect changes made after the manifest was written. A record that was changed together
  with its manifest still differs from its logs, which are parsed again. Logs that were changed,
  too, go undetected.

Needs the standard library only.
"""

import hashlib
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dlbench import Error
from dlbench.archive import crate as bags
from dlbench.archive.crate import BLOCK_BYTES, DECLARATION, MANIFEST, PAYLOAD, TAG_MANIFEST
from dlbench.common.files import require_file
from dlbench.records import parse_run, run_record

# Unpacked over packed bytes: deflate reaches 1032, logs with equal steps about 30.
MAX_RATIO, SMALL_BYTES = 200, 1 << 20
MAX_FILES, MAX_DIRECTORY_BYTES = 500_000, 200 << 20
MAX_OF_A_KIND, MAX_LINES = 5, 100  # problems that are printed
MAX_TAG_BYTES, MAX_RECORD_BYTES = 200 << 20, 16 << 20
DEFAULT_LIMIT_BYTES = 100 * 10**9
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED, DESCRIBED = 0x1, 0x8
# Bytes of zip structures: the descriptor after a file that was written as a stream, the end of the
# directory, and in large files the ZIP64 end before it.
DESCRIPTORS, END_BYTES, WIDE_END_BYTES = (12, 16, 20, 24), 22, 56 + 20
# Windows reserves these names for devices, with any suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_MANIFEST_LINE = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(.+)")
RECORD = re.compile(r"results/runs/([^/]+)/run\.json")


class Refused(Error):
    """A file is no archive of dlbench, or may do harm; the message says why."""


@dataclass(frozen=True)
class Bag:
    """An open bag: `entries` maps names below its folder to their zip entries."""

    path: Path
    archive: zipfile.ZipFile
    entries: dict

    @property
    def payload(self) -> list[str]:
        """Names of the payload's files, relative to it, in order."""
        prefix = f"{PAYLOAD}/"
        return sorted(n.removeprefix(prefix) for n in self.entries if n.startswith(prefix))

    def read(self, name: str, max_bytes: int = MAX_TAG_BYTES) -> bytes:
        """The content of a small file.

        Raises Refused: it is missing, damaged, or larger than `max_bytes`.
        """
        if name not in self.entries:
            raise Refused(f"{name}: missing")
        if self.entries[name].file_size > max_bytes:
            raise Refused(f"{name}: {self.entries[name].file_size} bytes, expected a small file")
        return b"".join(self.blocks(name))

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in blocks. Raises Refused: the file is damaged."""
        left = self.entries[name].file_size
        try:
            with self.archive.open(self.entries[name]) as file:
                while block := file.read(BLOCK_BYTES):
                    left -= len(block)
                    yield block
        except DAMAGE as error:
            raise Refused(f"{name}: damaged ({error})") from error
        if left:
            raise Refused(f"{name}: {abs(left)} bytes fewer or more than announced")


@contextmanager
def open_bag(path: str | Path, limit_bytes: float = DEFAULT_LIMIT_BYTES) -> Iterator[Bag]:
    """Open a bag whose files are safe to read and unpack.

    `limit_bytes`: most bytes that all files together may have when unpacked. Raises Refused: the
    files are not safe, or it is no bag.
    """
    path = Path(path)
    require_file(path)
    size = path.stat().st_size
    _check_directory(path, size)
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGE as error:
        raise Refused(f"{path}: no whole zip file ({error})") from error
    with archive:
        _check_entries(archive.infolist(), path)
        entries = [e for e in archive.infolist() if not e.filename.endswith("/") or e.file_size]
        _check_sizes(entries, size, limit_bytes, path)
        tops = {entry.filename.partition("/")[0] for entry in entries}
        if len(tops) != 1 or any("/" not in entry.filename for entry in entries):
            raise Refused(f"{path}: expected one folder in it, found {', '.join(sorted(tops)[:5])}")
        (top,) = tops
        yield Bag(path, archive, {e.filename.removeprefix(f"{top}/"): e for e in entries})


def problems(bag: Bag) -> list[str]:
    """One line for each problem of a bag; none if every file is as it was written.

    `bag`: from `open_bag`.
    """
    return list(map(printable, _problems(bag)))


def summarise(problems: list[str]) -> list[str]:
    """The problems in few lines: of each kind the first MAX_OF_A_KIND files, and how many more."""
    kinds: Counter[str] = Counter()
    lines = []
    for problem in problems:
        kind = problem.partition(": ")[2]
        kinds[kind] += 1
        if kinds[kind] <= MAX_OF_A_KIND:
            lines.append(problem)
    more = {kind: count - MAX_OF_A_KIND for kind, count in kinds.items() if count > MAX_OF_A_KIND}
    lines = lines[:MAX_LINES] + [f"and {count} more: {kind}" for kind, count in more.items()]
    left = len(problems) - sum(more.values()) - MAX_LINES
    return lines + ([f"and {left} more problems"] if left > 0 else [])


def printable(text: str) -> str:
    """A text from an archive, safe to print: control characters are escaped."""
    return text if text.isprintable() else repr(text)


def unpack(bag: Bag, folder: str | Path, wanted: Callable[[str], bool]) -> None:
    """Write files of the payload into a new or empty folder.

    `bag`: a bag without problems; `wanted`: whether to write the file of a name. Raises Refused:
    the folder is not empty, or its disk has too little space.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder}: expected a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in bag.payload if wanted(name)]
    needed = sum(bag.entries[f"{PAYLOAD}/{name}"].file_size for name in names)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Refused(f"{folder}: {needed} bytes are to be written, {free} are free")
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:
            for block in bag.blocks(f"{PAYLOAD}/{name}"):
                file.write(block)


def digests(bag: Bag) -> dict[str, str]:
    """{name: SHA-256} of the payload's files, from the bag's manifest."""
    listed = _manifest(bag, MANIFEST, [])
    return {name.removeprefix(f"{PAYLOAD}/"): digest for name, digest in listed.items()}


def _problems(bag):
    lines, sizes = [], {}
    try:
        declared = bag.read(DECLARATION[0], 1024)
        if declared != DECLARATION[1].encode():
            lines.append(f"{DECLARATION[0]}: changed")
        tags, payload = (_manifest(bag, name, lines) for name in (TAG_MANIFEST, MANIFEST))
    except Refused as error:
        return [*lines, str(error)]
    for name in sorted(bag.entries):
        if name == TAG_MANIFEST:
            continue
        listed, manifest = (
            (payload, MANIFEST) if name.startswith(f"{PAYLOAD}/") else (tags, TAG_MANIFEST)
        )
        expected = listed.pop(name, None)
        if expected is None:
            lines.append(f"{name}: not in {manifest}: it was added")
            continue
        try:
            digest = hashlib.sha256()
            for block in bag.blocks(name):
                digest.update(block)
        except Refused as error:
            lines.append(str(error))
            continue
        sizes[name] = bag.entries[name].file_size, digest.hexdigest()
        if digest.hexdigest() != expected:
            lines.append(f"{name}: changed: its SHA-256 is not the one in {manifest}")
    lines += [f"{name}: missing" for name in sorted({**payload, **tags})]
    lines += _unlisted_bytes(bag)
    lines += _total_problems(bag)
    for name in bag.payload:
        if match := RECORD.fullmatch(name):
            lines += _record_problems(bag, name, match[1], sizes)
    return lines


def _check_directory(path, size):
    """Refuse a central directory that would fill the memory, since zipfile reads it at once."""
    with open(path, "rb") as file:
        file.seek(max(0, size - 66_000))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise Refused(f"{path}: no whole zip file: it has no end; was it cut off?")
    (length,) = struct.unpack_from("<L", tail, at + 12)
    if length == 0xFFFFFFFF:
        wide = tail.rfind(b"PK\x06\x06", 0, at)
        length = struct.unpack_from("<Q", tail, wide + 40)[0] if wide >= 0 else size
    if length > MAX_DIRECTORY_BYTES:
        raise Refused(f"{path}: its directory has {length} bytes; expected {MAX_DIRECTORY_BYTES}")


def _check_entries(entries, path):
    for entry in entries:
        name = entry.filename
        if reason := _unsafe(name.removesuffix("/")):
            raise Refused(f"{path}: the name {name!r} {reason}")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise Refused(f"{path}: {name!r} is a link or a device, no plain file")
        if entry.flag_bits & ENCRYPTED or entry.compress_type not in METHODS:
            raise Refused(f"{path}: {name!r} is encrypted or packed in a way that is not ours")
    # On systems that ignore case, A.txt would overwrite a.txt.
    counts = Counter(entry.filename.casefold() for entry in entries)
    twice = next((name for name, number in counts.items() if number > 1), None)
    if twice:
        raise Refused(f"{path}: {twice!r} is in it more than once")


def _unsafe(name):
    """Why a file must not have this name, or None."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        return "leads out of its folder"
    if "" in parts or "." in parts or str(PurePosixPath(name)) != name:
        return "is no plain path"
    if _FORBIDDEN.search(name):
        return "has a character that names must not have"
    if any(_DEVICES.fullmatch(part) or part.endswith((" ", ".")) for part in parts):
        return "is that of a device, or ends with a dot or blank"
    if len(name.encode(errors="replace")) > 1000 or any(len(part.encode()) > 255 for part in parts):
        return "is too long"
    return None


def _check_sizes(entries, size, limit_bytes, path):
    if len(entries) > MAX_FILES:
        raise Refused(f"{path}: {len(entries)} files; expected up to {MAX_FILES}")
    total = sum(entry.file_size for entry in entries)
    if total > limit_bytes:
        raise Refused(f"{path}: {total} bytes unpacked; the limit is {limit_bytes} (--limit-gb)")
    if total > MAX_RATIO * size + SMALL_BYTES:
        raise Refused(f"{path}: {total} bytes packed into {size}: a decompression bomb")
    # Entries that share bytes are the other kind of bomb.
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end or entry.header_offset + entry.compress_size > size:
            raise Refused(f"{path}: {entry.filename!r} overlaps another file")
        end = entry.header_offset + entry.compress_size


def _unlisted_bytes(bag):
    """Yield a line for each comment, and for bytes between files, which no manifest covers."""
    size, end, spare = bag.path.stat().st_size, 0, ()
    with open(bag.path, "rb") as file:
        for entry in sorted(bag.archive.infolist(), key=lambda entry: entry.header_offset):
            gap = entry.header_offset - end
            if gap and gap not in spare:
                yield f"{gap} bytes before {entry.filename} are no part of any file"
            if entry.comment:
                yield f"{entry.filename}: has a comment"
            file.seek(entry.header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4).ljust(4, b"\0"))
            end = entry.header_offset + 30 + name_bytes + extra_bytes + entry.compress_size
            spare = DESCRIPTORS if entry.flag_bits & DESCRIBED else ()
        gap = bag.archive.start_dir - end
        if gap and gap not in spare:
            yield f"{gap} bytes before the zip file's directory are no part of any file"
        file.seek(size - END_BYTES)
        last = file.read()
    if bag.archive.comment or not last.startswith(b"PK\x05\x06"):
        yield "the zip file has a comment, or bytes after its end"
        return
    (length,) = struct.unpack_from("<L", last, 12)
    gap = size - END_BYTES - bag.archive.start_dir - length
    if gap not in (0, WIDE_END_BYTES):
        yield f"{gap} bytes before the zip file's end are no part of any file"


def _manifest(bag, name, problems):
    """{name: digest} of a manifest; a line for each malformed entry is added to `problems`."""
    listed = {}
    for number, line in enumerate(bag.read(name).decode(errors="replace").splitlines(), start=1):
        match = _MANIFEST_LINE.fullmatch(line)
        if match and match[2] not in listed:
            listed[match[2]] = match[1].lower()
        else:
            problems.append(f"{name}, line {number}: no digest and name, or a name twice")
    return listed


def _total_problems(bag):
    """A line if bag-info.txt states another number of bytes or files than the payload has."""
    try:
        text = bag.read("bag-info.txt").decode(errors="replace")
    except Refused:
        return []  # reported already
    sizes = [bag.entries[f"{PAYLOAD}/{name}"].file_size for name in bag.payload]
    claimed = re.search(r"^Payload-Oxum: (.*)$", text, re.MULTILINE)
    expected = f"{sum(sizes)}.{len(sizes)}"
    if claimed and claimed[1].strip() == expected:
        return []
    return [f"bag-info.txt: expected the Payload-Oxum {expected}"]


def _record_problems(bag, name, run_id, sizes):
    """One line for each problem of a run's record or of the files that it names."""
    try:
        content = bag.read(f"{PAYLOAD}/{name}", MAX_RECORD_BYTES)
        record = run_record.parsed(content, name)
        if record["run_id"] != run_id:
            return [f"{name}: the record of {record['run_id']}, in the folder of {run_id}"]
        expected = {
            f"{PAYLOAD}/results/runs/{run_id}/{file}": (values["bytes"], values["sha256"])
            for file, values in record["files"].items()
        }
    except (Refused, run_record.RecordError) as error:
        return [str(error)]
    except (KeyError, TypeError, AttributeError) as error:
        return [f"{name}: not a whole record ({error!r})"]
    return [
        f"{file.removeprefix(f'{PAYLOAD}/')}: not as the run's record says"
        for file, values in expected.items()
        if sizes.get(file) != values
    ]


MAX_LOG_BYTES = 1 << 30  # parsing holds all events of a run in memory


@dataclass(frozen=True)
class LogComparison:
    """The result of comparing records with logs.

    Attributes:
        same: number of records that agree with their logs.
        differing: one line for each value in which a record differs from its logs.
        others: {version of the parser: number of records}; only that version can compare them.
    """

    same: int
    differing: list
    others: dict


def compare(bag: Bag) -> LogComparison:
    """Compare each record of a bag with the logs beside it.

    `bag`: an open bag without problems (verify_archive.problems).
    """
    others: Counter[int] = Counter()
    same, differing = 0, []
    for name in bag.payload:
        if not RECORD.fullmatch(name):
            continue
        record = run_record.parsed(bag.read(f"{bags.PAYLOAD}/{name}", MAX_RECORD_BYTES), name)
        if record["parser_version"] != run_record.PARSER_VERSION:
            others[record["parser_version"]] += 1
        elif differences := _differences(bag, name, record):
            differing += [printable(line) for line in differences]
        else:
            same += 1
    return LogComparison(same, differing, dict(others))


def describe_other_versions(others: dict[int, int]) -> str:
    """A sentence about records of other versions of the parser; "" if there are none."""
    if not others:
        return ""
    versions = " and ".join(f"{count} of version {n}" for n, count in sorted(others.items()))
    return (
        f"records not compared with their logs: {versions} of the parser, this one is "
        f"{run_record.PARSER_VERSION}: the programs in the archive are of the right version"
    )


def _differences(bag, name, record):
    """One line for each value in which a record differs from its logs."""
    prefix = f"{bags.PAYLOAD}/{name.removesuffix('run.json')}"
    with tempfile.TemporaryDirectory() as folder:
        for log in record["files"]:
            size = bag.entries[f"{prefix}{log}"].file_size
            if size > MAX_LOG_BYTES:
                return [f"{name}: {log} has {size} bytes: too many to be read"]
            with open(Path(folder, log), "wb") as file:
                file.writelines(bag.blocks(f"{prefix}{log}"))
        try:
            differences = parse_run.differences(record, Path(folder, "train.jsonl"))
        except Error as error:
            return [f"{name}: {str(error).replace(f'{folder}/', '')}"]
    return [
        f"{name}: {column}: {_value_text(recorded)}, by its logs {_value_text(logged)}"
        for column, recorded, logged in differences
    ]


def _value_text(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
