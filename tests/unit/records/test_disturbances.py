"""Disturbances: what others used beside a run, in words, where it was too much."""

import pytest

from dlbench.log.event_log import EventLog
from dlbench.records.run_status import describe_disturbance
from support.runs.parsed_runs import parsed, write

BESIDE = {"share": 0.05, "device_cores": 1, "cores": 2, "resolution_cpu_cores": 0.01}
DISKS = {"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e8}
MOVED = "others moved {} MB/s to or from disks, for which processes waited 40 % of the time"
QUOTA = {"quota_throttled_percent": 98.0, "quota_throttled_s": 5.2, "span_s": 10.0}
STOPPED = "a quota of CPU time stopped the run's control group in 98 % of its periods ({} s, all "
STOPPED += "CPUs added up, in 10.0 s)"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"others_cpu_cores": 0.98}, "others used 0.98 of 2 cores"),
        ({"others_cpu_cores": 0.055}, ""),  # within what the kernel's ticks can tell
        ({"others_cpu_cores": 0.98, "share": None}, ""),
        ({"others_cpu_cores": 0.98, "device_cores": 32, "cores": 64}, ""),
        ({"others_cpu_cores": 0.2, "cores": 128}, ""),  # daemons, a little on each core
        ({"others_cpu_cores": 0.4, "cores": 128}, "others used 0.40 of 128 cores"),
        ({"others_cpu_cores": None, "memory_pressure_percent": None}, ""),
        ({"memory_pressure_percent": 12.4}, "processes waited for memory 12 % of the time"),
        (DISKS | {"others_disk_bytes_per_s": 2e7, "own_disk_bytes_per_s": 2e8}, ""),
        # A reader that is much faster than the hog loses to it, too.
        (DISKS | {"own_disk_bytes_per_s": 8e8}, MOVED.format(200)),
        (DISKS | {"io_pressure_percent": 4}, ""),
        # The kernel writes back what was installed before, while the run reads from memory;
        (DISKS | {"own_disk_read_bytes_per_s": 4096.0}, ""),
        (DISKS | {"own_disk_read_bytes_per_s": None}, ""),
        # beside one that reads from the disk somebody is the hog.
        (DISKS | {"own_disk_read_bytes_per_s": 2e6}, MOVED.format(200)),
        (DISKS | {"others_cpu_cores": 0.5}, f"others used 0.50 of 2 cores; {MOVED.format(200)}"),
        ({"power_limit_changed": "GPU-1 was at 250 W", "share": None}, "GPU-1 was at 250 W"),
        ({"power_limit_changed": "the limit was 250 W", "others_cpu_cores": 0.98},
         "the limit was 250 W; others used 0.98 of 2 cores"),
        (QUOTA, STOPPED.format(5.2)),
        (QUOTA | {"quota_throttled_s": 0.1}, STOPPED.format(0.1)),
        (QUOTA | {"quota_throttled_percent": 1.0, "quota_throttled_s": 0.5}, ""),
        (QUOTA | {"share": None}, ""),
        (QUOTA | {"quota_throttled_percent": None, "quota_throttled_s": None}, ""),
        ({"other_gpu_processes": 1}, "others had 1 process on a GPU of the run"),
    ],
)  # fmt: skip
def test_a_disturbance_is_said_in_words(changes, words):
    assert describe_disturbance(BESIDE | changes) == words
    assert describe_disturbance({}) == ""  # of a log without neighbours


# Records of runs beside neighbours.

WORDS = "others used 0.98 of 2 cores"


def beside(folder, others, status="ok", times=(9.0, 0.5, 0.5, 0.5), share=0.05):
    """The record of a run beside neighbours, by the event that its supervisor writes."""
    write(folder, times, status=status, message="" if status == "ok" else "what a pity")
    log = EventLog(folder / "train.jsonl")
    cores = {"cores": 2, "device_cores": 1, "resolution_cpu_cores": 0.01}
    fields = {"span_s": 3.0, "host": "here", "waited_for_quiet_s": 1.5, "share": share, **cores}
    unknown = {"cpu_clock_mhz": "no such file"}
    log.write("neighbours", others_cpu_cores=others, unknown=unknown, **fields)
    log.close()
    return parsed(folder)


def test_a_run_beside_neighbours_is_unstable_with_what_they_used_in_words(tmp_path):
    record = beside(tmp_path, 0.98)
    assert (record["status"], record["message"]) == ("unstable", WORDS)
    summary = record["summary"]
    assert (summary["disturbed"], summary["others_cpu_cores"]) == (WORDS, 0.98)
    assert (summary["waited_for_quiet_s"], summary["cpu_clock_mhz"]) == (1.5, None)
    assert summary["neighbours_unknown"] == "cpu_clock_mhz: no such file"


@pytest.mark.parametrize(("others", "share"), [(0.05, 0.05), (0.98, None), (None, 0.05)])
def test_a_run_that_nobody_disturbed_or_that_is_never_judged_is_ok(tmp_path, others, share):
    record = beside(tmp_path, others, share=share)
    assert (record["status"], record["summary"]["disturbed"]) == ("ok", None)
    assert record["summary"]["others_cpu_cores"] == others


def test_neighbours_are_named_before_the_steps_that_stalled_for_them(tmp_path):
    record = beside(tmp_path, 0.98, times=(9.0, 0.5, 0.5, 0.5, 2.0))
    assert record["status"] == "unstable"
    assert record["message"].startswith(f"{WORDS}; ")
    assert record["message"].endswith("some steps stalled")


def test_a_failure_stays_one_beside_neighbours_too(tmp_path):
    record = beside(tmp_path, 0.98, status="failed")
    assert (record["status"], record["message"]) == ("failed", "what a pity")
    assert record["summary"]["disturbed"] == WORDS


def test_a_log_of_before_says_nothing_of_neighbours(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5])
    assert not {"disturbed", "others_cpu_cores"} & parsed(tmp_path)["summary"].keys()
