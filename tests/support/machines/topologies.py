"""Nodes with GPUs that are not here, as data: their trees of /sys and what NVML says of them.

Numbers of CPUs and NUMA nodes, distances and PCI addresses are as such nodes have them; nothing was
read from one.
"""

from types import SimpleNamespace

DISTANCE = {"self": 10, "socket": 12, "other": 21}


class NoGpu(Exception):
    """As pynvml.NVMLError."""


class NVML:
    """pynvml for the GPUs of a node: (uuid, bus id) each; a MIG device has the bus id of its board.

    Args:
        affinity: {index: words} of the ideal CPU affinity; none: the call fails.
    """

    NVMLError = NoGpu

    def __init__(self, boards, mig=(), affinity=None):
        self.boards, self.mig, self.affinity = list(boards), list(mig), affinity or {}

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlDeviceGetCount(self):
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.boards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for handle in (*self.boards, *self.mig):
            if handle[0] == uuid:
                return handle
        raise NoGpu("Not Found")

    def nvmlDeviceGetUUID(self, handle):
        return handle[0]

    def nvmlDeviceIsMigDeviceHandle(self, handle):
        return handle in self.mig

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return next(board for board in self.boards if board[1] == handle[1])

    def nvmlDeviceGetPciInfo(self, handle):
        assert handle not in self.mig
        return SimpleNamespace(busId=handle[1])

    def nvmlDeviceGetCpuAffinity(self, handle, words):
        try:
            return self.affinity[self.boards.index(handle)]
        except KeyError:
            raise NoGpu("Not Supported") from None


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")


def cpus(numa, siblings, sockets=1, without_cpus=0):
    """/sys of the CPUs: `numa` are lists of CPUs in the kernel's form, a NUMA node each.

    Args:
        siblings: from the number of a CPU to the list of the threads of its core.
        sockets: to which equally many NUMA nodes belong.
        without_cpus: further NUMA nodes, as those of the memory of a GH200's GPUs.
    """
    base, per_socket = "sys/devices/system", len(numa) // sockets
    numbers = sorted(number for text in numa for number in expanded(text))
    files = {f"{base}/cpu/online": f"0-{numbers[-1]}"}
    for number in numbers:
        files[f"{base}/cpu/cpu{number}/topology/thread_siblings_list"] = siblings(number)
    for node in range(len(numa) + without_cpus):
        row = [
            DISTANCE[
                "self"
                if other == node
                else "socket"
                if other // per_socket == node // per_socket
                else "other"
            ]
            for other in range(len(numa) + without_cpus)
        ]
        files[f"{base}/node/node{node}/distance"] = " ".join(map(str, row))
        files[f"{base}/node/node{node}/cpulist"] = numa[node] if node < len(numa) else ""
    return files


def gpu(pci, node, near):
    place = f"sys/bus/pci/devices/{pci}"
    return {f"{place}/numa_node": node, f"{place}/local_cpulist": near}


def amd(number, pci, unique_id):
    """/sys of an AMD GPU in the kernel's topology; a number of 0 GPUs' SIMD units is a CPU."""
    domain, bus, rest = pci.split(":")
    device, function = rest.split(".")
    location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    facts = {"simd_count": 1216, "location_id": location, "domain": int(domain, 16)}
    text = "\n".join(f"{key} {value}" for key, value in {**facts, "unique_id": unique_id}.items())
    return {f"sys/class/kfd/kfd/topology/nodes/{number}/properties": text}


def expanded(text):
    """The numbers in one of the kernel's lists."""
    pairs = (part.partition("-") for part in text.split(","))
    return [n for a, _, b in pairs for n in range(int(a), int(b or a) + 1)]


def with_threads(cores):
    """Siblings of a node with two threads a core, the second ones numbered after all first ones."""
    return lambda number: f"{number % cores},{number % cores + cores}"


def alone(number):
    """Siblings without SMT."""
    return str(number)


# 2 x Xeon of 56 cores in 4 NUMA nodes each, 8 x H100 SXM, one at each NUMA node.
H100_NUMA = [f"{14 * n}-{14 * n + 13},{112 + 14 * n}-{125 + 14 * n}" for n in range(8)]
H100_PCI = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
H100_UUIDS = [f"GPU-h100000{n}-0000" for n in range(8)]


def h100_x8():
    files = cpus(H100_NUMA, with_threads(112), sockets=2)
    for bus, (node, near) in zip(H100_PCI, enumerate(H100_NUMA), strict=True):
        files |= gpu(f"0000:{bus}:00.0", node, near)
    boards = [
        (uuid, f"00000000:{bus.upper()}:00.0")
        for uuid, bus in zip(H100_UUIDS, H100_PCI, strict=True)
    ]
    return files, NVML(boards)


def gh200_x4():
    numa = [f"{72 * n}-{72 * n + 71}" for n in range(4)]
    files = cpus(numa, alone, sockets=4, without_cpus=4)
    boards = []
    for node, near in enumerate(numa):
        files |= gpu(f"{node:04x}9:01:00.0"[-12:], node, near)
        boards.append((f"GPU-9h20000{node}-0000", f"{node:07x}9:01:00.0"))
    return files, NVML(boards)


def a100_x2_on_one_socket(sockets=1):
    """32 cores with two threads a socket; both GPUs are at the first socket."""
    cores = 32 * sockets
    numa = [
        f"{32 * n}-{32 * n + 31},{cores + 32 * n}-{cores + 32 * n + 31}" for n in range(sockets)
    ]
    files = cpus(numa, with_threads(cores), sockets=sockets)
    files |= gpu("0000:21:00.0", 0, numa[0]) | gpu("0000:22:00.0", 0, numa[0])
    boards = [("GPU-a1000000-0000", "00000000:21:00.0"), ("GPU-a1000001-0000", "00000000:22:00.0")]
    return files, NVML(boards)


def mig_slices():
    """One A100 at the second of two NUMA nodes of 8 cores, cut into three."""
    files = cpus(["0-7", "8-15"], alone, sockets=2) | gpu("0000:81:00.0", 1, "8-15")
    board = ("GPU-a1000000-0000", "00000000:81:00.0")
    return files, NVML([board], [(f"MIG-{n}{n}{n}{n}-0000", board[1]) for n in range(3)])


def mi300x_x8():
    """2 x EPYC of 96 cores with two threads, a NUMA node each; four GPUs at each."""
    numa = ["0-95,192-287", "96-191,288-383"]
    files = cpus(numa, with_threads(192), sockets=2)
    for node in (0, 1):  # the CPUs are nodes of the topology, too
        text = "simd_count 0\nlocation_id 0\nunique_id 0"
        files[f"sys/class/kfd/kfd/topology/nodes/{node}/properties"] = text
    for number, bus in enumerate(("05", "26", "46", "65", "85", "a6", "c6", "e5")):
        pci = f"0000:{bus}:00.0"
        files |= gpu(pci, number // 4, numa[number // 4]) | amd(number + 2, pci, 0xAB00 + number)
    return files, None


def no_numa_known(affinity=None):
    """Four GPUs of a virtual machine with 32 CPUs, whose firmware says nothing."""
    files, boards = cpus(["0-31"], alone), []
    for number in range(4):
        files |= gpu(f"0000:0{number}:00.0", -1, "0-31")
        boards.append((f"GPU-0000000{number}-0000", f"00000000:0{number}:00.0"))
    return files, NVML(boards, affinity=affinity)
