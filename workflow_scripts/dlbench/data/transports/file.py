"""Files of this machine: file:///path."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlbench.data.transports import CHUNK_BYTES, Response, TransportError


def open(url: str, offset: int, validator: str | None) -> Response:
    path = Path(unquote(urlsplit(url).path))
    try:
        status = path.stat()
        file = path.open("rb")
    except OSError as error:
        raise TransportError(f"{path}: {error.strerror}") from error
    version = f"{status.st_mtime_ns}-{status.st_size}"
    first = offset if validator in (None, version) and offset <= status.st_size else 0
    return Response(_chunks(file, first), first, status.st_size, version)


def _chunks(file, first):
    with file:
        file.seek(first)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
