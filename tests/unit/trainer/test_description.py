"""What a run says of its machine: facts from trees of /proc and /sys that were written here.

NVML itself was not run: no GPU is here, so a stand-in takes its place.
"""

import os
import platform
import sys

import pytest
from sampling_stand_ins import NVML, Clock

from dlbench.common.files import json_digest
from dlbench.machine import facts, gpu_facts, hardware, limits, software
from dlbench.machine.hardware import Files

CPU, NODES = "sys/devices/system/cpu", "sys/devices/system/node"
GROUPS = "sys/fs/cgroup"
CPUINFO = """processor\t: {number}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz
stepping\t: 6
microcode\t: 0xd0003a5
cpu MHz\t\t: {mhz}
flags\t\t: fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe smep
"""
ARM = """processor\t: 0
Features\t: fp asimd asimdhp sve2 bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.fixture
def tree(tmp_path):
    """A function that writes {path: content} below a root, and gives the Files of it."""

    def write(content):
        for path, text in content.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"{text}\n")
        return Files(tmp_path)

    return write


def processor(sockets=2, cores=2, smt=True):
    """A machine whose second threads come after all first ones, as Linux numbers them."""
    count = sockets * cores
    siblings = [f"{core},{core + count}" if smt else str(core) for core in range(count)]
    found = {f"{CPU}/online": f"0-{count * (1 + smt) - 1}"}
    for number in range(count * (1 + smt)):
        place, core = f"{CPU}/cpu{number}", number % count
        found[f"{place}/topology/physical_package_id"] = core // cores
        found[f"{place}/topology/thread_siblings_list"] = siblings[core]
    caches = ("1", "Data", "48K", "0,4"), ("3", "Unified", "54M", "0-1,4-5")
    found |= {
        f"{CPU}/cpu0/cache/index{index}/{name}": value
        for index, cache in enumerate(caches)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), cache, strict=True)
    }
    found["proc/cpuinfo"] = "\n".join(CPUINFO.format(number=n, mhz=800 + n) for n in range(4))
    found["proc/meminfo"] = "MemTotal: 263000000 kB\nMemAvailable: 200000000 kB\nSwapTotal: 0 kB"
    for node in range(sockets):
        found[f"{NODES}/node{node}/cpulist"] = f"{node * cores}-{node * cores + cores - 1}"
        found[f"{NODES}/node{node}/meminfo"] = f"Node {node} MemTotal:  131500000 kB"
        found[f"{NODES}/node{node}/distance"] = "10 21"
    return found | {f"{NODES}/online": "0-1"}


def policy(number, governor, low=800000, high=3500000):
    place = f"{CPU}/cpufreq/policy{number}"
    return {
        f"{place}/scaling_governor": governor,
        f"{place}/scaling_driver": "intel_pstate",
        f"{place}/scaling_min_freq": low,
        f"{place}/scaling_max_freq": high,
    }


# The node.


@pytest.mark.parametrize(
    ("machine", "counts"),
    [
        ({"sockets": 2, "cores": 2, "smt": True}, (2, 4, 8, True)),
        ({"sockets": 1, "cores": 8, "smt": False}, (1, 8, 8, False)),
    ],
)
def test_sockets_cores_and_threads_are_counted(tree, machine, counts):
    cpu = hardware.constant_facts(tree(processor(**machine)))["cpu"]
    assert tuple(cpu[name] for name in ("sockets", "cores", "threads", "smt")) == counts


def test_cores_that_are_offline_do_not_count(tree):
    cpu = hardware.constant_facts(tree(processor(1, 4, smt=True) | {f"{CPU}/online": "0-2,4"}))[
        "cpu"
    ]
    assert (cpu["cores"], cpu["threads"], cpu["smt"]) == (3, 4, True)


def test_model_caches_and_numa_nodes_are_told(tree):
    cpu = hardware.constant_facts(tree(processor()))["cpu"]
    assert (cpu["model"], cpu["microcode"], cpu["virtual"]) == (
        "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz",
        "0xd0003a5",
        False,
    )
    assert "smep" not in cpu["features"] and "avx2" in cpu["features"]
    assert cpu["caches"] == [
        {"level": 1, "type": "Data", "bytes": 48 * 1024, "shared_by": 2},
        {"level": 3, "type": "Unified", "bytes": 54 * 2**20, "shared_by": 4},
    ]
    assert cpu["numa"] == [
        {"cpus": "0-1", "gib": 128, "distances": "10 21"},
        {"cpus": "2-3", "gib": 128, "distances": "10 21"},
    ]


@pytest.mark.parametrize("installed", [4, 7.5, 16, 24, 48, 60, 64, 96, 112, 192, 384, 768, 2048])
def test_what_the_kernel_keeps_of_the_memory_makes_no_other_machine(tree, installed):
    seen = set()
    for kept in (0.016, 0.0234375, 0.0234376, 0.03, 0.05):  # 62.5 GiB of 64 among them
        kib = int(installed * (1 - kept) * 2**20)
        made = processor() | {"proc/meminfo": f"MemTotal: {kib} kB"}
        made |= {
            f"{NODES}/node{node}/meminfo": f"Node {node} MemTotal: {kib} kB" for node in (0, 1)
        }
        facts = hardware.constant_facts(tree(made))
        assert [facts["memory"]["gib"], facts["cpu"]["numa"][1]["gib"]] == [installed] * 2
        seen.add(json_digest(facts))
    assert len(seen) == 1


def test_governors_and_limits_of_all_policies_are_told(tree):
    made = (
        policy(0, "powersave") | policy(2, "performance") | policy(10, "performance", high=2000000)
    )
    cpu = hardware.constant_facts(tree(processor() | made | {f"{CPU}/intel_pstate/no_turbo": 1}))[
        "cpu"
    ]
    assert cpu["governors"] == ["performance", "powersave"]
    assert cpu["frequency_mhz"] == [800, 3500]
    assert cpu["boost"] is False


def test_a_machine_without_cpufreq_says_so(tree):
    files = tree(processor())
    assert hardware.constant_facts(files)["cpu"]["governors"] is None
    assert "no policies, as in virtual machines" in files.unknown["cpu.frequencies"]


def test_clocks_of_this_moment_are_no_constant_facts(tree):
    files = tree(processor())
    assert hardware.present_facts(files)["cpu_mhz"] == {"min": 800, "median": 801.5, "max": 803}
    faster = processor() | {"proc/cpuinfo": CPUINFO.format(number=0, mhz=3500)}
    before = hardware.constant_facts(files)
    assert hardware.constant_facts(tree(faster)) == before


def test_an_arm_processor_is_told_by_its_parts(tree):
    cpu = hardware.constant_facts(tree({"proc/cpuinfo": ARM}))["cpu"]
    assert cpu["model"] == "CPU implementer 0x41, CPU part 0xd40"
    assert cpu["features"] == ["asimd", "asimdhp", "bf16", "sve2"]


@pytest.mark.parametrize(
    "content",
    [{}, {"proc/cpuinfo": "", "proc/meminfo": "", f"{CPU}/online": "?"}, {f"{CPU}/online": "0-1"}],
)
def test_what_is_not_there_or_not_understood_is_none_with_a_reason(tree, content):
    files = tree(content)
    found = hardware.constant_facts(files)
    assert (found["cpu"]["sockets"], found["memory"]["gib"]) == (None, None)
    assert (found["network"], found["infiniband"]) == ([], [])
    assert {"cpu.topology", "cpu.numa", "memory"} <= files.unknown.keys()
    assert all(files.unknown.values())


def test_network_and_infiniband_are_those_of_devices_that_are_up(tree, tmp_path):
    files = tree(
        {
            **{f"sys/class/net/{name}/mtu": 9000 for name in ("eno1", "eno2", "docker0")},
            "sys/class/net/eno1/speed": 25000,
            "sys/class/net/eno1/operstate": "up",
            "sys/class/net/eno2/speed": -1,
            "sys/class/net/eno2/operstate": "down",
            "sys/class/net/eno1/device/uevent": "",
            "sys/class/net/eno2/device/uevent": "",
            "sys/class/infiniband/mlx5_0/hca_type": "MT4123",
            "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        }
    )
    found = hardware.constant_facts(files)
    assert found["network"] == [
        {"name": "eno1", "speed_mbit_s": 25000, "mtu": 9000, "driver": None}
    ]
    assert found["infiniband"] == [
        {
            "device": "mlx5_0",
            "port": 1,
            "type": "MT4123",
            "firmware": "20.31.1014",
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "rate": "200 Gb/sec (4X HDR)",
        }
    ]


# Control groups.

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


# GPUs.


@pytest.fixture
def nvml(monkeypatch):
    stand_in = NVML(Clock())
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_equal_gpus_are_one_kind_and_each_is_named(nvml):
    nvml.broken = {"nvmlDeviceGetMigMode"}
    unknown = {}
    found = gpu_facts.gather((0, 1), unknown)
    (kind,) = found["kinds"]
    assert (found["driver"], found["cuda_driver"]) == ("550.54.15", "12.4")
    assert (kind["name"], kind["memory_bytes"], kind["nvlinks"]) == ("NVIDIA H100", 80 * 2**30, 12)
    assert (kind["pcie_generation"], kind["pcie_width"]) == (5, 16)
    assert (kind["power_limit_w"], kind["ecc"], kind["persistence"]) == (700, True, True)
    assert (kind["compute_mode"], kind["compute_capability"]) == ("exclusive process", "9.0")
    assert kind["mig"] is None and "nvmlDeviceGetMigMode" in unknown["gpus.nvmlDeviceGetMigMode"]
    assert [device["uuid"] for device in found["devices"]] == list(NVML.UUIDS[:2])
    assert [device["pcie_generation"] for device in found["devices"]] == [1, 2]
    assert found["devices"][0]["pci"] == "00000000:01:00.0"
    assert found["links"] == [[0, 1, "NVLink"]]
    assert nvml.users == 0


def test_one_gpu_of_a_kind_has_the_facts_of_two(nvml):
    nvml.broken = {"nvmlDeviceGetMigMode"}
    one, two = (gpu_facts.gather(gpus, {})["kinds"] for gpus in ((1,), (0, 1)))
    assert one == two


def test_gpus_without_nvlink_say_what_is_between_them(nvml):
    nvml.NVLINKED = False
    found = gpu_facts.gather((0,), {})
    assert (found["kinds"][0]["nvlinks"], found["links"]) == (0, [[0, 1, "SYS"]])


def test_a_mig_device_has_its_own_name_and_its_boards_limits(nvml):
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: type("M", (), {"total": 10 * 2**30})
    (kind,) = gpu_facts.gather(("MIG-cccc3333-0000",), {})["kinds"]
    assert (kind["name"], kind["memory_bytes"]) == ("NVIDIA H100 MIG 1g.10gb", 10 * 2**30)
    assert kind["power_limit_w"] == 700


def test_no_driver_or_a_lost_gpu_is_said_and_harms_nothing(nvml):
    unknown = {}
    nvml.broken = {"driver"}
    assert gpu_facts.gather((0,), unknown) == gpu_facts.NONE
    assert "NVML Shared Library Not Found" in unknown["gpus"]
    nvml.broken = {1}
    found = gpu_facts.gather((0, 1), unknown)
    assert len(found["devices"]) == 1 and unknown["gpus.1"] == "GPU is lost"


def test_runs_without_gpus_do_not_start_nvml(nvml, monkeypatch):
    monkeypatch.setattr(NVML, "nvmlInit", lambda self: pytest.fail("NVML was started"))
    assert facts.gather(())["hardware"]["gpus"]["kinds"] == []


# Software and the whole event.


def test_packages_are_listed_once_each_the_imported_first(tmp_path):
    for folder, name, version in (
        ("a", "My_Package", "2.0"),
        ("b", "my.package", "1.0"),
        ("b", "other", "3"),
    ):
        place = tmp_path / folder / f"{name}-{version}.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "b" / "half-1.dist-info").mkdir()
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert software.installed_packages(folders) == ["my-package==2.0", "other==3"]


def test_a_list_of_packages_is_kept_once_under_the_digest_of_its_file(tmp_path):
    name = software.keep_list(["a==1", "b==2"], tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "a==1\nb==2\n" and path.name == f"{name}.txt"
    kept = path.stat().st_mtime_ns
    assert software.keep_list(["a==1", "b==2"], tmp_path) == name
    assert path.stat().st_mtime_ns == kept
    assert software.keep_list(["a==1"], None) != name


def test_a_folder_that_cannot_be_written_costs_the_list_and_not_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    found = facts.gather(framework={"python": "3"}, packages=tmp_path / "file" / "in")
    assert found["software"]["packages_sha256"] is None
    assert "software.packages_sha256" in found["unknown"]


def test_loaded_libraries_are_named_by_their_files():
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 1 /opt/cuda/lib/libcufft.so.11.2.3\n"
        "7f00-7f01 r--p 00000000 08:01 1 /opt/cuda/lib/libcufft.so.11.2.3\n"
        "7f02-7f03 r-xp 00000000 08:01 2 /usr/lib/libtcmalloc_minimal.so.4\n"
        "7f04-7f05 r-xp 00000000 08:01 3 /usr/lib/libmpi_cxx.so.40\n"
        "7f06-7f07 r-xp 00000000 08:01 4 /usr/lib/libmpiany.so.1\n"
        "7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n"
    )
    found = software.loaded_libraries(maps)
    assert found["cufft"] == "libcufft.so.11.2.3"
    assert found["tcmalloc"] == "libtcmalloc_minimal.so.4"
    assert "libmpiany.so.1" not in found.values()


def test_this_machine_is_told_as_python_knows_it():
    found = facts.gather(framework={"python": platform.python_version()})
    assert found["hardware"]["cpu"]["threads"] == os.cpu_count()
    assert found["limits"]["cpus"] == len(os.sched_getaffinity(0))
    assert found["present"]["host"] == platform.node()
    assert found["software"]["kernel"] == platform.release()
    assert "pytest==" in "\n".join(software.installed_packages())


def test_a_machine_of_which_nothing_can_be_read_is_still_an_event(tmp_path):
    found = facts.gather(root=tmp_path)
    assert found["hardware"]["cpu"]["model"] is None
    assert found["software"]["os"] is None
    assert {"cpu", "memory", "software.os", "libraries"} <= found["unknown"].keys()
