"""Transports, one file for each URL scheme: how bytes are read from somewhere else.

A transport file defines:
    open(url, offset, validator): an `Answer`, whose content begins at `offset` where the
        file is still the one that `validator` names (None: whatever it is), else at 0.
Raises TransportError; `passing` says whether it may be worth another try.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dlbench import Error

CHUNK_BYTES = 1 << 20


class TransportError(Error):
    """The other side cannot or will not send; the message says why."""

    def __init__(self, message, passing=False):
        super().__init__(message)
        self.passing = passing


@dataclass
class Answer:
    """What a transport sends: `chunks` of bytes from `offset` on.

    Attributes:
        total_bytes: size of the whole file, None where it is not said.
        validator: names this version of the file, None where nothing does.
        content_type: such as "text/html", None where it is not said.
    """

    chunks: Iterable[bytes]
    offset: int = 0
    total_bytes: int | None = None
    validator: str | None = None
    content_type: str | None = None
