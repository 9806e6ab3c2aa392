"""fetch_dataset: a file is complete and verified, or missing, whatever the server does."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

from dlbench.data import fetch_dataset
from dlbench.data.fetch_dataset import DownloadError, WrongFile, check_file, fetch_file
from dlbench.data.transports import TransportError
from support.machines.downloads import CONTENT, MD5, SHA256, Server, files_beside, interrupt
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.usefixtures("short_waits")

HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000000\n"


# What arrives


def test_a_file_arrives_whole_nothing_else_is_left_and_it_is_not_fetched_again(server, path):
    found = fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    assert found == {"bytes": len(CONTENT), "sha256": SHA256, "url": server.url()}
    assert path.read_bytes() == CONTENT
    assert files_beside(path) == ["data.bin"]
    assert fetch_file([server.url()], path, sha256=SHA256)["url"] is None  # it is checked
    assert len(server.requests) == 1


def test_an_md5_alone_is_checked_also_of_a_file_elsewhere_of_no_announced_length(server, path):
    server.announces_length = False
    assert fetch_file([server.url("moved")], path, md5=MD5)["sha256"] == SHA256
    path.unlink()
    with pytest.raises(DownloadError, match=f"expected md5 0+, found md5 {MD5}"):
        fetch_file([server.url()], path, md5="0" * 32)


def test_an_empty_file_arrives_where_that_is_what_is_published(server, path):
    server.content = b""
    fetch_file([server.url()], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""


def test_progress_is_shown_with_rate_and_time_left(server, path, monkeypatch, capsys):
    monkeypatch.setattr(fetch_dataset, "PROGRESS_EVERY_S", 0.05)
    server.pause_s = 0.005
    fetch_file([server.url()], path, len(CONTENT))
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 20
    pattern = r"data\.bin: [01](\.\d+)? of 1 MB, \d+\.\d MB/s, \d+ s left"
    assert all(re.fullmatch(pattern, line) for line in lines)


# Connections that break


@pytest.mark.parametrize("etag", ['"v1"', None])
def test_a_connection_that_keeps_breaking_costs_nothing_twice(server, path, etag):
    date = "Sat, 21 Nov 2026 05:00:00 GMT"  # as good as an ETag
    server.drop_after, server.etag, server.last_modified = 70_000, etag, date
    fetch_file([server.url()], path, len(CONTENT), SHA256)
    assert path.read_bytes() == CONTENT
    assert server.bytes_served == len(CONTENT)
    assert server.requests[1]["If-Range"] == (etag or date)


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


def cut_short(server):
    server.content, server.announced_bytes = CONTENT[:-1], len(CONTENT)
    server.knows_ranges = False


def weak_etag(server):
    """It is not trusted to name a version, so each attempt begins anew."""
    server.etag, server.drop_after = 'W/"v1"', 300_000


def another_etag_each_time(server):
    server.drop_after = 100_000
    server.before = lambda number: setattr(server, "etag", f'"{number}"')


def breaks_before_the_first_byte(server):
    server.drop_after = 0


@pytest.mark.parametrize(
    ("fault", "byte", "attempts"),
    [
        (cut_short, 999_999, fetch_dataset.FRUITLESS_ATTEMPTS + 1),
        (weak_etag, 300_000, fetch_dataset.FRUITLESS_ATTEMPTS + 1),
        (another_etag_each_time, 100_000, fetch_dataset.FRUITLESS_ATTEMPTS + 1),
        (breaks_before_the_first_byte, 0, fetch_dataset.FRUITLESS_ATTEMPTS),
    ],
)
def test_a_server_that_never_sends_the_rest_is_given_up(server, path, fault, byte, attempts):
    fault(server)
    known = {} if fault is weak_etag else {"size_bytes": len(CONTENT), "sha256": SHA256}
    with pytest.raises(DownloadError, match=f"given up at byte {byte} after 5 attempts"):
        fetch_file([server.url()], path, **known)
    assert len(server.requests) == attempts and not path.exists()
    assert fault is not weak_etag or not any("Range" in request for request in server.requests)


# Servers that change the file, or have another one


@pytest.mark.parametrize(
    ("knows_if_range", "new", "etag"),
    [
        (True, CONTENT[::-1], '"v2"'),
        (False, CONTENT[::-1], '"v2"'),
        (False, CONTENT[::-1] + b"longer", '"v1"'),
    ],
)
def test_two_versions_of_a_file_that_changed_on_the_server_are_not_mixed(
    server, path, knows_if_range, new, etag
):
    server.knows_if_range, server.drop_after = knows_if_range, 400_000

    def change(number):
        if number == 2:
            server.content, server.etag, server.drop_after = new, etag, None

    server.before = change
    fetch_file([server.url()], path)
    assert path.read_bytes() == new


def test_a_file_of_another_length_is_refused(server, path):
    with pytest.raises(DownloadError, match="offers 1000000 bytes, expected 5"):
        fetch_file([server.url()], path, 5)
    assert files_beside(path) == []
    server.announces_length = False
    with pytest.raises(DownloadError, match="sends more than the 500000 bytes expected"):
        fetch_file([server.url()], path, 500_000)
    assert path.with_name("data.bin.part").stat().st_size <= 500_000 and not path.exists()


@pytest.mark.parametrize("announces_length", [True, False])
def test_of_a_file_of_unpublished_size_a_limit_is_taken_that_a_dataset_may_raise(
    server, path, announces_length
):
    server.announces_length = announces_length
    server.pause_s = 0.002  # so that it does not send all before anybody reads it
    with pytest.raises(DownloadError, match=r"more than the 500000 .* a greater `max_bytes`"):
        fetch_file([server.url()], path, sha256=SHA256, max_bytes=500_000)
    assert server.bytes_served < len(CONTENT) or announces_length
    assert not path.exists()
    assert fetch_file([server.url()], path, max_bytes=len(CONTENT))["sha256"] == SHA256
    path.unlink()
    fetch_file([server.url()], path, len(CONTENT), max_bytes=5)  # the size is published


@pytest.mark.parametrize("drop_after", [None, 10_000])
def test_a_server_that_sends_too_slowly_is_given_up_also_where_connections_break(
    server, path, monkeypatch, drop_after
):
    monkeypatch.setattr(fetch_dataset, "RATE_OVER_S", 0.3)
    monkeypatch.setattr(fetch_dataset, "MIN_BYTES_PER_S", 1e6)
    server.pause_s, server.drop_after = 0.1, drop_after
    with pytest.raises(DownloadError, match=r"sent \d+ bytes a second for \d+ s, less than"):
        fetch_file([server.url()], path)
    assert path.with_name("data.bin.part").stat().st_size > 0  # another start goes on there


def test_a_local_file_may_be_as_slow_as_the_machine_is(tmp_path, path, monkeypatch):
    monkeypatch.setattr(fetch_dataset, "RATE_OVER_S", 0.0)
    monkeypatch.setattr(fetch_dataset, "MIN_BYTES_PER_S", 1e15)
    there = tmp_path / "there"
    there.write_bytes(CONTENT)
    for url in (there.as_uri(), "package:sklearn.datasets.data/digits.csv.gz"):
        assert fetch_file([url], path)["url"] == url
        path.unlink()


@pytest.mark.parametrize("host", ["127.0.0.2:9", "169.254.169.254", "[::1]:9", "localhost:9"])
def test_a_redirect_to_an_address_inside_is_refused(server, path, host):
    server.moved_to = f"http://{host}/x"
    with pytest.raises(DownloadError, match="an address of this machine or of a private network"):
        fetch_file([server.url("moved")], path)
    assert len(server.requests) == 1


def test_another_file_is_kept_aside_and_both_digests_are_said(server, path):
    server.content = CONTENT[::-1]
    there = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(DownloadError) as raised:
        fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    for words in (SHA256, there, MD5, hashlib.md5(server.content).hexdigest(), "damaged"):
        assert words in str(raised.value)
    assert files_beside(path) == ["data.bin.bad"]
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


def test_a_page_is_refused_by_its_type_unless_it_is_wanted(server, path):
    server.content, server.content_type = HTML, "text/html; charset=utf-8"
    for known in ({}, {"sha256": SHA256}):
        with pytest.raises(DownloadError, match="an HTML page, not the file: a login"):
            fetch_file([server.url()], path, **known)
        assert files_beside(path) == []
    fetch_file([server.url()], path.with_name("page.html"))
    assert path.with_name("page.html").read_bytes() == HTML


@pytest.mark.parametrize("drop_after", [None, 4])  # it may dribble in
@pytest.mark.parametrize(("content", "what"), [(HTML, "HTML page"), (POINTER, "git-LFS pointer")])
def test_a_page_or_pointer_is_refused_by_its_first_bytes(server, path, content, what, drop_after):
    server.content, server.drop_after = content, drop_after
    with pytest.raises(DownloadError, match=f"an? {what}, not the file"):
        fetch_file([server.url()], path)
    assert not path.exists()


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
    reasons = ("answers 403", "no connection", "no file transports/gopher.py")
    assert all(reason in line for reason, line in zip(reasons, lines, strict=True))


@pytest.mark.parametrize(
    ("digest", "served"), [(SHA256, len(CONTENT) - 300_000), (None, len(CONTENT))]
)
def test_another_mirror_continues_where_a_digest_proves_the_result(server, path, digest, served):
    with Server() as other:
        other.etag, server.drop_after = '"of another mirror"', 300_000
        server.before = lambda number: server.statuses.extend([404] * (number > 1))
        fetch_file([server.url(), other.url()], path, sha256=digest)
        assert path.read_bytes() == CONTENT
        assert other.bytes_served == served
        other.shutdown()


# Small disks


def test_a_disk_that_is_too_small_is_said_before_anything_is_read(server, path):
    server.announced_bytes = 10 * shutil.disk_usage("/").total
    with pytest.raises(DownloadError, match=r"needs \d+ bytes in .*, where \d+ are free"):
        fetch_file([server.url()], path, max_bytes=server.announced_bytes)
    assert files_beside(path) == []


# Files that were put there by hand


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
    with pytest.raises(WrongFile, match=cause):
        check_file(tmp_path / name, size_bytes=len(CONTENT), sha256="0" * 64)
    assert (tmp_path / name).read_bytes() == content


def test_a_published_file_is_known_by_either_digest(tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    expected = {"bytes": len(CONTENT), "sha256": SHA256}
    assert check_file(tmp_path / "data.bin", sha256=SHA256) == expected
    assert check_file(tmp_path / "data.bin", md5=MD5) == expected
    # Both of another file are said if both are published.
    (tmp_path / "data.bin").write_bytes(CONTENT[::-1])
    said = f"md5 {MD5}, found bytes .* sha256 .*, md5 .*: its length is right"
    with pytest.raises(WrongFile, match=said):
        check_file(tmp_path / "data.bin", size_bytes=len(CONTENT), sha256=SHA256, md5=MD5)


# Processes that are killed, and several that want the same file


def start(url, path):
    command = (
        "import sys; from dlbench.data.fetch_dataset import fetch_file;"
        f"print(fetch_file([sys.argv[1]], sys.argv[2], sha256={SHA256!r})['url'])"
    )
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    command = [sys.executable, "-c", command, url, path]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


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
    assert files_beside(path) == ["data.bin.part", "data.bin.part.json"]
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


@pytest.mark.ci
def test_of_two_processes_one_fetches_and_the_other_waits(server, path):
    server.pause_s = 0.005
    children = [start(server.url(), path) for _ in range(2)]
    output = [child.communicate()[0].strip() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(output) == sorted([server.url(), "None"])
    assert server.bytes_served == len(CONTENT)


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


@pytest.mark.ci
def test_an_s3_object_is_fetched_and_continued(s3, path):
    def put(content):
        s3.put_object(Bucket="bucket", Key="folder/data.bin", Body=content)

    put(CONTENT * 3)
    assert_continued(["s3://bucket/folder/data.bin"], path, put)
    put(b"")
    path.unlink()
    fetch_file(["s3://bucket/folder/data.bin"], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""
    with pytest.raises(DownloadError, match=r"S3 refuses: .*404"):
        fetch_file(["s3://bucket/nothing"], path.with_name("none"))


@pytest.mark.parametrize(("scheme", "package"), [("s3", "boto3"), ("irods", "irods.exception")])
def test_a_missing_storage_package_is_named_with_its_remedy(path, monkeypatch, scheme, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DownloadError, match="uv sync --extra storage"):
        fetch_file([f"{scheme}://bucket/data.bin"], path)


def test_irods_urls_name_a_path_in_a_zone_and_no_host():
    from dlbench.data.transports.irods import object_path

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
