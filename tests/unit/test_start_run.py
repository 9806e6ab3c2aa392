"""start_run.py and dlbench.supervisor, with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench import eventlog

PROGRAM = Path(__file__).parents[2] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
SLEEPS = "import time; time.sleep(60)"


def command(folder, python, *flags):
    return [
        sys.executable, PROGRAM, "--log", folder / "train.jsonl", "--messages", folder / "messages",
        f"--spec={json.dumps(SPEC)}", "--position=1/2", *flags, "--", sys.executable, "-c", python,
    ]  # fmt: skip


def start(folder, python, *flags):
    return subprocess.run(command(folder, python, *flags), capture_output=True, text=True)


def record(folder):
    return json.loads((folder / "run.json").read_text())


def outcome(folder):
    return record(folder)["status"], record(folder)["message"]


def test_a_trainer_that_writes_its_end_is_believed(tmp_path):
    log = tmp_path / "train.jsonl"
    end = '{"event": "run_end", "status": "oom", "message": "full", "t_utc": "2026"}'
    trainer = f"open({str(log)!r}, 'a').write({end!r} + chr(10)); exit(1)"
    finished = start(tmp_path, trainer, '--made-from={"code": "abc"}')
    assert finished.returncode == 0, finished.stderr
    assert outcome(tmp_path) == ("oom", "full")
    assert record(tmp_path)["made_from"] == {"code": "abc"}
    assert next(eventlog.read(log))["command"][0] == sys.executable


def test_a_crash_is_recorded_with_its_last_words_at_the_last_attempt(tmp_path):
    crash = "import sys; sys.exit('what a pity')"
    finished = start(tmp_path, crash, "--attempt=1", "--attempts=2")
    assert finished.returncode == 1
    assert not (tmp_path / "run.json").exists()
    assert not (tmp_path / "train.jsonl").exists()
    finished = start(tmp_path, crash, "--attempt=2", "--attempts=2")
    assert finished.returncode == 0
    assert outcome(tmp_path) == (
        "failed",
        "the trainer ended without a word (exit code 1): what a pity",
    )
    assert (tmp_path / "train.attempt1.jsonl").is_file()


def test_a_killed_trainer_is_said_to_be_killed(tmp_path):
    assert start(tmp_path, "import os; os.kill(os.getpid(), 9)").returncode == 0
    assert outcome(tmp_path)[1].startswith("the trainer ended without a word (killed by SIGKILL)")


def test_the_time_limit_ends_the_trainer_with_all_its_processes(tmp_path):
    child = tmp_path / "child"
    trainer = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]);"
        f"open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    assert start(tmp_path, trainer, "--time-limit-s=1").returncode == 0
    assert outcome(tmp_path) == ("timeout", "stopped at time_limit_s")
    assert not alive(int(child.read_text()))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_is_no_result(tmp_path, number):
    supervisor = subprocess.Popen(command(tmp_path, SLEEPS), stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "messages")
    supervisor.send_signal(number)
    _, messages = supervisor.communicate(timeout=20)
    assert supervisor.returncode != 0
    assert f"stopped by signal {number.name}" in messages
    assert not (tmp_path / "run.json").exists()


def test_the_trainer_ends_when_the_workflow_is_gone(tmp_path):
    pid = tmp_path / "pid"
    trainer = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); {SLEEPS}"
    workflow = subprocess.Popen(
        ["sh", "-c", '"$@"; true', "sh", *map(str, command(tmp_path, trainer))],
        stderr=subprocess.DEVNULL,
    )
    wait_for(pid)
    workflow.kill()
    workflow.wait()
    deadline = time.monotonic() + 20
    while alive(int(pid.read_text() or 0)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (tmp_path / "run.json").exists()


def wait_for(path):
    deadline = time.monotonic() + 20
    while not (path.is_file() and (path.name != "pid" or path.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_skipped_run_has_a_record_and_starts_nothing(tmp_path):
    marker = tmp_path / "started"
    finished = start(tmp_path, f"open({str(marker)!r}, 'w')", "--skip=no such device")
    assert finished.returncode == 0
    assert outcome(tmp_path) == ("skipped", "no such device")
    assert "lenet5 synthetic batch 8" in finished.stderr
    assert not marker.exists()


def test_progress_names_the_run_and_how_it_ended(tmp_path):
    finished = start(tmp_path, "import sys; sys.exit(3)")
    first, last = finished.stderr.splitlines()
    assert first.startswith("run 1/2  lenet5 synthetic batch 8, single on 1 device, repeat 1: sta")
    assert "failed (the trainer ended without a word (exit code 3): no message)" in last


def test_nothing_is_left_of_an_earlier_attempt(tmp_path):
    for rank in range(2):
        eventlog.EventLog(eventlog.rank_path(tmp_path / "train.jsonl", rank)).close()
    os.truncate(tmp_path / "train.jsonl", 0)
    start(tmp_path, "pass")
    assert [path.name for path in eventlog.rank_paths(tmp_path / "train.jsonl")] == ["train.jsonl"]
