"""Read untrusted archives in place, without unpacking them to disk.

- A tar file is indexed by its headers; members are read by position.
- Compressed files are read as a stream, up to their expected size, which stops decompression bombs.
- Members that are links or devices, or whose names lead out of the folder, are refused.
"""

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlbench import Error

MAX_HEADER_BYTES = 1 << 20  # of e.g. a long name; tarfile holds it in memory
BLOCK = 512
EXTENSIONS = {
    tarfile.XHDTYPE: "PAX",
    tarfile.XGLTYPE: "PAX",
    tarfile.SOLARIS_XHDTYPE: "PAX",
    tarfile.GNUTYPE_LONGNAME: "GNU (a long name)",
    tarfile.GNUTYPE_LONGLINK: "GNU (a long link)",
}


class Member(tarfile.TarInfo):
    """A tar member; an oversized header or a sparse file is a ReadError. For tarfile.open."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> "Member":
        member = super().frombuf(buf, encoding, errors)
        if member.type in EXTENSIONS and member.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{member.name} is a sparse file")
        return member


class ArchiveError(Error):
    """An archive is damaged or has unexpected content; the message names file and position."""


def again(path: Path | str) -> str:
    """How a damaged file that dlbench fetch-dataset brought is downloaded again.

    >>> again("results/data/imagenet/source/a.tar")
    'to download it again, delete it and results/data/imagenet/source.json, then start again'
    """
    return f"to download it again, delete it and {Path(path).parent}.json, then start again"


def gunzipped(path: Path | str, size_bytes: int, start: bytes = b"") -> bytes:
    """The content of a gzip file, which must have `size_bytes` and begin with `start`.

    Raises ArchiveError: it has another size or beginning, or the file is damaged.
    """
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(size_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path}: not a complete gzip file ({error}); {again(path)}") from error
    if len(content) != size_bytes:
        size = f"more than {size_bytes}" if len(content) > size_bytes else len(content)
        raise ArchiveError(f"{path}: expected {size_bytes} bytes, found {size}")
    if not content.startswith(start):
        raise ArchiveError(
            f"{path}: expected to begin with {start.hex()}, found {content[: len(start)].hex()}"
        )
    return content


def small_member(path: Path | str, name: str, limit_bytes: int) -> bytes:
    """The content of one member of a .tar.gz.

    Raises ArchiveError: it is missing, larger than the limit or not a plain file.
    """
    _, content = next(_members(path, {name: range(limit_bytes + 1)}))
    return content


def tar_gz_members(
    path: Path | str, size_bytes_by_name: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of members of a .tar.gz, in the archive's order.

    `size_bytes_by_name`: the members to read, with their expected sizes. Raises ArchiveError: a
    member is missing, has another size, or is not a plain file.
    """
    return _members(path, {n: range(size, size + 1) for n, size in size_bytes_by_name.items()})


def _members(path, remaining):
    """Yield (name, content) of the members in `remaining`, which has the sizes that each may have.

    It is read to the last of them only.
    """
    try:
        with tarfile.open(path, "r|gz", tarinfo=Member) as archive:
            for member in archive:
                _check_safe(member.name, path)
                if member.name not in remaining:
                    continue
                if not member.isreg():
                    raise ArchiveError(f"{path}: {member.name} is no plain file")
                sizes = remaining.pop(member.name)
                if member.size not in sizes:
                    expected = sizes[0] if len(sizes) == 1 else f"at most {sizes[-1]}"
                    raise ArchiveError(
                        f"{path}: {member.name}: expected {expected} bytes, found {member.size}"
                    )
                yield member.name, archive.extractfile(member).read()
                if not remaining:
                    return
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path}: not a complete tar.gz ({error}); {again(path)}") from error
    raise ArchiveError(f"{path}: members missing: {', '.join(sorted(remaining))}")


def tar_index(
    path: Path | str, start: int = 0, end: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """Yield (name, offset, size in bytes) of the plain files in an uncompressed tar.

    `start`, `end`: the range of bytes that holds the tar, for a tar within a tar. Raises
    ArchiveError: a header is damaged, or a member is cut off, unsafe or not a plain file.
    """
    size = Path(path).stat().st_size
    end = size if end is None else end
    with open(path, "rb", buffering=0) as file:
        position = start
        while position < end:
            header = os.pread(file.fileno(), BLOCK, position)
            if header == bytes(BLOCK):
                return
            try:
                name, size_bytes, kind = tar_header(header)
            except ValueError as error:
                raise ArchiveError(
                    f"{path}: no tar header at byte {position} ({error}); "
                    f"the file is damaged or cut off: {again(path)}"
                ) from error
            _check_safe(name, path)
            if kind in EXTENSIONS:
                raise ArchiveError(
                    f"{path}: a tar file with headers of the kind {EXTENSIONS[kind]} (at byte "
                    f"{position}), which are not read in place: pack it again, with "
                    "`tar --format=ustar`"
                )
            if kind not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
                raise ArchiveError(f"{path}: {name} at byte {position} is no plain file")
            offset = position + BLOCK
            if offset + size_bytes > end:
                raise ArchiveError(
                    f"{path}: {name} at byte {position} should have {size_bytes} bytes, "
                    f"but only {max(0, end - offset)} are left: the file is cut off"
                )
            if kind != tarfile.DIRTYPE:
                yield name, offset, size_bytes
            position = offset + -(-size_bytes // BLOCK) * BLOCK
    raise ArchiveError(f"{path}: the end of the archive is missing: the file is cut off")


def tar_header(block: bytes) -> tuple[str, int, bytes]:
    """Parse a member's header in a tenth of tarfile's time. Returns (name, size in bytes, type).

    Source: POSIX.1-1988 ustar. Names of more than 256 bytes and sizes of 8 GiB and more need
    extensions, which do not occur in ImageNet's archives. Raises ValueError: the block is cut off
    or its checksum differs.
    """
    if len(block) < BLOCK:
        raise ValueError("truncated")
    # For the checksum, its field counts as blanks.
    checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if int(block[148:156].rstrip(b"\0 ") or b"0", 8) != checksum:
        raise ValueError("bad checksum")
    name = block[:100].partition(b"\0")[0].decode()
    if block[345] and block[257:263] == b"ustar\0":  # the beginning of a name over 100 bytes
        name = f"{block[345:500].partition(bytes(1))[0].decode()}/{name}"
    return name, int(block[124:136].rstrip(b"\0 ") or b"0", 8), block[156:157]


def _check_safe(name, path):
    if name.startswith("/") or ".." in name.split("/"):
        raise ArchiveError(f"{path}: the member {name!r} leads out of the archive's folder")
