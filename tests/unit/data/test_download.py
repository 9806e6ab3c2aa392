"""download: a file is complete and verified, or missing, whatever the server does."""

import hashlib
import re
import shutil

import pytest

from dlbench.data import download
from dlbench.data.download import DownloadError, fetch_file
from support.machines.downloads import CONTENT, MD5, SHA256, Server, files_beside, interrupt

pytestmark = pytest.mark.usefixtures("short_waits")

HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000000\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "source" / "data.bin"


# What arrives


def test_a_file_arrives_whole_and_nothing_else_is_left(server, path):
    found = fetch_file([server.url()], path, len(CONTENT), SHA256, MD5)
    assert found == {"bytes": len(CONTENT), "sha256": SHA256, "url": server.url()}
    assert path.read_bytes() == CONTENT
    assert files_beside(path) == ["data.bin"]


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
    server.announces_length = False
    assert fetch_file([server.url()], path)["bytes"] == len(CONTENT)


def test_an_empty_file_arrives_where_that_is_what_is_published(server, path):
    server.content = b""
    fetch_file([server.url()], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""


def test_progress_is_shown_with_rate_and_time_left(server, path, monkeypatch):
    monkeypatch.setattr(download, "PROGRESS_EVERY_S", 0.05)
    server.pause_s = 0.005
    lines = []
    fetch_file([server.url()], path, len(CONTENT), report=lines.append)
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
    server.content, server.announced_bytes = CONTENT[:-1], len(CONTENT)
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
    assert files_beside(path) == []


def test_a_server_that_sends_more_than_there_should_be_is_stopped(server, path):
    server.announces_length = False
    with pytest.raises(DownloadError, match="sends more than the 500000 bytes expected"):
        fetch_file([server.url()], path, 500_000)
    assert path.with_name("data.bin.part").stat().st_size <= 500_000


def test_a_body_longer_than_announced_is_refused(server, path):
    server.announced_bytes = len(CONTENT) - 7
    with pytest.raises(DownloadError, match="sends more than the 999993 bytes that it announces"):
        fetch_file([server.url()], path)
    assert not path.exists()


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
    monkeypatch.setattr(download, "RATE_OVER_S", 0.3)
    monkeypatch.setattr(download, "MIN_BYTES_PER_S", 1e6)
    server.pause_s, server.drop_after = 0.1, drop_after
    with pytest.raises(DownloadError, match=r"sent \d+ bytes a second for \d+ s, less than"):
        fetch_file([server.url()], path)
    assert path.with_name("data.bin.part").stat().st_size > 0  # another start goes on there


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:9/x", "http://169.254.169.254/latest", "http://[::1]:9/x",
               "http://10.1.2.3/x", "http://localhost:9/x"],
)  # fmt: skip
def test_a_redirect_to_an_address_inside_is_refused(server, path, target):
    server.moved_to = target
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


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256}])
def test_a_page_is_refused_by_its_type(server, path, known):
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="an HTML page, not the file: a login"):
        fetch_file([server.url()], path, **known)
    assert files_beside(path) == []


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
    server.announced_bytes = 10 * shutil.disk_usage("/").total
    with pytest.raises(DownloadError, match=r"needs \d+ bytes in .*, where \d+ are free"):
        fetch_file([server.url()], path, max_bytes=server.announced_bytes)
    assert files_beside(path) == []
