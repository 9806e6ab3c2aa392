"""HTTP and HTTPS. Proxies are taken from the environment (HTTPS_PROXY and so on)."""

import re

from dlbench.data.transports import CHUNK_BYTES, Answer, TransportError

TIMEOUT_S = (10, 30)  # to connect, and between two packets
PASSING = {408, 425, 429, 500, 502, 503, 504}


def open(url: str, offset: int, validator: str | None) -> Answer:
    import requests
    from requests.exceptions import ConnectionError, RequestException, SSLError, Timeout

    # Not compressed for the transfer, which has other bytes and no ranges.
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S)
    except RequestException as error:
        passing = isinstance(error, ConnectionError | Timeout) and not isinstance(error, SSLError)
        raise TransportError(f"no connection: {error}", passing) from error
    if response.status_code == 416 and offset:
        response.close()
        return open(url, 0, None)
    if response.status_code not in (200, 206):
        raise TransportError(
            f"answers {response.status_code} {response.reason}",
            passing=response.status_code in PASSING,
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
    return Answer(
        chunks=_chunks(response),
        offset=first,
        total_bytes=int(total) if total.isdigit() else None,
        validator=etag if strong else response.headers.get("Last-Modified"),
        content_type=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
    )


def _chunks(response):
    import urllib3

    try:
        with response:
            # read1 returns what has arrived, so that a broken connection loses nothing of it.
            while chunk := response.raw.read1(CHUNK_BYTES):
                yield chunk
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise TransportError(f"the connection broke: {error}", passing=True) from error
