"""neighbours: what others used beside a run, from a kernel's files, and real ones."""

import dataclasses
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
from dlbench.machine import hardware
from dlbench.records.run_status import describe_disturbance
from dlbench.starting import neighbours, supervisor
from dlbench.starting.neighbours import Watch
from support.machines.kernel_files import Kernel
from support.runs.made_runs import date
from support.trainers.watched_runs import END, PYTHON, WRITES

US, CHILD = 10, 11  # processes
MARK = {"DLBENCH_SUPERVISOR": "boot 10 1 /a log"}


@pytest.fixture
def kernel(tmp_path):
    made = Kernel(tmp_path)
    made.process(1, 0)
    made.process(US, 1)
    return made


def watch(kernel, cpus=(0, 1, 2, 3), share=None, device_cores=None):
    made = Watch(pid=US, root=kernel.root, cpus=cpus)
    made.set_run(MARK, share, device_cores)
    return made


def values(watch, kernel, elapsed_s, log=None):
    """What is said after so many seconds, however long this took."""
    kernel.elapsed_s += elapsed_s
    kernel.write_totals()
    read, at_s = watch._read, watch._readings[0].at_s + elapsed_s
    watch._read = lambda: dataclasses.replace(read(), at_s=at_s)
    return watch.summarise(log or kernel.root / "absent.jsonl")


def test_others_are_what_was_busy_less_what_the_run_and_its_children_used(kernel):
    found = watch(kernel)
    kernel.process(US, 1, own_s=2.0)
    kernel.process(CHILD, US, own_s=3.0)
    kernel.busy_s = [4.0, 4.0, 0.0, 0.0]
    reported = values(found, kernel, 10)
    assert reported["others_cpu_cores"] == pytest.approx(0.3)
    assert (reported["cores"], reported["node_cores"]) == (4, 4)
    assert "others_cpu_cores" not in reported["unknown"]


def test_only_the_cpus_that_a_run_may_use_count_for_it_and_all_for_the_node(kernel):
    found = watch(kernel, cpus=(2, 3))
    kernel.busy_s = [9.0, 9.0, 1.0, 0.0]
    reported = values(found, kernel, 10)
    assert reported["others_cpu_cores"] == pytest.approx(0.1)
    assert reported["node_others_cpu_cores"] == pytest.approx(1.9)
    assert (reported["cores"], reported["node_cores"]) == (2, 4)


def test_what_a_hypervisor_takes_is_others(kernel):
    found = watch(kernel)
    kernel.steal_s = [2.0, 0.0, 0.0, 0.0]
    kernel.process(US, 1, own_s=2.0)  # where the kernel counts stolen time as that of processes
    reported = values(found, kernel, 10)
    assert reported["steal_cpu_cores"] == pytest.approx(0.2)
    assert reported["others_cpu_cores"] == pytest.approx(0.2)


def test_the_time_of_a_process_that_ended_is_not_lost_and_not_counted_twice(kernel):
    kernel.process(CHILD, US, own_s=5.0)
    kernel.process(12, US, own_s=1.0)
    own = neighbours.ProcessTree(kernel.root / "proc", US, {})
    assert own.sample()[0] == pytest.approx(6)
    kernel.end(CHILD)
    kernel.process(US, 1, children_s=5.5)  # which waited for it
    assert own.sample()[0] == pytest.approx(6.5)
    kernel.end(12)  # for which nobody of ours waited
    assert own.sample()[0] == pytest.approx(6.5)
    kernel.process(US, 1, own_s=1.0, children_s=5.5)
    assert own.sample()[0] == pytest.approx(7.5)


def test_processes_that_begin_are_ours_by_their_parent_or_by_their_mark(kernel):
    own = neighbours.ProcessTree(kernel.root / "proc", US, MARK)
    own.sample()
    kernel.process(20, 1, own_s=1.0)  # somebody else's
    kernel.process(21, 1, own_s=2.0)  # ours, of which the program does not run yet
    kernel.process(22, US, own_s=4.0)
    assert own.sample()[0] == pytest.approx(4)
    kernel.process(21, 1, own_s=2.0, environ="A=b\0DLBENCH_SUPERVISOR=boot 10 1 /a log\0")
    kernel.process(24, 21, own_s=8.0)
    assert own.sample()[0] == pytest.approx(14)
    assert [pid in own for pid in (20, 21, 22, 24)] == [False, True, True, True]


def test_other_runs_of_this_user_are_others(kernel):
    own = neighbours.ProcessTree(kernel.root / "proc", US, MARK)
    kernel.process(20, 1, own_s=1.0, environ="DLBENCH_SUPERVISOR=boot 99 1 /a log\0")
    own.sample()
    assert own.sample()[0] == 0


def test_a_number_that_is_used_again_is_another_process(kernel):
    kernel.process(CHILD, US, own_s=5.0)
    own = neighbours.ProcessTree(kernel.root / "proc", US, {})
    own.sample()
    path = kernel.root / f"proc/{CHILD}/stat"
    path.write_text(path.read_text().replace(str(1000 + CHILD), "7777").replace(" 500 ", " 9 "))
    assert own.sample()[0] == pytest.approx(5)


def test_pressure_disks_clocks_and_throttling_are_read_where_they_are(kernel):
    disk = "8 0 sda 0 0 {} 0 0 0 {} 0 0 0 0\n"
    kernel.write("sys/block/sda/dev", "8:0")
    kernel.write("sys/block/dm-0/slaves/sda/dev", "8:0")
    kernel.write("proc/diskstats", disk.format(0, 0))
    for name in neighbours.RESOURCES:
        kernel.write(f"proc/pressure/{name}", "some avg10=0.00 avg60=0.00 total=0\n")
    for cpu in range(4):
        place = f"sys/devices/system/cpu/cpu{cpu}"
        kernel.write(f"{place}/cpufreq/scaling_cur_freq", f"{2000000 + cpu}\n")
        kernel.write(f"{place}/thermal_throttle/core_throttle_count", "5\n")
    found = watch(kernel)
    kernel.write("proc/diskstats", disk.format(2000, 8000) + "253 0 dm-0 0 0 9 0 0 0 9 0 0 0 0\n")
    kernel.write("proc/pressure/io", "some avg10=1.00 avg60=0.00 total=2500000\nfull total=1\n")
    kernel.write("sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "9\n")
    kernel.process(US, 1, own_s=0.1)
    kernel.write(
        "proc/10/io", "read_bytes: 30000\nwrite_bytes: 90000\ncancelled_write_bytes: 20000\n"
    )
    reported = values(found, kernel, 10)
    assert reported["others_disk_bytes_per_s"] == pytest.approx(502_000)
    assert reported["own_disk_bytes_per_s"] == pytest.approx(10_000)
    assert reported["own_disk_read_bytes_per_s"] == pytest.approx(3_000)
    assert reported["io_pressure_percent"] == pytest.approx(25)
    assert reported["memory_pressure_percent"] == 0
    assert reported["cpu_clock_mhz"] == pytest.approx(2000)
    assert reported["cpu_throttle_count"] == 4
    assert reported["unknown"].keys() == {"measured", "quota_throttled_s"}


def test_what_a_quota_stops_while_the_run_is_measured_disturbs_it(kernel):
    group = "sys/fs/cgroup/job"
    kernel.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    kernel.write("proc/self/cgroup", "0::/job\n")
    kernel.write(f"{group}/cpu.max", "100000 100000\n")
    counted = "usage_usec 9\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
    kernel.write(f"{group}/cpu.stat", counted.format(9, 7, 900_000))
    found = watch(kernel, share=0.05, device_cores=2)
    kernel.write(f"{group}/cpu.stat", counted.format(109, 57, 3_400_000))
    reported = values(found, kernel, 10)
    assert (reported["quota_throttled_percent"], reported["quota_throttled_s"]) == (50, 2.5)
    assert describe_disturbance(reported).startswith(
        "a quota of CPU time stopped the run's control group"
    )
    assert not describe_disturbance(values(watch(kernel, share=0.05, device_cores=2), kernel, 10))


def test_what_a_kernel_does_not_tell_is_null_with_the_reason(kernel):
    found = watch(kernel)
    reported = values(found, kernel, 10)
    names = ("others_disk_bytes_per_s", "cpu_clock_mhz", "cpu_throttle_count")
    for name in ("io_pressure_percent", *names):
        assert reported[name] is None and "No such file or directory" in reported["unknown"][name]


@pytest.mark.parametrize("gone", ["stat", "10/stat", "loadavg"])
def test_files_that_vanish_end_nothing(kernel, gone, monkeypatch):
    monkeypatch.setattr(neighbours, "LOOK_S", 0.1)
    found = watch(kernel, share=0.05)
    found.read_if_due()
    (kernel.root / "proc" / gone).unlink()
    found.wait_for_quiet(0.1, lambda: False, print)
    reported = found.summarise(kernel.root / "absent.jsonl")
    assert (reported["others_cpu_cores"] is None) == (gone == "stat")
    assert not describe_disturbance(reported)
    json.dumps(reported)


def test_a_stat_that_a_container_is_given_says_nothing_of_others(kernel):
    kernel.write("proc/self/mountinfo", "22 27 0:21 / /proc/stat rw - fuse.lxcfs lxcfs rw\n")
    reported = values(watch(kernel), kernel, 10)
    assert reported["others_cpu_cores"] is reported["node_others_cpu_cores"] is None
    assert reported["unknown"]["others_cpu_cores"] == neighbours.LXCFS


def test_under_a_quota_others_may_use_what_is_left_of_the_node(kernel):
    kernel.write("proc/self/cgroup", "0::/job\n")
    kernel.write("proc/self/mountinfo", "30 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    kernel.write("sys/fs/cgroup/job/cpu.max", "200000 100000\n")
    kernel.busy_s = [5.0, 0.0, 0.0, 0.0]
    reported = values(watch(kernel), kernel, 10)
    assert reported["others_cpu_cores"] is None
    assert reported["unknown"]["others_cpu_cores"].startswith("a quota of 2 of 4 cores")
    assert reported["node_others_cpu_cores"] is not None


def write(path, *events):
    path.write_text("".join(json.dumps({"event": k, **v}) + "\n" for k, v in events))
    return path


def steps(first, last):
    return [
        ("step", {"step": n, "t_s": float(n), "step_time_s": 1.0, "warm_up": n < first})
        for n in range(1, last + 1)
    ]


def test_the_readings_next_to_the_measured_steps_count(kernel, tmp_path):
    log = write(
        tmp_path / "train.jsonl", ("run_start", {"t_utc": date(100)}), *steps(first=3, last=8)
    )
    found = watch(kernel)
    one = found._readings[0]
    found._readings = [
        dataclasses.replace(one, at_s=at + 0.5, utc=date(100 + at + 0.5)) for at in range(12)
    ]
    first, last = found._around(neighbours.read_parts(log))
    assert (first.utc, last.utc) == (date(101.5), date(108.5))
    # A clock that was set meanwhile, and a log without steps.
    found._readings = [dataclasses.replace(r, utc=date(999)) for r in found._readings]
    assert found._around(neighbours.read_parts(log)) == (found._readings[0], found._readings[-1])
    assert found._around([]) == (found._readings[0], found._readings[-1])


def test_steps_without_times_of_their_own_are_a_reason_and_no_exception(kernel, tmp_path):
    untimed = [
        (kind, {name: value for name, value in fields.items() if name != "t_s"})
        for kind, fields in steps(first=3, last=8)
    ]
    log = write(tmp_path / "train.jsonl", ("run_start", {"t_utc": date(100)}), *untimed)
    write(tmp_path / "train.rank1.jsonl", ("run_start", {"t_utc": date(100)}), *steps(3, 8))
    reported = values(watch(kernel), kernel, 10, log)
    assert reported["unknown"]["measured"] == neighbours.UNTIMED
    assert reported["others_cpu_cores"] is not None


def test_of_a_resumed_log_what_came_after_counts(tmp_path):
    resume = ("resume", {"t_utc": date(900), "t_s": 4.0, "step": 4})
    all_steps = steps(first=3, last=8)
    events = [("run_start", {"t_utc": date(100)}), *all_steps[:4], resume, *all_steps[4:]]
    log = write(tmp_path / "train.jsonl", *events)
    (part,) = neighbours.read_parts(log)
    assert (part.started, part.finished) == (date(900), date(904))


def node(host, node_percent, own_percent, threads=8, **limits):
    """Log of a rank on a node, with samples in its measured steps and one before."""
    samples = [
        ("sample", {"t_s": t_s, "node_cpu_percent": node, "cpu_percent": own_percent})
        for t_s, node in ((0.5, 99.0), (3.5, node_percent), (6.5, node_percent))
    ]
    machine = {"hardware": {"cpu": {"threads": threads}}, "limits": limits}
    return [
        ("run_start", {"t_utc": date(0), "host": host}),
        ("machine", machine),
        *samples,
        *steps(first=3, last=8),
        ("run_end", {"status": "ok", "cpu_time_s": 0.0}),
    ]


def test_of_several_nodes_the_one_counts_whose_others_used_most(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "host", lambda: "n1")
    log = write(tmp_path / "train.jsonl", *node("n1", 10.0, 80.0))
    write(tmp_path / "train.rank1.jsonl", *node("n2", 40.0, 100.0))
    write(tmp_path / "train.rank2.jsonl", *node("n2", None, 100.0))
    reported = values(watch(kernel), kernel, 10, log)
    assert (reported["host"], reported["cores"]) == ("n2", 8)
    assert reported["others_cpu_cores"] == pytest.approx(0.4 * 8 - 2)
    write(tmp_path / "train.rank1.jsonl", *node("n2", 40.0, 100.0, group_cpus=4))
    reported = values(watch(kernel), kernel, 10, log)
    assert reported["others_cpu_cores"] is None
    assert reported["unknown"]["others_cpu_cores"].startswith(
        "n2: its ranks may use a part of it only"
    )


def test_a_node_that_another_program_calls_otherwise_is_still_this_one(kernel, tmp_path):
    log = write(tmp_path / "train.jsonl", ("run_start", {"t_utc": date(0), "host": "elsewhere"}))
    assert values(watch(kernel), kernel, 10, log)["others_cpu_cores"] is not None


def test_where_the_run_itself_is_not_seen_nothing_is_said_of_others(kernel, tmp_path):
    end = {"status": "ok", "cpu_time_s": 30.0}
    log = write(tmp_path / "train.jsonl", ("run_start", {"t_utc": date(0)}), ("run_end", end))
    found = watch(kernel, share=0.05)
    kernel.busy_s = [3.0] * 4
    reported = values(found, kernel, 10, log)
    assert reported["others_cpu_cores"] is None and not describe_disturbance(reported)
    assert "used 30.0 s of CPU, of which 0.0 s are seen" in reported["unknown"]["others_cpu_cores"]


def test_other_processes_on_a_gpu_of_its_are_counted_where_they_can_be(kernel, tmp_path):
    def log(*counts):
        samples = [
            ("sample", {"t_s": 4.0 + n, "gpus": [{"gpu": 0, "other_gpu_processes": count}]})
            for n, count in enumerate(counts)
        ]
        start = ("run_start", {"t_utc": date(0)})
        return write(tmp_path / "train.jsonl", start, *samples, *steps(first=3, last=8))

    reported = values(watch(kernel, share=0.05), kernel, 10, log(0, 2, None))
    assert reported["other_gpu_processes"] == 2
    assert describe_disturbance(reported) == "others had 2 processes on a GPU of the run"
    reported = values(watch(kernel, share=0.05), kernel, 10, log(None, None))
    assert reported["other_gpu_processes"] is None
    assert reported["unknown"]["other_gpu_processes"] == neighbours.GPU_PROCESSES_HIDDEN


@pytest.fixture
def waiting(kernel, monkeypatch):
    """A function that waits beside a process that uses so many cores until some second.

    Returns what was said, and seconds waited.
    """
    now, reported = [0.0], []

    def sleep(use, seconds):
        now[0] += seconds
        kernel.elapsed_s += seconds
        kernel.busy_s[0] += use(now[0]) * seconds
        kernel.process(99, 1, own_s=kernel.busy_s[0], name="hog")

    def wait(use, most_s=60):
        clock = {"monotonic": lambda: now[0], "sleep": lambda seconds: sleep(use, seconds)}
        monkeypatch.setattr(neighbours, "time", SimpleNamespace(**clock))
        kernel.process(99, 1, name="hog")
        watching = watch(kernel, share=0.05, device_cores=1)
        watching.wait_for_quiet(most_s, lambda: False, reported.append)
        return reported, watching.waited_s

    return wait


WAITS = "waits for quiet: others use 1.00 of 4 cores (hog 99)"
STARTS = "starts beside others, which use 1.00 of 4 cores"
FIRST_S, LOOK_S = neighbours.FIRST_LOOK_S, neighbours.LOOK_S


@pytest.mark.parametrize(
    ("use", "most_s", "said", "least_s", "longest_s"),
    [
        (lambda now_s: 0.0, 60, [], FIRST_S, FIRST_S),
        # A first look that is not sure is followed by a longer one.
        (lambda now_s: 0.2 if now_s < 0.25 else 0.0, 60, [], FIRST_S + LOOK_S, FIRST_S + LOOK_S),
        (lambda now_s: 1.0 if now_s < 5 else 0.0, 60, [WAITS, "it is quiet after 6 s"], 5, 7),
        (lambda now_s: 1.0, 20, [WAITS, STARTS], 20, 21.5),
        (lambda now_s: 1.0, LOOK_S, [STARTS], LOOK_S, 1.5),  # with time for one look
    ],
    ids=["quiet", "not sure", "others end", "its time is over", "one look"],
)
def test_a_run_starts_once_others_are_quiet_or_its_time_is_over(
    waiting, use, most_s, said, least_s, longest_s
):
    reported, waited_s = waiting(use, most_s)
    assert reported == said and least_s - 1e-6 <= waited_s <= longest_s + 1e-6


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
    files = ["--log", log, "--messages", folder / "messages", f"--spec={json.dumps(SPEC)}"]
    trainer = WRITES.format(log=str(log)) + python
    return [sys.executable, PROGRAM, *files, *flags, "--", *PYTHON, trainer]


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
    line[line.index("--attempt=1")] = "--attempt=2"
    last = subprocess.run(line, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr


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


@pytest.mark.quick
def test_what_passed_before_is_the_first_look_at_others():
    watch = neighbours.Watch()
    watch.set_run({}, 1e6, None)
    time.sleep(neighbours.FIRST_LOOK_S)
    watch.wait_for_quiet(60, lambda: False, pytest.fail)
    assert watch.waited_s < neighbours.FIRST_LOOK_S / 2


def test_the_outermost_snakemake_is_at_the_top(kernel):
    kernel.process(20, US)
    kernel.process(21, 20)
    kernel.process(22, 21)
    kernel.write("proc/10/cmdline", "/x/python3.12\0/x/bin/snakemake\0-n\0")
    kernel.write("proc/20/cmdline", "sh\0-c\0snakemake\0")
    kernel.write("proc/21/cmdline", "python\0-m\0snakemake\0")
    proc = kernel.root / "proc"
    assert neighbours.workflow_of(proc, 22) == US
    assert neighbours.workflow_of(proc, US) == US
    kernel.write("proc/10/cmdline", "vi\0snakemake\0")
    assert neighbours.workflow_of(proc, 22) == 21
    assert neighbours.workflow_of(proc, 1) == 1
