"""The limits of control groups around a run, from trees that were written here."""

import json
import os
import subprocess
import sys

import pytest

from dlbench.machine import limits
from support.machines import control_groups
from support.machines.paths import REPOSITORY

GROUPS = "sys/fs/cgroup"


V2 = {"proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"}
V1 = {
    "proc/self/mountinfo": "\n".join(
        f"3{i} 31 0:29 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for i, name in enumerate(("cpu,cpuacct", "cpuset", "memory"))
    )
}


def strictest(found):
    return found["memory_bytes"], found["cpu_time_cores"], found["group_cpus"]


def test_the_strictest_limit_of_all_groups_around_holds(tree):
    files = tree(
        V2
        | {
            "proc/self/cgroup": "0::/slurm/job_7/step_0",
            f"{GROUPS}/slurm/memory.max": 64 * 2**30,
            f"{GROUPS}/slurm/job_7/memory.max": 16 * 2**30,
            f"{GROUPS}/slurm/job_7/cpu.max": "max 100000",
            f"{GROUPS}/slurm/job_7/step_0/memory.max": "max",
            f"{GROUPS}/slurm/job_7/step_0/cpu.max": "250000 100000",
            f"{GROUPS}/slurm/job_7/step_0/cpuset.cpus.effective": "0-3,8",
        }
    )
    found = limits.read(files)
    assert strictest(found) == (16 * 2**30, 2.5, 5)
    assert files.unknown == {}


def test_limits_of_version_1_are_understood(tree):
    files = tree(
        V1
        | {
            "proc/self/cgroup": "4:memory:/job\n3:cpuset:/job\n2:cpu,cpuacct:/job",
            f"{GROUPS}/memory/job/memory.limit_in_bytes": 4 * 2**30,
            f"{GROUPS}/memory/memory.limit_in_bytes": 9223372036854771712,
            f"{GROUPS}/cpuset/job/cpuset.cpus": "2-3",
            f"{GROUPS}/cpu,cpuacct/job/cpu.cfs_quota_us": 150000,
            f"{GROUPS}/cpu,cpuacct/job/cpu.cfs_period_us": 100000,
            f"{GROUPS}/cpu,cpuacct/cpu.cfs_quota_us": -1,
        }
    )
    found = limits.read(files)
    assert strictest(found) == (4 * 2**30, 1.5, 2)


def test_no_limit_is_a_fact_and_no_group_is_not(tree):
    files = tree(V2 | {"proc/self/cgroup": "0::/", f"{GROUPS}/memory.max": "max"})
    assert limits.read(files)["memory_bytes"] == "unlimited"
    assert files.unknown == {}
    (files.root / "proc/self/cgroup").unlink()
    (files.root / "proc/self/mountinfo").unlink()
    files = tree({})
    assert limits.read(files)["memory_bytes"] is None
    assert "no control group" in files.unknown["limits.memory_bytes"]


def test_a_container_sees_its_own_group_as_the_top(tree):
    files = tree(V2 | {"proc/self/cgroup": "0::/kubepods/pod1/c", f"{GROUPS}/memory.max": 2**30})
    assert limits.read(files)["memory_bytes"] == 2**30


def test_a_limit_that_is_not_understood_is_unknown(tree):
    files = tree(V2 | {"proc/self/cgroup": "0::/", f"{GROUPS}/cpu.max": "lots"})
    assert limits.read(files)["cpu_time_cores"] is None
    assert "limits.cpu_time_cores" in files.unknown


def test_a_quota_smaller_than_the_cores_counts_as_cores_rounded_down(tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    for quota, cores in (("250000", 2), ("50000", 1)):
        files = tree(
            V2
            | {
                "proc/self/cgroup": "0::/job/step",
                f"{GROUPS}/job/cpu.max": f"{quota} 100000",
                f"{GROUPS}/job/step/cpu.max": "max 100000",
            }
        )
        assert limits.usable_cores(files) == (cores, int(quota) / 100000)
    for none in ("max", "400000", "900000", "lots"):
        files = tree({f"{GROUPS}/job/cpu.max": f"{none} 100000"})
        assert limits.usable_cores(files) == (4, None)


def test_what_a_quota_stopped_is_that_of_the_group_and_of_those_around_it(tree):
    files = tree(
        V2
        | {
            "proc/self/cgroup": "0::/job/step",
            f"{GROUPS}/cpu.stat": "usage_usec 9\nuser_usec 9",  # the root has no quota
            f"{GROUPS}/job/cpu.stat": "usage_usec 9\nnr_periods 9\nnr_throttled 5\n"
            "throttled_usec 1500000",
            f"{GROUPS}/job/step/cpu.stat": "nr_periods 3\nnr_throttled 2\nthrottled_usec 250000",
        }
    )
    places = limits.throttle_files(files)
    assert places == [f"{GROUPS}/job/step/cpu.stat", f"{GROUPS}/job/cpu.stat"]
    assert limits.throttled(files, places) == limits.Throttled(9, 7, 1.75)


def test_version_1_counts_nanoseconds(tree):
    files = tree(
        V1
        | {
            "proc/self/cgroup": "2:cpu,cpuacct:/job",
            f"{GROUPS}/cpu,cpuacct/job/cpu.stat": "nr_periods 9\nnr_throttled 4\n"
            "throttled_time 2500000000",
        }
    )
    assert limits.throttled(files, limits.throttle_files(files)) == limits.Throttled(9, 4, 2.5)


def test_groups_without_a_quota_stop_nothing_and_no_group_is_unknown(tree):
    assert limits.throttle_files(tree(V2 | {"proc/self/cgroup": "0::/"})) == []
    assert limits.throttled(tree({}), []) == limits.Throttled()
    (tree({}).root / "proc/self/cgroup").unlink()
    with pytest.raises(OSError):
        limits.throttle_files(tree({}))


MEASURED = """
import json, sys, time
sys.path.insert(0, "workflow_scripts")
from dlbench.machine import limits
from dlbench.machine.hardware import Files
files = Files()
places = limits.throttle_files(files)
before, began = limits.throttled(files, places), time.monotonic()
while time.monotonic() - began < 1: pass
after = limits.throttled(files, places)
print(json.dumps([limits.usable_cores(), [b - a for a, b in zip(before, after)]]))
"""


@pytest.mark.skipif(not control_groups.place(), reason="no control groups can be made here")
def test_a_real_group_is_seen_to_be_stopped_by_its_quota():
    with control_groups.with_quota(0.2) as group:
        answer = subprocess.run(
            control_groups.joining(group, [sys.executable, "-c", MEASURED]),
            cwd=REPOSITORY, capture_output=True, text=True, check=True,
        )  # fmt: skip
    cores, (periods, stopped, time_s) = json.loads(answer.stdout)
    assert cores == [1, 0.2]
    assert 10 < stopped <= periods and time_s > 0
