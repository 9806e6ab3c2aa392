"""The downloader beside curl, from one local server, and what dropped connections cost.

    uv run python tests/performance/download.py [--megabytes 1000]

Prints the median ratio of speeds over interleaved pairs (target: at least 0.9
of curl, our checksums included), and how many bytes were sent beyond the file's
size when the connection drops every 60 MB (target: at most a buffer a drop).
"""

import argparse
import functools
import http.server
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

from dlbench.download import fetch_file  # noqa: E402
from dlbench.transports import CHUNK_BYTES  # noqa: E402

DROP_BYTES = 60_000_000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, path, sent, *args):
        self.file, self.sent = path, sent
        super().__init__(*args)

    def log_message(self, *_):
        pass

    def do_GET(self):
        size = self.file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(size - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        count = min(size - start, DROP_BYTES) if self.path == "/dropping" else size - start
        with open(self.file, "rb") as file:
            while count:
                moved = os.sendfile(self.connection.fileno(), file.fileno(), start, count)
                start, count = start + moved, count - moved
                self.sent.value += moved
        self.close_connection = True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        source = folder / "source"
        with open(source, "wb") as file:
            for _ in range(args.megabytes):
                file.write(os.urandom(1_000_000))
        sent = multiprocessing.Value("q", 0)
        ports = multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(source, sent, ports), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{ports.get()}"
        ratios = []
        for number in range(args.pairs):
            order = (ours, curl) if number % 2 else (curl, ours)
            times = {way: way(f"{url}/file", folder / "target") for way in order}
            ratios.append(times[curl] / times[ours])
            rate = args.megabytes / times[ours]
        print(f"{statistics.median(ratios):.2f} of curl's rate ({rate:.0f} MB/s)", flush=True)
        sent.value = 0
        ours(f"{url}/dropping", folder / "target")
        drops = args.megabytes * 1_000_000 // DROP_BYTES
        beyond = sent.value - args.megabytes * 1_000_000
        print(
            f"{drops} drops: {beyond} bytes sent beyond the file's size, "
            f"{beyond / max(drops, 1) / CHUNK_BYTES:.2f} buffers a drop"
        )


def serve(source, sent, ports):
    handler = functools.partial(Handler, source, sent)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    ports.put(server.server_port)
    server.serve_forever()


def ours(url, target):
    before = time.perf_counter()
    fetch_file([url], target)
    taken_s = time.perf_counter() - before
    target.unlink()
    return taken_s


def curl(url, target):
    before = time.perf_counter()
    subprocess.run(["curl", "--silent", "--fail", "--output", target, url], check=True)
    taken_s = time.perf_counter() - before
    target.unlink()
    return taken_s


if __name__ == "__main__":
    main()
