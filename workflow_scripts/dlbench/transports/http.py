"""HTTP and HTTPS. Proxies are taken from the environment (HTTPS_PROXY and so on)."""

import re

from dlbench.transports import CHUNK_BYTES, Answer, TransportError

TIMEOUT_S = (10, 30)  # to connect, and between two packets
PASSING = {408, 425, 429, 500, 502, 503, 504}


def open(url, offset, validator):
    import requests

    # As it is stored: a compressed transfer has other bytes, and no ranges.
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S)
    except requests.RequestException as error:
        raise TransportError(f"no connection: {error}", passing=True) from error
    if response.status_code == 416 and offset:
        response.close()
        return open(url, 0, None)
    if response.status_code not in (200, 206):
        raise TransportError(
            f"answers {response.status_code} {response.reason}",
            passing=response.status_code in PASSING,
        )
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise TransportError("sends an HTML page, not the file: a login or an error page?")
    first, total = 0, response.headers.get("Content-Length")
    if response.status_code == 206:
        said = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not said:
            raise TransportError("answers 206 without saying which part it sends")
        first, total = int(said[1]), said[2] if said[2] != "*" else None
        if first != offset:
            raise TransportError(f"was asked for byte {offset}, sends from byte {first}")
    etag = response.headers.get("ETag", "")
    return Answer(
        chunks=_chunks(response),
        offset=first,
        total_bytes=int(total) if total else None,
        # Weak ones (W/"...") do not promise equal bytes.
        validator=etag
        if etag and not etag.startswith("W/")
        else response.headers.get("Last-Modified"),
    )


def _chunks(response):
    import requests
    import urllib3

    try:
        with response:
            while chunk := response.raw.read(CHUNK_BYTES):
                yield chunk
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise TransportError(f"the connection broke: {error}", passing=True) from error
