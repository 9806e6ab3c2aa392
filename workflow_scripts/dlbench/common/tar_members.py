"""Members of untrusted tar archives: dangerous headers are refused."""

import tarfile
from typing import Any

MAX_HEADER_BYTES = 1 << 20  # of e.g. a long name; tarfile holds it in memory
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Member(tarfile.TarInfo):
    """A tar member; an oversized header or a sparse file is a ReadError. For tarfile.open."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> "Member":
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADERS and member.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{member.name} is a sparse file")
        return member
