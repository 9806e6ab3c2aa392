"""iRODS: irods:///zone/collection/object.

Host, user and password come from the iRODS environment file and .irodsA, which
`iinit` writes. Written from the client's documentation and never run against a
server.
"""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlbench.common import tools
from dlbench.data.transports import CHUNK_BYTES, Response, TransportError

ENVIRONMENT_FILE = "~/.irods/irods_environment.json"


def open(url: str, offset: int, validator: str | None) -> Response:
    try:
        from irods.exception import NetworkException, PycommandsException, iRODSException
        from irods.session import NonAnonymousLoginWithoutPassword, iRODSSession
    except ImportError:
        raise TransportError(
            "needs python-irodsclient; install it with: " + tools.install_command("storage")
        ) from None
    path = object_path(url)
    file = Path(os.environ.get("IRODS_ENVIRONMENT_FILE", ENVIRONMENT_FILE)).expanduser()
    if not file.is_file():
        raise TransportError(f"no iRODS environment in {file}: run iinit first")
    session = None
    try:
        session = iRODSSession(irods_env_file=str(file))
        stored = session.data_objects.get(path)
        version = f"{stored.modify_time}-{stored.size}"
        first = offset if validator in (None, version) and offset <= stored.size else 0
        return Response(_chunks(session, stored, first), first, stored.size, version)
    except NonAnonymousLoginWithoutPassword as error:
        raise TransportError(f"no iRODS password ({error}): run iinit first") from error
    except (PycommandsException, iRODSException, OSError, ValueError) as error:
        if session:
            session.cleanup()
        transient = isinstance(error, NetworkException)
        raise TransportError(f"iRODS refuses {path}: {error!r}", transient) from error


def object_path(url: str) -> str:
    """The logical path of a data object.

    >>> object_path("irods:///zone/home/alice/two%20words.tar")
    '/zone/home/alice/two words.tar'
    """
    parts = urlsplit(url)
    if parts.netloc or parts.path.count("/") < 2:
        raise TransportError(
            f"expected irods:///zone/collection/object, found {url}; the host is taken from the "
            "iRODS environment"
        )
    return unquote(parts.path)


def _chunks(session, stored, first):
    from irods.exception import NetworkException

    try:
        with stored.open("r") as file:
            file.seek(first)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except (NetworkException, OSError) as error:
        raise TransportError(f"the connection broke: {error!r}", transient=True) from error
    finally:
        session.cleanup()
