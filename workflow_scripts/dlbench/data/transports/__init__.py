"""Transports, one file for each URL scheme (http.py has two): how to download files.

A transport file defines:
    open(url, offset, validator): a `Response`. Its content begins at `offset` if the file is still
        the version that `validator` identifies (None: any version), else at 0.
        Raises TransportError; its `transient` says whether another attempt may succeed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dlbench import Error

CHUNK_BYTES = 1 << 20


class TransportError(Error):
    """A server cannot or will not send a file; the message says why."""

    def __init__(self, message: str, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


@dataclass
class Response:
    """A file's content from `offset` on, in `chunks`.

    Attributes:
        total_bytes: size of the whole file; None if unknown.
        validator: identifies the version of the file, as an ETag does; None if nothing does.
        content_type: e.g. "text/html"; None if unknown.
    """

    chunks: Iterable[bytes]
    offset: int = 0
    total_bytes: int | None = None
    validator: str | None = None
    content_type: str | None = None
