"""iRODS: irods:///zone/collection/object.

Host, user and password are taken from the iRODS environment file and .irodsA,
as `iinit` writes them. Written after the client's documentation; never run
against a server, since none was to be had.
"""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlbench.transports import CHUNK_BYTES, Answer, TransportError

ENVIRONMENT_FILE = "~/.irods/irods_environment.json"


def open(url, offset, validator):
    try:
        from irods.exception import iRODSException
        from irods.session import iRODSSession
    except ImportError:
        raise TransportError(
            "needs python-irodsclient; install it with: uv sync --extra storage"
        ) from None
    file = os.environ.get("IRODS_ENVIRONMENT_FILE", ENVIRONMENT_FILE)
    file = Path(file).expanduser()
    if not file.is_file():
        raise TransportError(f"no iRODS environment in {file}: run iinit first")
    session = iRODSSession(irods_env_file=str(file))
    try:
        found = session.data_objects.get(unquote(urlsplit(url).path))
        version = f"{found.modify_time}-{found.size}"
        first = offset if validator in (None, version) and offset <= found.size else 0
        return Answer(_chunks(session, found, first), first, found.size, version)
    except iRODSException as error:
        session.cleanup()
        raise TransportError(f"iRODS refuses: {error!r}") from error


def _chunks(session, found, first):
    from irods.exception import NetworkException

    try:
        with found.open("r") as file:
            file.seek(first)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except NetworkException as error:
        raise TransportError(f"the connection broke: {error!r}", passing=True) from error
    finally:
        session.cleanup()
