"""A member of a tar archive, and what its headers may be."""

import tarfile

MOST_HEADER_BYTES = 1 << 20  # of a long name or the like, which tarfile holds in memory
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Member(tarfile.TarInfo):
    """For tarfile.open: a member whose header is larger than any honest one is an error."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        made = super().frombuf(buf, encoding, errors)
        if made.type in _HEADERS and made.size > MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {made.size} bytes")
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{made.name} is a sparse file")
        return made
