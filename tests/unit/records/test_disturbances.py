"""disturbances: what others used beside a run, in words, where it was too much."""

import pytest

from dlbench.records.disturbances import describe_disturbance

BESIDE = {"share": 0.05, "device_cores": 1, "cores": 2, "resolution_cpu_cores": 0.01}


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
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e7,
          "own_disk_bytes_per_s": 2e8}, ""),
        # a reader that is much faster than the hog loses to it, too
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 8e7,
          "own_disk_bytes_per_s": 2e8},
         "others moved 80 MB/s to or from disks, for which processes waited 40 % of the time"),
        ({"io_pressure_percent": 4, "others_disk_bytes_per_s": 2e9}, ""),
        # The kernel writes back what was installed before, while the run reads from memory;
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e8,
          "own_disk_bytes_per_s": 2e5, "own_disk_read_bytes_per_s": 4096.0}, ""),
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e8,
          "own_disk_read_bytes_per_s": None}, ""),
        # beside one that reads from the disk somebody is the hog.
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e8,
          "own_disk_bytes_per_s": 2e6, "own_disk_read_bytes_per_s": 2e6},
         "others moved 200 MB/s to or from disks, for which processes waited 40 % of the time"),
        ({"io_pressure_percent": 40, "others_disk_bytes_per_s": 2e8, "others_cpu_cores": 0.5},
         "others used 0.50 of 2 cores; others moved 200 MB/s to or from disks, for which "
         "processes waited 40 % of the time"),
        ({"power_limit_changed": "the power limit of GPU-1 was 250 W", "share": None},
         "the power limit of GPU-1 was 250 W"),
        ({"power_limit_changed": "the limit was 250 W", "others_cpu_cores": 0.98},
         "the limit was 250 W; others used 0.98 of 2 cores"),
        ({"power_limit_changed": None, "share": None}, ""),
        ({"quota_throttled_percent": 98.0, "quota_throttled_s": 5.2, "span_s": 10.0},
         "a quota of CPU time stopped the run's control group in 98 % of its periods (5.2 s, all "
         "CPUs added up, in 10.0 s)"),
        ({"quota_throttled_percent": 98.0, "quota_throttled_s": 0.1, "span_s": 10.0},
         "a quota of CPU time stopped the run's control group in 98 % of its periods (0.1 s, all "
         "CPUs added up, in 10.0 s)"),
        ({"quota_throttled_percent": 1.0, "quota_throttled_s": 0.5, "span_s": 10.0}, ""),
        ({"quota_throttled_percent": 98.0, "quota_throttled_s": 5.2, "span_s": 10.0,
          "share": None}, ""),
        ({"quota_throttled_percent": None, "quota_throttled_s": None, "span_s": 10.0}, ""),
        ({"other_gpu_processes": 1}, "others had 1 process on a GPU of the run"),
    ],
)  # fmt: skip
def test_a_disturbance_is_said_in_words(changes, words):
    assert describe_disturbance(BESIDE | changes) == words


def test_a_log_without_neighbours_is_not_disturbed():
    assert describe_disturbance({}) == ""
