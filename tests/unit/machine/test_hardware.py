"""What a run says of its node's hardware, from trees of /proc and /sys that were written here."""

import pytest

from dlbench.common.files import json_digest
from dlbench.machine import hardware

CPU, NODES = "sys/devices/system/cpu", "sys/devices/system/node"
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
    found = {"governor": governor, "driver": "intel_pstate", "min_freq": low, "max_freq": high}
    return {f"{place}/scaling_{name}": value for name, value in found.items()}


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
    files = tree(processor(1, 4, smt=True) | {f"{CPU}/online": "0-2,4"})
    cpu = hardware.constant_facts(files)["cpu"]
    assert (cpu["cores"], cpu["threads"], cpu["smt"]) == (3, 4, True)


def test_model_caches_and_numa_nodes_are_told(tree):
    cpu = hardware.constant_facts(tree(processor()))["cpu"]
    assert cpu["model"] == "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"
    assert (cpu["microcode"], cpu["virtual"]) == ("0xd0003a5", False)
    assert "smep" not in cpu["features"] and "avx2" in cpu["features"]
    assert cpu["caches"] == [
        {"level": 1, "type": "Data", "bytes": 48 * 1024, "shared_by": 2},
        {"level": 3, "type": "Unified", "bytes": 54 * 2**20, "shared_by": 4},
    ]
    assert cpu["numa"] == [
        {"cpus": "0-1", "gib": 128, "distances": "10 21"},
        {"cpus": "2-3", "gib": 128, "distances": "10 21"},
    ]


@pytest.mark.parametrize("installed", [4, 7.5, 24, 60, 64, 112, 768, 2048])
def test_what_the_kernel_keeps_of_the_memory_makes_no_other_machine(tree, installed):
    seen = set()
    for kept in (0.016, 0.0234375, 0.0234376, 0.03, 0.05):  # 62.5 GiB of 64 among them
        kib = int(installed * (1 - kept) * 2**20)
        made = processor() | {"proc/meminfo": f"MemTotal: {kib} kB"}
        made |= {f"{NODES}/node{n}/meminfo": f"Node {n} MemTotal: {kib} kB" for n in (0, 1)}
        facts = hardware.constant_facts(tree(made))
        assert [facts["memory"]["gib"], facts["cpu"]["numa"][1]["gib"]] == [installed] * 2
        seen.add(json_digest(facts))
    assert len(seen) == 1


def test_governors_and_limits_of_all_policies_are_told(tree):
    made = processor() | policy(0, "powersave") | policy(2, "performance")
    made |= policy(10, "performance", high=2000000) | {f"{CPU}/intel_pstate/no_turbo": 1}
    cpu = hardware.constant_facts(tree(made))["cpu"]
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


@pytest.mark.parametrize("kind", ["a machine", "a virtual machine"])
def test_memory_that_a_host_adds_makes_no_virtual_machine_another_one(tree, kind):
    made, virtual = processor(), kind != "a machine"
    if virtual:
        made["proc/cpuinfo"] = made["proc/cpuinfo"].replace("fpu", "fpu hypervisor")
    added = {
        "proc/meminfo": "MemTotal: 526000000 kB\nSwapTotal: 0 kB",
        f"{NODES}/node0/meminfo": "Node 0 MemTotal:  394500000 kB",
    }
    found, now_bytes = [], []
    for more in ({}, added):
        files = tree(made | more)
        found.append(hardware.constant_facts(files))
        now_bytes.append(hardware.present_facts(files)["memory_bytes"])
        assert ("memory" in files.unknown) == virtual
    assert (found[0] == found[1]) == virtual
    assert found[0]["memory"]["gib"] == (None if virtual else 256)
    assert now_bytes[0] < now_bytes[1] == 526_000_000 * 1024


def test_networks_make_no_node_slower_at_computing(tree):
    of_network = {"sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/device/vendor": "1"}
    speeds = []
    for count, made in enumerate((processor(), of_network)):
        files = tree(made)
        assert len(hardware.constant_facts(files)["network"]) == count
        speeds.append(hardware.speed_facts(files))
    assert speeds[0] == speeds[1]


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


def test_network_and_infiniband_are_those_of_devices_that_are_up(tree):
    net, card = "sys/class/net", "sys/class/infiniband/mlx5_0"
    made = {f"{net}/{name}/mtu": 9000 for name in ("eno1", "eno2", "docker0")}
    made |= {f"{net}/{name}/device/uevent": "" for name in ("eno1", "eno2")}
    made |= {f"{net}/eno1/speed": 25000, f"{net}/eno1/operstate": "up"}
    made |= {f"{net}/eno2/speed": -1, f"{net}/eno2/operstate": "down"}
    made |= {f"{card}/hca_type": "MT4123", f"{card}/fw_ver": "20.31.1014"}
    port = {"link_layer": "InfiniBand", "state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)"}
    made |= {f"{card}/ports/1/{name}": value for name, value in port.items()}
    found = hardware.constant_facts(tree(made))
    eno1 = {"name": "eno1", "speed_mbit_s": 25000, "mtu": 9000, "driver": None}
    assert found["network"] == [eno1]
    ours = {"device": "mlx5_0", "port": 1, "type": "MT4123", "firmware": "20.31.1014"}
    assert found["infiniband"] == [ours | port]
