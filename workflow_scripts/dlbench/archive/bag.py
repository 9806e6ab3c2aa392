"""Write bags: zip files with the digest of every file in them; the same files give the same bytes.

The format is BagIt 1.0 (RFC 8493): one folder, `archive`, has the payload in `data`, and beside it
manifests with SHA-256 digests and tag files about the bag. Files are read and written once, in the
given order, as streams. Date and permissions of each entry are fixed.
"""

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dlbench import Error
from dlbench.common.files import atomic_write

BASE, PAYLOAD = "archive", "data"
MANIFEST, TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"
DECLARATION = "bagit.txt", "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can have
BLOCK_BYTES = 1 << 20
_PERMISSIONS = 0o100644 << 16  # a plain file; the umask of the user who unpacks it applies
_UNIX = 3
# Characters that manifests would have to encode, on which readers disagree.
_UNUSUAL = re.compile(r"[\x00-\x1f\x7f%\\]")


def write(
    output: str | Path,
    files: Mapping[str, Path | bytes],
    info: Iterable[tuple[str, str]],
    check: Callable[[dict[str, tuple[int, str]]], None] | None = None,
) -> None:
    """Write a bag atomically.

    Args:
        files: maps names, relative to the payload, to paths or to the content itself.
        info: (label, value) pairs of bag-info.txt.
        check: called with {name: (bytes, sha256)} of the payload before the bag gets its name; if
            it raises, no bag is written.

    Raises:
        Error: a file's name has a character that manifests cannot have.
    """
    for name in files:
        if _UNUSUAL.search(name):
            raise Error(f"{name!r}: the name has a character that archives cannot have; rename it")
    with atomic_write(output) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            payload = _add_all(archive, files, info)
        if check:
            check(payload)


def _add_all(archive, files, info):
    """Write payload and tag files. Returns {name: (bytes, sha256)} of the payload."""
    payload = {name: _add(archive, f"{PAYLOAD}/{name}", source) for name, source in files.items()}
    total = sum(size for size, _ in payload.values())
    info = [*info, ("Payload-Oxum", f"{total}.{len(payload)}")]
    tags = {
        DECLARATION[0]: DECLARATION[1],
        "bag-info.txt": "".join(f"{label}: {_line(value)}\n" for label, value in info),
        MANIFEST: _manifest({f"{PAYLOAD}/{name}": of_file for name, of_file in payload.items()}),
    }
    tag_digests = {name: _add(archive, name, text.encode()) for name, text in tags.items()}
    _add(archive, TAG_MANIFEST, _manifest(tag_digests).encode())
    return payload


def _add(archive, name, source):
    """Write one file. Returns (bytes, sha256) of what was written."""
    entry = zipfile.ZipInfo(f"{BASE}/{name}", DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system, entry.external_attr = _UNIX, _PERMISSIONS
    total, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        if isinstance(source, bytes):
            blocks, entry.file_size = [source], len(source)
        else:
            file = stack.enter_context(open(source, "rb"))
            # zipfile needs the size beforehand: large files have another header.
            entry.file_size = Path(source).stat().st_size
            blocks = iter(lambda: file.read(BLOCK_BYTES), b"")
        target = stack.enter_context(archive.open(entry, "w"))
        for block in blocks:
            total.update(block)
            size += len(block)
            target.write(block)
    return size, total.hexdigest()


def _manifest(files):
    return "".join(f"{digest}  {name}\n" for name, (_, digest) in sorted(files.items()))


def _line(text):
    return " ".join(str(text).split())
