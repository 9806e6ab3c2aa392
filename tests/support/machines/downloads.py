"""A faulty server and interrupted downloads, for the tests of downloading."""

import hashlib
import http.server
import random
import re
import threading
import time

import pytest

from dlbench.data import fetch_dataset
from dlbench.data.fetch_dataset import fetch_file

CONTENT = random.Random(1).randbytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under any name, with range requests; its attributes configure faults."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.content_type = CONTENT, '"v1"', "application/octet-stream"
        self.last_modified = None
        self.statuses = []  # answered to the first requests
        self.drop_after = None  # bytes of each answer, then the connection ends
        self.knows_ranges = self.knows_if_range = self.announces_length = True
        self.announced_bytes = None  # a wrong length
        self.pause_s = 0  # after each 10 kB
        self.moved_to = None  # another address than its own
        self.before = lambda number: None  # called with the number of the request
        self.requests, self.bytes_served = [], 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, name="data.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, *_):
        """Ignore clients that disconnect, which some tests do."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append(dict(self.headers))
        server.before(len(server.requests))
        if self.path == "/moved":
            target = server.moved_to or server.url()
            return self._head(302, {"Location": target, "Content-Length": 0})
        if server.statuses:
            return self._head(server.statuses.pop(0), {"Content-Length": 0})
        content, first, status = server.content, 0, 200
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        version = self.headers.get("If-Range")
        same = not server.knows_if_range or version in (None, server.etag, server.last_modified)
        if requested and same and server.knows_ranges:
            first, status = int(requested[1]), 206
            if first >= len(content):
                return self._head(416, {"Content-Range": f"bytes */{len(content)}"})
        size_bytes = len(content) if server.announced_bytes is None else server.announced_bytes
        headers = {"Content-Type": server.content_type}
        if server.announces_length:
            headers["Content-Length"] = size_bytes - first
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{size_bytes - 1}/{size_bytes}"
        if server.etag:
            headers["ETag"] = server.etag
        if server.last_modified:
            headers["Last-Modified"] = server.last_modified
        self._head(status, headers)
        last = len(content) if server.drop_after is None else first + server.drop_after
        for start in range(first, min(last, len(content)), 10_000):
            block = content[start : min(start + 10_000, last)]
            server.bytes_served += len(block)  # first: a client may look once it has the block
            self.wfile.write(block)
            time.sleep(server.pause_s)

    def _head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.send_header("Connection", "close")  # told, or the client would ask here once more
        self.end_headers()


def files_beside(path):
    """Names of the files in the folder of `path`, without the lock."""
    return sorted(p.name for p in path.parent.iterdir() if not p.name.endswith(".lock"))


def interrupt(urls, path, **known):
    """Interrupt a download after its first bytes, like Ctrl-C."""

    def stop(line):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fetch_dataset, "PROGRESS_EVERY_S", 0)
        patch.setattr(fetch_dataset, "print_line", stop)
        fetch_file(urls, path, **known)
    return path.with_name("data.bin.part").stat().st_size
