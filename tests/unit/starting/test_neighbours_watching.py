"""neighbours: real neighbours beside real supervised runs.

Other tests may run on this machine meanwhile: what must be found is compared with what it used
itself, and what is ours with what the kernel says of it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlbench.log import event_log
from dlbench.records import disturbances
from dlbench.starting import neighbours, supervisor
from support.trainers.watched_runs import END, PYTHON, WRITES

pytestmark = pytest.mark.ci
PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 1}
TICK_S = neighbours.TICK_S
SPINS = "import time\nwhile True: pass"
SPINS_LITTLE = """
import time
while True:
    began = time.process_time()
    while time.process_time() - began < 0.02: pass
    time.sleep(0.18)
"""
FILLS_MEMORY = "while True: bytearray(b'x' * 2**24)"
FILLS_DISK = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    os.pwrite(file, bytes(2**20), 0)
    os.fsync(file)
"""
READS_DISK = """
import mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
block = mmap.mmap(-1, 1 << 16)
while os.preadv(file, [block], 0):
    print("x", flush=True)
    time.sleep(0.02)
"""
SLEEPS = "import time\nprint('x', flush=True)\ntime.sleep(60)"
OWN_READ = "own_disk_read_bytes_per_s"


@pytest.fixture
def disk():
    """A folder on a disk, where other tests' folders may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def used_s(pid):
    return neighbours.read_process(Path("/proc"), pid).own_ticks * TICK_S


def start_run(folder, seconds, *flags):
    """The command of a supervised run that takes so long and uses next to nothing."""
    python = (
        f"write('run_start', t_utc='{event_log.utc_now()}', spec={SPEC!r}, total_steps=1,"
        " devices=['CPU:0'], host='here')\n"
        f"time.sleep({seconds})\n"
        "write('step', step=1, t_s=1.0, step_time_s=1.0, loss=2.0, learning_rate=0.1, epoch=1,"
        f" warm_up=False)\n{END}"
    )
    log = folder / "train.jsonl"
    return [
        sys.executable,
        PROGRAM,
        "--log",
        log,
        "--messages",
        folder / "messages",
        f"--spec={json.dumps(SPEC)}",
        *flags,
        "--",
        *PYTHON,
        WRITES.format(log=str(log)) + python,
    ]


def test_neighbours_of_every_kind_are_found_and_a_run_is_tried_again_for_them(tmp_path, disk):
    folder = tmp_path / "a folder"
    folder.mkdir()
    programs = (SPINS_LITTLE, FILLS_MEMORY, FILLS_DISK)
    others = [subprocess.Popen([*PYTHON, p, disk / "written"]) for p in programs]
    try:
        before = [used_s(other.pid) for other in others]
        line = start_run(folder, 1.5, "--others-share=0.05", "--attempts=2", "--attempt=1")
        first = subprocess.run(line, capture_output=True, text=True)
        after = [used_s(other.pid) for other in others]
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert first.returncode == 1, first.stderr
    assert "others used " in first.stderr
    assert "; it is tried again, unless others_share is null" in first.stderr
    log = folder / "train.attempt1.jsonl"
    *_, end, reported = event_log.read(log)
    assert (end["event"], reported["event"]) == ("run_end", "neighbours")
    # They also worked while Python started and ended, which takes a part of a second.
    share = reported["span_s"] / (reported["span_s"] + 1.0)
    others_s = reported["others_cpu_cores"] * reported["span_s"]
    assert others_s > share * sum(b - a for a, b in zip(before, after, strict=True)) / 2
    assert reported["others_disk_bytes_per_s"] is None or reported["others_disk_bytes_per_s"] > 0
    last = subprocess.run(
        [word if word != "--attempt=1" else "--attempt=2" for word in line],
        capture_output=True,
        text=True,
    )
    assert last.returncode == 0, last.stderr


@pytest.mark.parametrize("run", [READS_DISK, SLEEPS], ids=["reads", "in memory"])
def test_a_disk_hog_is_one_beside_a_run_that_reads_from_disks_only(tmp_path, disk, run):
    (disk / "data").write_bytes(bytes(1 << 16))
    hog = subprocess.Popen([*PYTHON, FILLS_DISK, disk / "written"])
    ours = subprocess.Popen([*PYTHON, run, disk / "data"], stdout=subprocess.PIPE)
    try:
        if not ours.stdout.readline():
            pytest.skip("no direct reading where temporary files are")
        watch = neighbours.Watch(share=0.05, pid=ours.pid)
        time.sleep(1)
        reported = watch.summarise(tmp_path / "absent.jsonl")
    finally:
        for process in (hog, ours):
            process.kill()
            process.communicate()
    if reported["others_disk_bytes_per_s"] is None or (
        run is READS_DISK and not reported[OWN_READ]
    ):
        pytest.skip("temporary files are on no disk that is counted")
    # How busy the disk is, is another machine's; how much others moved, is real.
    description = disturbances.describe_disturbance(
        reported | {"io_pressure_percent": 40, "others_cpu_cores": None}
    )
    assert reported["others_disk_bytes_per_s"] > reported["own_disk_bytes_per_s"]
    assert ("to or from disks" in description) == (run is READS_DISK), reported


def test_a_run_whose_last_attempt_is_disturbed_is_unstable_with_the_words(tmp_path):
    other = subprocess.Popen([*PYTHON, SPINS])
    try:
        line = start_run(tmp_path, 1.2, "--others-share=0.05")
        finished = subprocess.run(line, capture_output=True, text=True)
    finally:
        other.kill()
        other.wait()
    assert finished.returncode == 0, finished.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "unstable", record["message"]
    assert record["message"].startswith(record["summary"]["disturbed"])
    assert record["message"].startswith(f"others used {record['summary']['others_cpu_cores']:.2f}")
    assert event_log.last_run_end(tmp_path / "train.jsonl")["status"] == "ok"


def test_threads_children_and_what_they_started_are_the_runs_own():
    """Also those that ended meanwhile; the process beside them is not."""
    spins = "import time\nwhile time.process_time() < 0.3: pass"
    starts = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-S', '-c', {spins!r}])"
    )
    beside = subprocess.Popen([*PYTHON, SPINS])
    try:
        own = neighbours.ProcessTree(Path("/proc"), os.getpid(), {})
        before = own.sample()[0]
        # Another session, as launchers make one; it stays and is looked at while it is there.
        child = subprocess.Popen([*PYTHON, SPINS], start_new_session=True)
        subprocess.run([*PYTHON, starts], check=True)
        thread = threading.Thread(target=lambda: sum(range(3_000_000)))
        thread.start()
        thread.join()
        own.sample()
        least = used_s(child.pid) + 0.3
        child.kill()
        child.wait()
        at_end = own.sample()[0] - before
        assert beside.pid in own and child.pid not in own  # it is our child, too
    finally:
        beside.kill()
        beside.wait()
    assert at_end > least


@pytest.mark.quick
def test_a_neighbour_is_not_of_the_tree_though_it_is_of_the_same_user():
    sleeper = subprocess.Popen([*PYTHON, "import time; time.sleep(60)"])
    beside = subprocess.Popen([*PYTHON, SPINS])
    try:
        own = neighbours.ProcessTree(Path("/proc"), sleeper.pid, {})
        first, began = own.sample()[0], used_s(beside.pid)
        while used_s(beside.pid) - began < 0.3:
            time.sleep(0.02)
        assert own.sample()[0] - first < 0.1
        assert sleeper.pid in own and beside.pid not in own
    finally:
        for process in (sleeper, beside):
            process.kill()
            process.wait()


# Waiting for quiet.


@pytest.fixture
def busy():
    """A busy loop on every CPU, so that no other test leaves this one a quiet moment."""
    others = [subprocess.Popen([*PYTHON, SPINS]) for _ in os.sched_getaffinity(0)]
    yield others
    for other in others:
        other.kill()
        other.wait()


def test_a_run_waits_for_others_names_them_and_starts_when_its_time_is_over(tmp_path, busy):
    flags = ("--others-share=0.05", "--wait-for-quiet-s=2.5", "--time-limit-s=2")
    line = start_run(tmp_path, 0.1, *flags)
    finished = subprocess.run(line, capture_output=True, text=True)
    first, second, *_ = finished.stderr.splitlines()
    assert "waits for quiet: others use " in first and f" of {len(busy)} cores (" in first
    assert re.search(r" cores \(\S.* \d+\)$", first), first  # whoever is the busiest
    assert "starts beside others, which use " in second
    record = json.loads((tmp_path / "run.json").read_text())
    reported = list(event_log.read(tmp_path / "train.jsonl"))[-1]
    assert record["message"] != "stopped at time_limit_s, 2 s"  # waiting is not training
    assert reported["waited_for_quiet_s"] > 2.4


def test_where_one_run_waited_in_vain_the_next_of_the_session_only_looks(tmp_path, busy):
    session = {"id": "s", "started_at": event_log.utc_now(), "host": "here"}
    flags = ("--others-share=0.05", "--wait-for-quiet-s=1.5", f"--session={json.dumps(session)}")
    (tmp_path / "results/sessions").mkdir(parents=True)
    reported, waited_s = [], []
    for name in "ab":
        line = start_run(tmp_path / name, 0.1, *flags)
        (tmp_path / name).mkdir()
        finished = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        reported.append("waits for quiet" in finished.stderr)
        (event,) = [
            e for e in event_log.read(tmp_path / name / "train.jsonl") if e["event"] == "neighbours"
        ]
        waited_s.append(event["waited_for_quiet_s"])
    assert reported == [True, False] and waited_s[1] < waited_s[0]
    (path,) = (tmp_path / "results/sessions").iterdir()
    run = SimpleNamespace(wait_for_quiet_s=60.0, busy_marker=path)
    asked = []
    watch = SimpleNamespace(wait_for_quiet=lambda most_s, *_: asked.append(most_s) or True)
    for _ in range(2):
        supervisor._wait_for_quiet(run, watch, lambda: "")
    assert asked == [neighbours.LOOK_S, 60.0]  # it was quiet again


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGUSR1)),
    ],
)
def test_a_signal_ends_the_waiting_at_once_and_leaves_nothing(tmp_path, busy, number):
    line = start_run(tmp_path, 0, "--others-share=0.05", "--wait-for-quiet-s=600")
    waiting = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert "waits for quiet" in waiting.stderr.readline()
    waiting.send_signal(number)
    _, reported = waiting.communicate(timeout=20)
    assert waiting.returncode == 1
    assert (
        f"interrupted (stopped by signal {number.name}); the next start trains it anew" in reported
    )
    assert not list(tmp_path.iterdir())


def test_a_run_that_never_judges_never_waits(tmp_path, busy):
    line = start_run(tmp_path, 0, "--wait-for-quiet-s=600")
    finished = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0 and "quiet" not in finished.stderr


@pytest.mark.quick
def test_what_passed_before_is_the_first_look_at_others():
    watch = neighbours.Watch({}, share=1e6)
    time.sleep(neighbours.FIRST_LOOK_S)
    watch.wait_for_quiet(60, lambda: False, pytest.fail)
    assert watch.waited_s < neighbours.FIRST_LOOK_S / 2
