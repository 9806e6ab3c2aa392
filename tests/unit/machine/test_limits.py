"""The limits of control groups around a run, from trees that were written here."""

from dlbench.machine import limits

GROUPS = "sys/fs/cgroup"


V2 = {"proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"}
V1 = {
    "proc/self/mountinfo": "\n".join(
        f"3{i} 31 0:29 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for i, name in enumerate(("cpu,cpuacct", "cpuset", "memory"))
    )
}


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
    assert (found["memory_bytes"], found["cpu_time_cores"], found["group_cpus"]) == (
        16 * 2**30,
        2.5,
        5,
    )
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
    assert (found["memory_bytes"], found["cpu_time_cores"], found["group_cpus"]) == (
        4 * 2**30,
        1.5,
        2,
    )


def test_no_limit_is_a_fact_and_no_group_is_not(tree):
    files = tree(V2 | {"proc/self/cgroup": "0::/", f"{GROUPS}/memory.max": "max"})
    assert limits.read(files)["memory_bytes"] == "unlimited"
    assert files.unknown == {}


def test_without_control_groups_limits_are_unknown(tree):
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
