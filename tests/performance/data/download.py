"""Our downloader beside `curl`, in interleaved pairs from a server on this machine.

    uv run python -m tests.performance.data.download [--pairs 9] [--megabytes 300]
        [--folder /dev/shm]

Prints two things:
- the ratio of MB/s (ours / curl), first for curl alone, then for curl and `sha256sum` after it,
  which is the same work: ours checks the digest and flushes to disk. The target is 0.9 of curl
  alone. Both times are without the start of a process.
- how many bytes the server sent beyond the file's length when it dropped the connection every
  60 MB. The target is one buffer per drop at most.
The server is a process of its own that sends from the page cache. Where less than three cores are
free it takes turns with those it serves, and ours, which hashes in a second thread, pays more.
"""

import functools
import hashlib
import http.server
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from dlbench.common import files
from dlbench.data import download
from dlbench.data.transports import CHUNK_BYTES

from .. import bench

DROP_EVERY_BYTES = 60_000_000


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--folder", help="where files are written; by default the temporary one")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        source, target = Path(folder) / "source.bin", Path(folder) / "target.bin"
        write_file(source, args.megabytes * 1_000_000)
        known = {"size_bytes": source.stat().st_size, "sha256": files.sha256(source)}
        with Server(source) as server:
            compare(figures, server.url, target, known, args.pairs)
        with Server(source, DROP_EVERY_BYTES) as server:
            drop(figures, server, target, known)


def write_file(path, size_bytes):
    """A file of `size_bytes` with some content in every block of 1 MB."""
    with open(path, "wb") as file:
        file.truncate(size_bytes)
        for offset in range(0, size_bytes, 1_000_000):
            file.seek(offset)
            file.write(hashlib.sha256(str(offset).encode()).digest())


class Server:
    """A server of one file in a process of its own; it counts what it sends."""

    def __init__(self, path, drop_every_bytes=None):
        context = multiprocessing.get_context("fork")
        self._sent = context.Value("q", 0)
        self._drops = context.Value("q", 0)
        self._server = http.server.HTTPServer(
            ("127.0.0.1", 0), handler(path, drop_every_bytes, self._sent, self._drops)
        )
        self._process = context.Process(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{path.name}"

    def __enter__(self):
        self._process.start()
        self._server.socket.close()  # of this process; the other has its own
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.join()

    @property
    def bytes_sent(self):
        return self._sent.value

    @property
    def drops(self):
        return self._drops.value


def handler(path, drop_every_bytes, sent, drops):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            size_bytes = path.stat().st_size
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first = int(asked[1]) if asked else 0
            self.send_response(206 if asked else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(size_bytes - first))
            self.send_header("Content-Range", f"bytes {first}-{size_bytes - 1}/{size_bytes}")
            self.end_headers()
            count = min(size_bytes - first, drop_every_bytes or size_bytes)
            with open(path, "rb") as file:
                sent.value += self.connection.sendfile(file, first, count)
            drops.value += first + count < size_bytes

    return Handler


def compare(figures, url, target, known, pairs):
    seconds(ours, url, target, known)
    calls = {
        name: functools.partial(seconds, call, url, target, known)
        for name, call in (("ours", ours), ("curl", curl), ("curl, then sha256sum", curl_and_sum))
    }
    taken = bench.in_turns(pairs, calls)
    for name, target_ratio in (("curl", 0.9), ("curl, then sha256sum", None)):
        ratios = bench.ratios(taken[name], taken["ours"])
        figures.add(f"MB/s over those of {name}", ratios, at_least=target_ratio)
    rates = [known["size_bytes"] / 1e6 / s for s in taken["ours"]]
    figures.add("speed of a download, from this machine to itself", rates, "MB/s")


def seconds(program, url, target, known):
    target.unlink(missing_ok=True)
    os.sync()  # what the one before left to be written is not for this one to wait for
    return program(url, target, known)


def ours(url, target, known):
    before = time.perf_counter()
    download.fetch_file([url], target, **known)
    return time.perf_counter() - before


def curl(url, target, known):
    said = subprocess.run(
        ["curl", "--silent", "--fail", "--write-out", "%{time_total}", "--output", target, url],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(said.stdout)


def curl_and_sum(url, target, known):
    curl_s = curl(url, target, known)
    before = time.perf_counter()
    subprocess.run(["sha256sum", target], check=True, capture_output=True)
    return curl_s + time.perf_counter() - before


def drop(figures, server, target, known):
    target.unlink(missing_ok=True)
    download.fetch_file([server.url], target, **known)
    beyond = server.bytes_sent - known["size_bytes"]
    buffers = beyond / max(server.drops, 1) / CHUNK_BYTES
    name = "buffers sent beyond the file's length for each dropped connection"
    figures.add(f"{name} ({server.drops} of them)", buffers, at_most=1)


if __name__ == "__main__":
    main()
