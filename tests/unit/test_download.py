"""download: a file arrives whole and checked, or not at all, whatever the server does."""

import hashlib
import http.server
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench import download
from dlbench.download import DownloadError, check_file, fetch_file
from dlbench.transports import TransportError

LIBRARY = Path(download.__file__).parents[1]
CONTENT = random.Random(1).randbytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000000\n"


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under any name, with ranges; its attributes are the faults."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.content_type = CONTENT, '"v1"', "application/octet-stream"
        self.last_modified = None
        self.statuses = []  # answered to the first requests
        self.drop_after = None  # bytes of each answer, then the connection ends
        self.knows_ranges = self.knows_if_range = self.says_length = True
        self.says_bytes = None  # a wrong length
        self.pause_s = 0  # after each 10 kB
        self.before = lambda number: None  # called with the number of the request
        self.requests, self.bytes_served = [], 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, name="data.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, *_):
        """A client that went away is what some tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append(dict(self.headers))
        server.before(len(server.requests))
        self.close_connection = True
        if self.path == "/moved":
            return self._head(302, {"Location": server.url(), "Content-Length": 0})
        if server.statuses:
            return self._head(server.statuses.pop(0), {"Content-Length": 0})
        content, first, status = server.content, 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        version = self.headers.get("If-Range")
        same = not server.knows_if_range or version in (None, server.etag, server.last_modified)
        if asked and same and server.knows_ranges:
            first, status = int(asked[1]), 206
            if first >= len(content):
                return self._head(416, {"Content-Range": f"bytes */{len(content)}"})
        size_bytes = len(content) if server.says_bytes is None else server.says_bytes
        headers = {"Content-Type": server.content_type}
        if server.says_length:
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
            self.wfile.write(block)
            server.bytes_served += len(block)
            time.sleep(server.pause_s)

    def _head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()


@pytest.fixture
def server():
    with Server() as started:
        yield started
        started.shutdown()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(download, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "source" / "data.bin"


def left(path):
    """What lies beside `path`, the lock aside."""
    return sorted(p.name for p in path.parent.iterdir() if not p.name.endswith(".lock"))


def interrupt(urls, path, **known):
    """Fetch until the first bytes are there, then stop as Ctrl-C does."""

    def stop(line):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(download, "SHOW_EVERY_S", 0)
        fetch_file(urls, path, **known, say=stop)
    return path.with_name("data.bin.part").stat().st_size


# What arrives


def test_a_file_arrives_whole_and_nothing_else_is_left(server, path):
    found = fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    assert found == {"bytes": len(CONTENT), "sha256": SHA256, "url": server.url()}
    assert path.read_bytes() == CONTENT
    assert left(path) == ["data.bin"]


def test_of_a_file_of_which_nothing_is_known_the_digest_is_returned(server, path):
    assert fetch_file([server.url()], path)["sha256"] == SHA256


def test_a_file_that_is_there_is_checked_and_not_fetched(server, path):
    fetch_file([server.url()], path, sha256=SHA256)
    assert fetch_file([server.url()], path, sha256=SHA256)["url"] is None
    assert len(server.requests) == 1


def test_an_md5_alone_is_checked(server, path):
    assert fetch_file([server.url()], path, md5=MD5)["sha256"] == SHA256
    path.unlink()
    with pytest.raises(DownloadError, match=f"expected md5 0+, found md5 {MD5}"):
        fetch_file([server.url()], path, md5="0" * 32)


def test_redirects_are_followed(server, path):
    fetch_file([server.url("moved")], path, len(CONTENT), SHA256)
    assert path.read_bytes() == CONTENT


def test_a_file_of_no_announced_length_arrives(server, path):
    server.says_length = False
    assert fetch_file([server.url()], path)["bytes"] == len(CONTENT)


def test_an_empty_file_arrives_where_that_is_what_is_published(server, path):
    server.content = b""
    fetch_file([server.url()], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""


def test_progress_is_shown_with_rate_and_time_left(server, path, monkeypatch):
    monkeypatch.setattr(download, "SHOW_EVERY_S", 0.05)
    server.pause_s = 0.005
    lines = []
    fetch_file([server.url()], path, len(CONTENT), say=lines.append)
    assert 2 <= len(lines) <= 20
    pattern = r"data\.bin: [01] of 1 MB, \d+\.\d MB/s, \d+ s left"
    assert all(re.fullmatch(pattern, line) for line in lines)


# Connections that break


def test_a_connection_that_keeps_breaking_costs_nothing_twice(server, path):
    server.drop_after = 70_000
    fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert path.read_bytes() == CONTENT
    assert server.bytes_served == len(CONTENT)
    assert server.requests[1]["If-Range"] == '"v1"'


def test_a_last_modified_date_is_as_good_as_an_etag(server, path):
    server.etag, server.last_modified = None, "Sat, 21 Nov 2026 05:00:00 GMT"
    server.drop_after = 300_000
    fetch_file([server.url()], path)
    assert path.read_bytes() == CONTENT
    assert server.bytes_served == len(CONTENT)


def test_a_weak_etag_is_not_trusted_to_name_a_version(server, path):
    server.etag, server.drop_after = 'W/"v1"', 300_000
    with pytest.raises(DownloadError, match="given up at byte 300000"):
        fetch_file([server.url()], path)
    assert not any("Range" in request for request in server.requests)


def test_a_server_without_ranges_is_read_from_the_start_again(server, path):
    server.knows_ranges = False

    def heal(number):
        server.drop_after = None if number == 3 else 100_000 * number

    server.before = heal
    fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert path.read_bytes() == CONTENT


def test_an_overloaded_server_is_asked_again(server, path):
    server.statuses = [503, 429, 500]
    fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_not_asked_again(server, path, status):
    server.statuses = [status] * 9
    with pytest.raises(DownloadError, match=f"answers {status}"):
        fetch_file([server.url()], path)
    assert len(server.requests) == 1


def test_a_body_that_is_always_cut_short_is_given_up(server, path):
    server.content, server.says_bytes = CONTENT[:-1], len(CONTENT)
    server.before = lambda number: setattr(server, "knows_ranges", False)
    with pytest.raises(DownloadError, match="given up at byte 999999 after 5 attempts"):
        fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert not path.exists()


# Servers that change the file, or have another one


def test_a_file_that_changed_on_the_server_is_fetched_anew(server, path):
    server.drop_after = 400_000
    new = CONTENT[::-1]

    def change(number):
        if number == 2:
            server.content, server.etag = new, '"v2"'

    server.before = change
    fetch_file([server.url()], path)
    assert path.read_bytes() == new


@pytest.mark.parametrize("change", ["etag", "length"])
def test_a_server_that_knows_no_if_range_cannot_mix_two_versions(server, path, change):
    server.knows_if_range, server.drop_after = False, 400_000
    new = CONTENT[::-1] + b"longer" * (change == "length")

    def replace(number):
        if number == 2:
            server.content, server.drop_after = new, None
            server.etag = '"v2"' if change == "etag" else server.etag

    server.before = replace
    fetch_file([server.url()], path)
    assert path.read_bytes() == new


def test_a_server_whose_etag_changes_each_time_is_given_up(server, path):
    server.drop_after = 100_000
    server.before = lambda number: setattr(server, "etag", f'"{number}"')
    with pytest.raises(DownloadError, match="given up at byte 100000 after 5 attempts"):
        fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert len(server.requests) == 1 + download.FRUITLESS_ATTEMPTS


def test_a_server_that_breaks_before_the_first_byte_is_given_up(server, path):
    server.drop_after = 0
    with pytest.raises(DownloadError, match="given up at byte 0 after 5 attempts"):
        fetch_file([server.url()], path)
    assert len(server.requests) == download.FRUITLESS_ATTEMPTS


def test_a_file_of_the_wrong_length_is_refused_before_it_is_read(server, path):
    with pytest.raises(DownloadError, match="offers 1000000 bytes, expected 5"):
        fetch_file([server.url()], path, 5)
    assert left(path) == []


def test_a_server_that_sends_more_than_there_should_be_is_stopped(server, path):
    server.says_length = False
    with pytest.raises(DownloadError, match="sends more than the 500000 bytes expected"):
        fetch_file([server.url()], path, 500_000)
    assert path.with_name("data.bin.part").stat().st_size <= 500_000


def test_another_file_is_kept_aside_and_both_digests_are_said(server, path):
    server.content = CONTENT[::-1]
    there = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(DownloadError) as raised:
        fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    for words in (SHA256, there, MD5, hashlib.md5(server.content).hexdigest(), "damaged"):
        assert words in str(raised.value)
    assert left(path) == ["data.bin.bad"]
    server.content, server.etag = CONTENT, '"v2"'
    fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    assert path.read_bytes() == CONTENT


def test_a_part_that_was_damaged_on_disk_is_fetched_anew(server, path):
    server.drop_after = 400_000
    interrupt([server.url()], path, sha256=SHA256)
    part = path.with_name("data.bin.part")
    part.write_bytes(bytes(len(part.read_bytes())))
    fetch_file([server.url()], path, sha256=SHA256)
    assert path.read_bytes() == CONTENT


# Pages and pointers in place of data


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256}])
def test_a_page_is_refused_by_its_type(server, path, known):
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="an HTML page, not the file: a login"):
        fetch_file([server.url()], path, **known)
    assert left(path) == []


@pytest.mark.parametrize(("content", "what"), [(HTML, "HTML page"), (POINTER, "git-LFS pointer")])
def test_a_page_or_pointer_is_refused_by_its_first_bytes(server, path, content, what):
    server.content = content
    with pytest.raises(DownloadError, match=f"sends an? {what}, not the file"):
        fetch_file([server.url()], path)
    assert not path.exists()


def test_a_page_that_dribbles_in_is_refused_too(path, tmp_path, server):
    server.content, server.drop_after = HTML, 4
    with pytest.raises(DownloadError, match="an HTML page"):
        fetch_file([server.url()], path)
    assert not path.exists()


def test_a_page_that_is_wanted_arrives(server, tmp_path):
    server.content, server.content_type = HTML, "text/html"
    fetch_file([server.url()], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == HTML


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("data.bin", HTML, "HTML page"),
        ("data.bin", POINTER, "git-LFS pointer"),
        ("data.bin", b"", "an empty file"),
        ("data.bin", CONTENT[:-1], "cut short"),
        ("data.tar.gz", CONTENT, "not compressed"),
    ],
)
def test_a_file_put_there_by_hand_is_checked_and_its_mistake_named(tmp_path, name, content, cause):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DownloadError, match=cause):
        check_file(tmp_path / name, size_bytes=len(CONTENT), sha256="0" * 64)
    assert (tmp_path / name).read_bytes() == content


# Mirrors


def test_the_next_mirror_is_asked_when_one_fails(server, path):
    with Server() as other:
        server.content_type = "text/html"
        urls = ["http://127.0.0.1:9/data.bin", server.url(), other.url()]
        assert fetch_file(urls, path, sha256=SHA256)["url"] == other.url()
        other.shutdown()


def test_when_all_mirrors_fail_each_is_named_with_its_reason(server, path):
    server.statuses = [403]
    urls = [server.url(), "http://127.0.0.1:9/data.bin", "gopher://host/data.bin"]
    with pytest.raises(DownloadError) as raised:
        fetch_file(urls, path)
    first, *lines = str(raised.value).splitlines()
    assert first == "data.bin could not be fetched:"
    assert [line.split(": ")[0] for line in lines] == [f"- {url}" for url in urls]
    assert "answers 403" in lines[0]
    assert "no connection" in lines[1]
    assert "no file transports/gopher.py" in lines[2]


def test_another_mirror_continues_where_a_digest_proves_the_result(server, path):
    with Server() as other:
        other.etag, server.drop_after = '"of another mirror"', 300_000
        server.before = lambda number: server.statuses.extend([404] * (number > 1))
        fetch_file([server.url(), other.url()], path, sha256=SHA256)
        assert path.read_bytes() == CONTENT
        assert other.bytes_served == len(CONTENT) - 300_000
        other.shutdown()


def test_without_a_digest_no_mirror_continues_what_another_began(server, path):
    with Server() as other:
        server.drop_after = 300_000
        server.before = lambda number: server.statuses.extend([404] * (number > 1))
        fetch_file([server.url(), other.url()], path)
        assert other.bytes_served == len(CONTENT)
        other.shutdown()


# Offline, and small disks


def test_offline_touches_no_network_and_says_where_the_file_goes(server, path):
    with pytest.raises(DownloadError) as raised:
        fetch_file([server.url()], path, len(CONTENT), SHA256, offline=True)
    for words in ("offline is set", str(path), server.url(), "bytes 1000000", SHA256):
        assert words in str(raised.value)
    assert server.requests == []


def test_offline_still_reads_local_mirrors(tmp_path, path):
    (tmp_path / "mirror.bin").write_bytes(CONTENT)
    url = (tmp_path / "mirror.bin").as_uri()
    assert fetch_file(["http://127.0.0.1:9/x", url], path, offline=True)["url"] == url


def test_a_disk_that_is_too_small_is_said_before_anything_is_read(server, path):
    server.says_bytes = 10 * shutil.disk_usage("/").total
    with pytest.raises(DownloadError, match=r"needs \d+ bytes in .*, where \d+ are free"):
        fetch_file([server.url()], path)
    assert left(path) == []


# Processes


def start(url, path):
    command = (
        "import sys; from dlbench.download import fetch_file;"
        f"print(fetch_file([sys.argv[1]], sys.argv[2], sha256={SHA256!r})['url'])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", command, url, path],
        env=os.environ | {"PYTHONPATH": str(LIBRARY)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_after_a_kill_nothing_is_fetched_twice_but_one_buffer(server, path):
    server.pause_s = 0.005
    child = start(server.url(), path)
    wait_until(lambda: server.bytes_served > 300_000)
    child.kill()
    child.wait()
    assert left(path) == ["data.bin.part", "data.bin.part.json"]
    wait_until(lambda: not any("process_request" in t.name for t in threading.enumerate()))
    server.pause_s = 0
    fetch_file([server.url()], path, sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == 2
    assert server.bytes_served <= len(CONTENT) + 100_000


def test_a_part_that_is_whole_is_not_fetched_again(server, path):
    interrupt([server.url()], path)
    path.with_name("data.bin.part").write_bytes(CONTENT)  # killed before the last step
    assert fetch_file([server.url()], path)["sha256"] == SHA256
    assert len(server.requests) == 1


@pytest.mark.parametrize("note", ["", "{", "[]", '{"url": 1}', None])
def test_a_part_of_which_the_version_is_not_known_is_not_continued(server, path, note):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(b"something else")
    if note is not None:
        path.with_name("data.bin.part.json").write_text(note)
    fetch_file([server.url()], path)
    assert path.read_bytes() == CONTENT


def test_of_two_processes_one_fetches_and_the_other_waits(server, path):
    server.pause_s = 0.005
    children = [start(server.url(), path) for _ in range(2)]
    said = [child.communicate()[0].strip() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(said) == sorted([server.url(), "None"])
    assert server.bytes_served == len(CONTENT)


# Other transports


@pytest.fixture
def mirror(tmp_path):
    """A file of this machine that takes more than one read."""
    mirror = tmp_path / "mirror" / "data.bin"
    mirror.parent.mkdir()
    mirror.write_bytes(CONTENT * 3)
    return mirror


def assert_continued(urls, path, replace):
    """An interrupted download goes on; not so when the file was replaced meanwhile."""
    done = interrupt(urls, path)
    assert 0 < done < 3 * len(CONTENT)
    path.with_name("data.bin.part").write_bytes(bytes(done))  # to be known again
    fetch_file(urls, path)
    assert path.read_bytes() == bytes(done) + (CONTENT * 3)[done:]

    path.unlink()
    interrupt(urls, path)
    replace(CONTENT[::-1] * 3)
    fetch_file(urls, path)
    assert path.read_bytes() == CONTENT[::-1] * 3


def test_a_file_of_this_machine_is_copied_and_continued(path, mirror):
    assert_continued([mirror.as_uri()], path, mirror.write_bytes)
    with pytest.raises(DownloadError, match="No such file"):
        fetch_file(["file:///nowhere/data.bin"], path.with_name("other.bin"))


@pytest.fixture(scope="module")
def s3():
    """An S3 server on this machine, as the AWS tools find one."""
    pytest.importorskip("boto3")
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client
    server.stop()


def put(s3, content):
    s3.put_object(Bucket="bucket", Key="folder/data.bin", Body=content)


def test_an_s3_object_is_fetched_and_continued(s3, path):
    put(s3, CONTENT * 3)
    assert_continued(["s3://bucket/folder/data.bin"], path, lambda content: put(s3, content))


def test_an_empty_s3_object_is_fetched(s3, path):
    put(s3, b"")
    fetch_file(["s3://bucket/folder/data.bin"], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""


def test_a_missing_s3_object_is_said(s3, path):
    with pytest.raises(DownloadError, match=r"S3 refuses: .*404"):
        fetch_file(["s3://bucket/nothing"], path)


@pytest.mark.parametrize(("scheme", "package"), [("s3", "boto3"), ("irods", "irods.exception")])
def test_a_missing_storage_package_is_named_with_its_remedy(path, monkeypatch, scheme, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DownloadError, match="uv sync --extra storage"):
        fetch_file([f"{scheme}://bucket/data.bin"], path)


def test_irods_urls_name_a_path_in_a_zone_and_no_host():
    from dlbench.transports.irods import object_path

    assert object_path("irods:///zone/home/two%20words.tar") == "/zone/home/two words.tar"
    for url in ("irods://host/zone/data.bin", "irods:///data.bin"):
        with pytest.raises(TransportError, match="expected irods:///zone/collection/object"):
            object_path(url)


def test_irods_without_its_configuration_says_what_to_do(path, tmp_path, monkeypatch):
    pytest.importorskip("irods")
    environment = tmp_path / "irods_environment.json"
    monkeypatch.setenv("IRODS_ENVIRONMENT_FILE", str(environment))
    monkeypatch.setenv("IRODS_AUTHENTICATION_FILE", str(tmp_path / ".irodsA"))
    url = "irods:///zone/home/alice/data.bin"
    with pytest.raises(DownloadError, match=r"no iRODS environment in .*: run iinit first"):
        fetch_file([url], path)
    account = {"irods_host": "127.0.0.1", "irods_port": 9, "irods_user_name": "alice"}
    environment.write_text(json.dumps(account | {"irods_zone_name": "zone"}))
    with pytest.raises(DownloadError, match=r"no iRODS password .*: run iinit first"):
        fetch_file([url], path)
    anonymous = account | {"irods_user_name": "anonymous", "irods_zone_name": "zone"}
    environment.write_text(json.dumps(anonymous))
    with pytest.raises(DownloadError, match=r"iRODS refuses /zone/home/alice/data\.bin"):
        fetch_file([url], path)
