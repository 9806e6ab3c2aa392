"""download: against a real server that misbehaves in every way a server can."""

import contextlib
import hashlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench import download, fetching
from dlbench.datasets import digits, imagenet
from dlbench.download import DownloadError, fetch_file
from dlbench.fetching import FetchError
from dlbench.transports import CHUNK_BYTES, irods

CONTENT = os.urandom(5 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = {"size_bytes": len(CONTENT), "sha256": SHA256}


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT at any path; the path says how it fails: /drop-1000/file and so on."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.sent_bytes = [], 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, fault=""):
        return f"http://127.0.0.1:{self.server_port}/{fault}/file.bin"

    def handle_error(self, request, address):
        pass  # a dropped connection is what we want


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        fault, _, number = self.path.split("/")[1].partition("-")
        number, seen = int(number or 0), self.server.requests
        seen.append(self.headers.get("Range"))
        if fault == "status":
            return self.answer(number, b"no")
        if fault == "busy" and len(seen) <= number:
            return self.answer(503, b"busy")
        if fault == "html":
            return self.answer(200, b"<html>login</html>", {"Content-Type": "text/html"})
        if fault == "page":
            return self.answer(200, b"\n<!DOCTYPE html><html>")
        if fault == "redirect":
            return self.answer(302, b"", {"Location": "/ok/file.bin"})
        etag = f'"{len(seen)}"' if fault == "newetag" else '"one"'
        content = CONTENT[:number] if fault == "other" else CONTENT
        start = self.start_of_range(etag, fault)
        headers = {"ETag": etag, "Content-Length": str(len(content) - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send_response(206 if start else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = content[start:]
        if fault in ("drop", "newetag", "norange", "stuck", "truncated"):
            body = body[:number]
        if fault == "slow":
            for at in range(0, len(body), 1 << 16):
                self.write(body[at : at + (1 << 16)])
                time.sleep(0.02)
        else:
            self.write(body)
        self.close_connection = True

    def start_of_range(self, etag, fault):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not asked or fault in ("norange", "stuck"):
            return 0
        return int(asked[1]) if self.headers.get("If-Range", etag) == etag else 0

    def write(self, body):
        self.wfile.write(body)
        self.server.sent_bytes += len(body)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    with contextlib.closing(Server()) as server:
        yield server
        server.shutdown()


Server.close = http.server.ThreadingHTTPServer.server_close


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "file.bin"


@pytest.mark.parametrize("fault", ["", "redirect", "busy-2", "drop-1000000"])
def test_the_file_arrives_whole(server, path, fault):
    found = fetch_file([server.url(fault)], path, **KNOWN)
    assert path.read_bytes() == CONTENT
    assert found == {"bytes": len(CONTENT), "sha256": SHA256, "url": server.url(fault)}
    assert sorted(p.name for p in path.parent.iterdir()) == [".file.bin.lock", "file.bin"]


def test_after_each_drop_it_goes_on_where_it_was(server, path):
    fetch_file([server.url("drop-1000000")], path, **KNOWN)
    assert len(server.requests) == 6
    assert server.requests[1] == "bytes=1000000-"
    assert server.sent_bytes == len(CONTENT)


def test_what_is_not_published_is_told(server, path):
    assert fetch_file([server.url()], path)["sha256"] == SHA256


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("status-404", "answers 404"),
        ("status-403", "answers 403"),
        ("html", "sends an HTML page, not the file: a login or an error page?"),
        ("other-1000", "offers 1000 bytes, expected 5242880: another file"),
        ("stuck-300000", "given up at byte 300000 after 5 attempts without progress"),
        ("newetag-200000", "given up at byte 200000 after 5 attempts without progress"),
        ("busy-99", "answers 503 Service Unavailable; given up at byte 0 after 5 attempts"),
    ],
)
def test_a_server_that_does_not_deliver_is_left(server, path, monkeypatch, fault, message):
    monkeypatch.setattr(download, "LONGEST_WAIT_S", 0.01)
    with pytest.raises(DownloadError) as error:
        fetch_file([server.url(fault)], path, **KNOWN)
    assert f"file.bin could not be fetched:\n- {server.url(fault)}: " in str(error.value)
    assert message in str(error.value)
    assert not path.exists()


def test_a_page_without_its_content_type_is_seen_by_its_first_words(server, path):
    with pytest.raises(DownloadError, match="sends an HTML page"):
        fetch_file([server.url("page")], path, sha256=SHA256)


def test_the_next_mirror_is_taken_and_goes_on_where_the_first_ended(server, path, monkeypatch):
    monkeypatch.setattr(download, "LONGEST_WAIT_S", 0.01)
    fetch_file([server.url("status-404"), server.url("stuck-300000"), server.url()], path, **KNOWN)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=300000-"


def test_a_file_that_is_not_the_published_one_is_kept_as_bad(server, path):
    with pytest.raises(DownloadError) as error:
        fetch_file([server.url()], path, sha256="0" * 64)
    assert f"expected sha256 {'0' * 64}, found sha256 {SHA256}" in str(error.value)
    assert path.with_name("file.bin.bad").read_bytes() == CONTENT
    assert not path.exists()


def test_a_server_without_ranges_starts_anew(server, path):
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    note = f'{{"url": "{server.url("norange-9999999")}", "validator": "\\"one\\""}}'
    path.with_name("file.bin.part.json").write_text(note)
    fetch_file([server.url("norange-9999999")], path, **KNOWN)
    assert path.read_bytes() == CONTENT


def test_what_is_left_of_another_file_is_not_continued(server, path):
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(b"x" * 1000)
    path.with_name("file.bin.part.json").write_text('{"url": "other", "validator": "x"}')
    fetch_file([server.url()], path)
    assert path.read_bytes() == CONTENT


def fetch_in_a_process(url, path):
    program = (
        "import sys; from dlbench.download import fetch_file;"
        f"fetch_file([{url!r}], {str(path)!r}, size_bytes={len(CONTENT)}, sha256={SHA256!r})"
    )
    folder = Path(download.__file__).parents[1]
    return subprocess.Popen([sys.executable, "-c", program], cwd=folder)


def test_a_killed_download_goes_on_without_fetching_a_byte_twice(server, path):
    process = fetch_in_a_process(server.url("slow"), path)
    part = path.with_name("file.bin.part")
    deadline = time.monotonic() + 30
    while not part.is_file() or part.stat().st_size < 2 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    had = part.stat().st_size
    fetch_file([server.url("slow")], path, **KNOWN)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == f"bytes={had}-"
    assert had >= (2 << 20) - CHUNK_BYTES


def test_two_processes_fetch_a_file_once(server, path):
    processes = [fetch_in_a_process(server.url("slow"), path) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(server.requests) == 1


def test_a_disk_that_is_too_small_is_named_before(server, path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match=r"needs 5242880 bytes in .*, where 1000 are free"):
        fetch_file([server.url()], path, **KNOWN)


def test_progress_is_told_with_rate_and_time_left(server, path, monkeypatch):
    monkeypatch.setattr(download, "SHOW_EVERY_S", 0.0)
    lines = []
    fetch_file([server.url("slow")], path, **KNOWN, say=lines.append)
    assert re.fullmatch(r"file\.bin: \d of 5 MB, [\d.]+ MB/s, \d s left", lines[0])


def test_files_of_this_machine_are_urls_too(tmp_path, path):
    (tmp_path / "a file").write_bytes(CONTENT)
    assert fetch_file([(tmp_path / "a file").as_uri()], path, **KNOWN)["bytes"] == len(CONTENT)
    with pytest.raises(DownloadError, match="No such file"):
        fetch_file(["file:///absent"], path.with_name("b"))


def test_an_unknown_scheme_is_named(path):
    with pytest.raises(DownloadError, match=r"no file transports/ftp\.py"):
        fetch_file(["ftp://example.org/file"], path)


@pytest.fixture
def s3(monkeypatch):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    client.put_object(Bucket="data", Key="set/file.bin", Body=CONTENT)
    yield client
    server.stop()


def test_s3_delivers_and_goes_on(s3, path):
    url = "s3://data/set/file.bin"
    etag = s3.head_object(Bucket="data", Key="set/file.bin")["ETag"].strip('"')
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    note = f'{{"url": "{url}", "validator": "\\"{etag}\\""}}'
    path.with_name("file.bin.part.json").write_text(note)
    fetch_file([url], path, **KNOWN)
    assert path.read_bytes() == CONTENT
    with pytest.raises(DownloadError, match="S3 refuses"):
        fetch_file(["s3://data/absent"], path.with_name("b"))


def test_irods_without_its_environment_says_what_to_do(path, monkeypatch, tmp_path):
    pytest.importorskip("irods")
    monkeypatch.setenv("IRODS_ENVIRONMENT_FILE", str(tmp_path / "absent.json"))
    with pytest.raises(irods.TransportError, match="run iinit first"):
        irods.open("irods:///zone/file", 0, None)


def test_files_staged_by_hand_are_used_where_they_lie(tmp_path):
    fetching.fetch("digits", tmp_path / "first")
    staged = tmp_path / "manual" / "digits"
    staged.mkdir(parents=True)
    (tmp_path / "first" / "digits.csv.gz").rename(staged / "digits.csv.gz")
    found = fetching.fetch("digits", tmp_path / "second", manual_dir=tmp_path / "manual")
    assert (tmp_path / "second" / "digits.csv.gz").resolve() == staged / "digits.csv.gz"
    assert found["digits.csv.gz"]["sha256"] == digits.FILES["digits.csv.gz"]["sha256"]


def test_a_staged_file_that_is_another_one_is_named(tmp_path):
    (tmp_path / "digits.csv.gz").write_bytes(b"something else")
    with pytest.raises(FetchError, match=r"published digits\.csv\.gz: expected bytes 57523"):
        fetching.fetch("digits", tmp_path / "source", manual_dir=tmp_path)


def test_swapped_archives_are_recognised_by_their_sums(tmp_path, monkeypatch):
    staged = tmp_path / "ILSVRC2012_img_train.tar"
    staged.write_bytes(b"validation images")
    md5 = hashlib.md5(b"validation images").hexdigest()
    changed = {name: dict(known) for name, known in imagenet.FILES.items()}
    changed["ILSVRC2012_img_val.tar"]["md5"] = md5
    monkeypatch.setattr(imagenet, "FILES", changed)
    with pytest.raises(FetchError, match=r"; this is ILSVRC2012_img_val\.tar"):
        fetching.fetch("imagenet", tmp_path / "s", manual_dir=tmp_path, terms_accepted=True)


def test_terms_must_be_accepted_and_files_staged(tmp_path):
    with pytest.raises(FetchError, match=r"put imagenet into data\.terms_accepted"):
        fetching.fetch("imagenet", tmp_path)
    with pytest.raises(FetchError, match=r"is never fetched automatically; put it into"):
        fetching.fetch("imagenet", tmp_path, terms_accepted=True)


def test_offline_names_what_is_missing_and_where_to_put_it(tmp_path):
    with pytest.raises(FetchError, match=r"ubyte\.gz is missing and offline is set"):
        fetching.fetch("mnist", tmp_path, offline=True)
    assert fetching.fetch("digits", tmp_path, offline=True)
