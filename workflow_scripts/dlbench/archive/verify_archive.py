"""Bags of others, which may be damaged or made to do harm: read in place, checked, unpacked.

- Before anything is read: names that lead elsewhere or that some system cannot have, links and
  devices, more files or bytes than the limits, and what would be a decompression bomb are refused.
- Then every digest is compared, both lists are seen to be complete, and each record with the files
  beside it. Nothing of the content is run or unpickled; memory does not grow with the files' size.

Only the standard library is needed.
"""

import hashlib
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dlbench import Error
from dlbench.archive.bag import BLOCK_BYTES, DECLARATION, MANIFEST, PAYLOAD, TAG_MANIFEST
from dlbench.records import run_record

# Deflate reaches 1032; logs of equal steps some 30.
MOST_RATIO, SMALL_BYTES = 200, 1 << 20
MOST_FILES, MOST_DIRECTORY_BYTES = 500_000, 200 << 20
MOST_ALIKE, MOST_LINES = 5, 100  # problems that are printed
MOST_TAG_BYTES, MOST_RECORD_BYTES = 200 << 20, 16 << 20
DEFAULT_LIMIT_BYTES = 100 * 10**9
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    struct.error,
    UnicodeDecodeError,
    ValueError,
)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED, DESCRIBED = 0x1, 0x8
# In zip files: after a file that was written as a stream, at the end, before that in large ones.
DESCRIPTORS, END_BYTES, WIDE_END_BYTES = (12, 16, 20, 24), 22, 56 + 20
# Names that Windows gives to devices, whatever follows the dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_MANIFEST_LINE = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(.+)")
RECORD = re.compile(r"results/runs/([^/]+)/run\.json")


class Refused(Error):
    """A file that is no archive of ours, or that may do harm; the message says why."""


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

    def read(self, name: str, most_bytes: int = MOST_TAG_BYTES) -> bytes:
        """The content of a small file.

        Raises:
            Refused: it is not there, damaged, or larger than it may be.
        """
        if name not in self.entries:
            raise Refused(f"{name}: missing")
        if self.entries[name].file_size > most_bytes:
            raise Refused(f"{name}: {self.entries[name].file_size} bytes, expected a small file")
        return b"".join(self.blocks(name))

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            Refused: it is damaged.
        """
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
    """Open a bag, having seen that its files may be read and unpacked.

    Args:
        limit_bytes: that all files together may have.

    Raises:
        Refused: they may not, or it is no bag.
    """
    path = Path(path)
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
    """What is wrong with a bag: one line each, none where all is as it was written.

    Args:
        bag: from `opened`.
    """
    return list(map(printable, _problems(bag)))


def summarise(problems: list[str]) -> list[str]:
    """The same lines; of very many that say the same of other files the first ones, and a count."""
    kinds: Counter[str] = Counter()
    lines = []
    for problem in problems:
        kind = problem.partition(": ")[2]
        kinds[kind] += 1
        if kinds[kind] <= MOST_ALIKE:
            lines.append(problem)
    more = {kind: count - MOST_ALIKE for kind, count in kinds.items() if count > MOST_ALIKE}
    lines = lines[:MOST_LINES] + [f"and {count} more: {kind}" for kind, count in more.items()]
    left = len(problems) - sum(more.values()) - MOST_LINES
    return lines + ([f"and {left} more problems"] if left > 0 else [])


def printable(text: str) -> str:
    """A text from an archive for a terminal, which must not obey it."""
    return text if text.isprintable() else repr(text)


def unpack(bag: Bag, folder: str | Path, wanted: Callable[[str], bool]) -> None:
    """Write files of the payload into a new or empty folder.

    Args:
        bag: seen to be sound.
        wanted: takes a name and says whether to write that file.

    Raises:
        Refused: there is something in the folder, or it has too little space.
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
    """{name: SHA-256} of the payload's files, as the bag's list has them."""
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
        listed, of = (payload, MANIFEST) if name.startswith(f"{PAYLOAD}/") else (tags, TAG_MANIFEST)
        expected = listed.pop(name, None)
        if expected is None:
            lines.append(f"{name}: not in {of}: it was added")
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
            lines.append(f"{name}: changed: its SHA-256 is not the one in {of}")
    lines += [f"{name}: missing" for name in sorted({**payload, **tags})]
    lines += _spare_bytes(bag)
    lines += _wrong_total(bag)
    for name in bag.payload:
        if match := RECORD.fullmatch(name):
            lines += _record_problems(bag, name, match[1], sizes)
    return lines


def _check_directory(path, size):
    """Refuse a directory of entries that would fill the memory; zipfile reads it whole."""
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
    if length > MOST_DIRECTORY_BYTES:
        raise Refused(f"{path}: its directory has {length} bytes; expected {MOST_DIRECTORY_BYTES}")


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
    # On systems that take a.txt and A.txt for the same, one would replace the other.
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
    if len(entries) > MOST_FILES:
        raise Refused(f"{path}: {len(entries)} files; expected up to {MOST_FILES}")
    total = sum(entry.file_size for entry in entries)
    if total > limit_bytes:
        raise Refused(f"{path}: {total} bytes unpacked; the limit is {limit_bytes} (--limit-gb)")
    if total > MOST_RATIO * size + SMALL_BYTES:
        raise Refused(f"{path}: {total} bytes packed into {size}: a decompression bomb")
    # Entries that share bytes are the other kind of bomb.
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end or entry.header_offset + entry.compress_size > size:
            raise Refused(f"{path}: {entry.filename!r} overlaps another file")
        end = entry.header_offset + entry.compress_size


def _spare_bytes(bag):
    """Yield what a zip file holds beside its files, where no list sees it: bytes and comments."""
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
    """{name: digest} of a list of files; lines that are none are added to the `problems`."""
    listed = {}
    for number, line in enumerate(bag.read(name).decode(errors="replace").splitlines(), start=1):
        match = _MANIFEST_LINE.fullmatch(line)
        if match and match[2] not in listed:
            listed[match[2]] = match[1].lower()
        else:
            problems.append(f"{name}, line {number}: no digest and name, or a name twice")
    return listed


def _wrong_total(bag):
    """Whether bag-info.txt has another number of bytes and files than there are."""
    try:
        text = bag.read("bag-info.txt").decode(errors="replace")
    except Refused:
        return []  # said already
    sizes = [bag.entries[f"{PAYLOAD}/{name}"].file_size for name in bag.payload]
    claimed = re.search(r"^Payload-Oxum: (.*)$", text, re.MULTILINE)
    wanted = f"{sum(sizes)}.{len(sizes)}"
    if claimed and claimed[1].strip() == wanted:
        return []
    return [f"bag-info.txt: expected the Payload-Oxum {wanted}"]


def _record_problems(bag, name, run_id, sizes):
    """What is wrong with a run's record, or with the files that it names."""
    try:
        content = bag.read(f"{PAYLOAD}/{name}", MOST_RECORD_BYTES)
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
        for file, wanted in expected.items()
        if sizes.get(file) != wanted
    ]
