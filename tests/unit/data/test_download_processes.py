"""download: processes that are killed, and several that want the same file."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench.data import download
from dlbench.data.download import fetch_file
from support.machines.downloads import CONTENT, SHA256, files_beside, interrupt

LIBRARY = Path(download.__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "source" / "data.bin"


def start(url, path):
    command = (
        "import sys; from dlbench.data.download import fetch_file;"
        f"print(fetch_file([sys.argv[1]], sys.argv[2], sha256={SHA256!r})['url'])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", command, url, path],
        env=os.environ | {"PYTHONPATH": str(LIBRARY)},
        stdout=subprocess.PIPE,
        text=True,
    )


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
