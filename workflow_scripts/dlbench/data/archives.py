"""Reading archives in place: nothing is unpacked to disk.

- A tar file is indexed by walking its headers; members are read by position.
- Compressed files are read as a stream, up to the size they must have: a
  decompression bomb ends there.
- Members that are links, devices or lead out of the folder are refused.
"""

import gzip
import os
import tarfile
import zlib
from pathlib import Path

from dlbench import Error
from dlbench.common.tar_members import Member

BLOCK = 512


class ArchiveError(Error):
    """An archive is damaged or not what it should be; the message has file and place."""


def gunzipped(path, size_bytes, start=b""):
    """The content of a gzip file, which must have that size and begin with `start`."""
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(size_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path}: not a whole gzip file ({error}); fetch it again") from error
    return _checked(content, str(path), size_bytes, start)


def _checked(content, name, size_bytes, start=b""):
    if len(content) != size_bytes:
        found = f"more than {size_bytes}" if len(content) > size_bytes else len(content)
        raise ArchiveError(f"{name}: expected {size_bytes} bytes, found {found}")
    if not content.startswith(start):
        raise ArchiveError(
            f"{name}: expected to begin with {start.hex()}, found {content[: len(start)].hex()}"
        )
    return content


def tar_gz_members(path, sizes):
    """Yield (name, content) of the named members of a .tar.gz, in the archive's order.

    Args:
        sizes: maps the members wanted to the bytes they must have.

    Raises:
        ArchiveError: one is missing, of another size, or no plain file.
    """
    wanted = dict(sizes)
    try:
        with tarfile.open(path, "r|gz", tarinfo=Member) as archive:
            for member in archive:
                _refuse_unsafe(member.name, path)
                if member.name not in wanted:
                    continue
                if not member.isreg():
                    raise ArchiveError(f"{path}: {member.name} is no plain file")
                where, size_bytes = f"{path}: {member.name}", wanted.pop(member.name)
                if member.size != size_bytes:
                    raise ArchiveError(f"{where}: expected {size_bytes} bytes, found {member.size}")
                yield member.name, _checked(archive.extractfile(member).read(), where, size_bytes)
                if not wanted:
                    return
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path}: not a whole tar.gz ({error}); fetch it again") from error
    raise ArchiveError(f"{path}: members missing: {', '.join(sorted(wanted))}")


def small_member(path, name, limit_bytes):
    """The content of one file in a tar.gz, refused where it is larger than the limit."""
    try:
        with tarfile.open(path, "r|gz", tarinfo=Member) as archive:
            for member in archive:
                if member.name == name:
                    if not member.isreg() or member.size > limit_bytes:
                        raise ArchiveError(
                            f"{path}: {name}: expected a plain file of at most {limit_bytes} "
                            f"bytes, found {member.size}"
                        )
                    return archive.extractfile(member).read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path}: not a whole tar.gz ({error}); fetch it again") from error
    raise ArchiveError(f"{path}: {name} is missing")


def tar_index(path, start=0, end=None):
    """Yield (name, offset, size) of the plain files in an uncompressed tar.

    Args:
        start, end: where the tar lies in the file, bytes; tars within tars have their own.

    Raises:
        ArchiveError: a header is damaged, a member is cut off, unsafe or no plain file.
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
                    "the file is damaged or cut off: fetch it again"
                ) from error
            _refuse_unsafe(name, path)
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


def tar_header(block):
    """(name, size in bytes, type) of one header; a tenth of the time that tarfile takes.

    Source: POSIX.1-1988 ustar. Names of more than 100 bytes and sizes of 8 GiB and more, which
    need extensions, do not occur in the archives this is for.

    Raises:
        ValueError: it is none.
    """
    if len(block) < BLOCK:
        raise ValueError("truncated")
    # The checksum counts its own field as blanks.
    found = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if int(block[148:156].rstrip(b"\0 ") or b"0", 8) != found:
        raise ValueError("bad checksum")
    name = block[:100].partition(b"\0")[0].decode()
    return name, int(block[124:136].rstrip(b"\0 ") or b"0", 8), block[156:157]


def _refuse_unsafe(name, path):
    if name.startswith("/") or ".." in name.split("/"):
        raise ArchiveError(f"{path}: the member {name!r} leads out of the archive's folder")
