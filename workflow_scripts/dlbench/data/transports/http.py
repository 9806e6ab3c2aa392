"""HTTP and HTTPS. Proxies are taken from the environment (HTTPS_PROXY and so on).

Redirects to addresses of this machine or of a private network are refused, since their servers are
meant for users inside. A config may name such a URL itself.
"""

import contextlib
import ipaddress
import re
import socket
from urllib.parse import urljoin, urlsplit

from dlbench.data.transports import CHUNK_BYTES, Response, TransportError

VARIANTS: dict[str, dict[str, str]] = {"http": {}, "https": {}}
TIMEOUT_S = (10, 30)  # to connect, and between two packets
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


def open(url: str, offset: int, validator: str | None) -> Response:
    import requests
    from requests.exceptions import ConnectionError, RequestException, SSLError, Timeout

    # No compression: it would change the bytes, and ranges would not work.
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = requests.get(
            url,
            headers=headers,
            stream=True,
            timeout=TIMEOUT_S,
            hooks={"response": lambda response, **_: _check_redirect(response, url)},
        )
    except RequestException as error:
        transient = isinstance(error, ConnectionError | Timeout) and not isinstance(error, SSLError)
        raise TransportError(f"no connection: {error}", transient) from error
    if response.status_code == 416 and offset:
        response.close()
        return open(url, 0, None)
    if response.status_code not in (200, 206):
        raise TransportError(
            f"answers {response.status_code} {response.reason}",
            transient=response.status_code in TRANSIENT,
        )
    first, total = 0, response.headers.get("Content-Length", "")
    if response.status_code == 206:
        header = response.headers.get("Content-Range", "")
        content_range = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", header)
        if not content_range:
            raise TransportError("answers 206 without saying which part it sends")
        first, total = int(content_range[1]), content_range[2]
    etag = response.headers.get("ETag", "")
    strong = etag and not etag.startswith("W/")  # a weak ETag does not promise equal bytes
    return Response(
        chunks=_chunks(response),
        offset=first,
        total_bytes=int(total) if total.isdigit() else None,
        validator=etag if strong else response.headers.get("Last-Modified"),
        content_type=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
    )


def _check_redirect(response, requested):
    """Check that a redirect leads to a public address.

    Raises TransportError: it leads to this machine or to a private network.
    """
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["Location"])
    origin, location = urlsplit(requested), urlsplit(target)
    if (location.hostname, location.port) == (origin.hostname, origin.port):
        return
    # A name that only a proxy can resolve is left to the proxy.
    with contextlib.suppress(OSError, UnicodeError):
        for *_, address in socket.getaddrinfo(location.hostname, None):
            if not ipaddress.ip_address(address[0].partition("%")[0]).is_global:
                response.close()
                raise TransportError(
                    f"refused: it redirects to {location.hostname} ({address[0]}), an address of "
                    "this machine or of a private network; if that is intended, use the URL to "
                    "which it redirects"
                )


def _chunks(response):
    import urllib3

    try:
        with response:
            # read1 returns the bytes that have arrived, so a broken connection loses none of them.
            while chunk := response.raw.read1(CHUNK_BYTES):
                yield chunk
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise TransportError(f"the connection broke: {error}", transient=True) from error
