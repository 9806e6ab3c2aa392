"""Transports, one file for each URL scheme: how bytes are read from somewhere else.

A transport file defines:
    open(url, offset, validator): an `Answer`. Its content begins at `offset` if the file is still
        the version that `validator` names (None: any version), else at 0.
        Raises TransportError; its `passing` says whether another attempt may succeed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dlbench import Error

CHUNK_BYTES = 1 << 20


class TransportError(Error):
    """The other side cannot or will not send; the message says why."""

    def __init__(self, message: str, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


@dataclass
class Response:
    """What a transport sends: `chunks` of bytes from `offset` on.

    Attributes:
        total_bytes: size of the whole file, None if unknown.
        validator: names this version of the file, None if nothing does.
        content_type: such as "text/html", None if unknown.
    """

    chunks: Iterable[bytes]
    offset: int = 0
    total_bytes: int | None = None
    validator: str | None = None
    content_type: str | None = None
