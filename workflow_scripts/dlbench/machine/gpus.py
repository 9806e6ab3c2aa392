"""The GPUs of a process: which it sees and where they are, their facts, and their readings.

Through NVML, without which, as without the package pynvml, they are unknown. For AMD's GPUs the
kernel's topology (/sys/class/kfd) has those that a process sees, in the order of ROCm.

- CUDA_VISIBLE_DEVICES has numbers, GPU-UUIDs (maybe abbreviated) or MIG-UUIDs; ROCR_VISIBLE_DEVICES
  has numbers or GPU-UUIDs, and HIP_VISIBLE_DEVICES numbers among those that remain.
- The kernel has the CPUs near a PCI address (/sys/bus/pci/devices/*/numa_node and local_cpulist).
  If the firmware does not tell it (numa_node is -1), NVML's ideal affinity is used.
- Of a MIG device NVML reports only its own name and memory; all else is of the whole board.

A sample of one GPU, in which None is what cannot be read, is:
    gpu                           its selector: NVML index or UUID
    utilisation_percent           share of NVML's last period (1/6 s to 1 s) in which a kernel ran
    memory_used_bytes             by all processes and the driver
    power_w                       of the board; mean of the last second since Ampere except GA100
    temperature_c                 of the chip
    clock_sm_mhz, clock_memory_mhz
    other_gpu_processes           processes on it that are none of this run; None if NVML lists
                                  none of this run
    throttle_reasons              what limits the clocks, [] = nothing; see REASONS
    energy_j                      since the first sample

Facts are
    kinds    those that GPUs of one kind share, each kind once, so that they do not depend on the
             number of GPUs of a run
    devices  those of each GPU: UUID, place on the bus, its present link and clocks
    links    of each pair of all GPUs that NVML shows: NVLink, or what is between the two on the PCI
             bus
"""

import contextlib
import importlib.util
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from dlbench import Error
from dlbench.common import orphans, phrases
from dlbench.machine.energy import COUNTER, INTEGRATED
from dlbench.machine.hardware import CPU, Files, expand

SUPERVISOR = "DLBENCH_SUPERVISOR"  # variable of all processes of a run: see starting/processes.py

PYNVML = "site-packages/pynvml.py"  # of the package nvidia-ml-py

# Bits of NVML's clocks event reasons (formerly clocks throttle reasons), as nvml.h numbers them;
# older pynvml lack the last ones. Reasons that slow nothing down are kept too: gpu_idle shows a GPU
# that waits for data, applications_clocks_setting clocks that someone fixed.
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def visible_gpus(
    first: int, count: int, environ: Mapping[str, str] = os.environ
) -> tuple[int | str, ...]:
    """NVML selectors of `count` GPUs, from number `first` on, among those that CUDA shows.

    Reads CUDA_VISIBLE_DEVICES as CUDA does: indices or UUIDs (these may be abbreviated), and
    the first entry that is neither (-1, an empty one) ends the list. If it is unset, all GPUs
    are visible, in order. CUDA's indices are NVML's only with CUDA_DEVICE_ORDER=PCI_BUS_ID. An
    index that the machine lacks ends CUDA's list, too; that is not checked here: the sample of
    that GPU has an error. Fewer than `count` are returned if the list ends before.

    >>> visible_gpus(1, 2, {"CUDA_VISIBLE_DEVICES": "3,GPU-8932f937,0,-1,1"})
    ('GPU-8932f937', 0)
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(range(first, first + count))
    selectors: list[int | str] = []
    for entry in (entry.strip() for entry in listed.split(",")):
        if entry.isdecimal():
            selectors.append(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            selectors.append(entry)
        else:
            break
    return tuple(selectors[first : first + count])


def count_visible_gpus(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of GPUs that the variables of CUDA and ROCm name; None if none of them is set.

    >>> count_visible_gpus({"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "1"})
    1
    """
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    lists = (environ[name].split(",") for name in names if name in environ)
    return min((sum(map(bool, entries)) for entries in lists), default=None)


def throttle_reasons(mask: int) -> list[str]:
    """Names of the bits of NVML's clocks event reasons, the lowest bit first.

    >>> throttle_reasons(0x44), throttle_reasons(0), throttle_reasons(0x8001)
    (['sw_power_cap', 'hw_thermal_slowdown'], [], ['gpu_idle', 'unknown_0x8000'])
    """
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return [REASONS.get(bit, f"unknown_{bit:#x}") for bit in bits]


def find_gpu(nvml: ModuleType, selector: int | str) -> Any:
    """NVML's handle of a GPU. Raises NVMLError: no GPU, or several, have this selector."""
    if isinstance(selector, int):
        return nvml.nvmlDeviceGetHandleByIndex(selector)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(selector)
    except nvml.NVMLError:
        # CUDA accepts the beginning of a UUID, NVML does not.
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        matches = [h for h in handles if decode(nvml.nvmlDeviceGetUUID(h)).startswith(selector)]
        if len(matches) != 1:
            raise
        return matches[0]


class Gpu:
    """One GPU, sampled through NVML.

    `error`: why the last sample is empty, or None.
    """

    def __init__(self, nvml: ModuleType, selector: int | str, clock: Callable[[], float]) -> None:
        self.selector = selector
        self.energy = _Energy()
        self.error: str | None = None
        self._nvml = nvml
        self._clock = clock
        self._handle = None

    def sample(self) -> dict[str, Any]:
        """The readings of this moment, with the fields that the docstring of this file lists."""
        nvml = self._nvml
        try:
            self.error = None
            if self._handle is None:
                self._handle = find_gpu(nvml, self.selector)
        except Exception as error:
            self.error = str(error)
        utilisation = self._query("nvmlDeviceGetUtilizationRates")
        memory = self._query("nvmlDeviceGetMemoryInfo")
        milliwatts = self._query("nvmlDeviceGetPowerUsage")
        power_time_s = self._clock()
        millijoules = self._query("nvmlDeviceGetTotalEnergyConsumption")
        sensor = nvml.NVML_TEMPERATURE_GPU
        # The second name of two is deprecated; older drivers have no other.
        temperature = self._query("nvmlDeviceGetTemperatureV", sensor)
        if temperature is None:
            temperature = self._query("nvmlDeviceGetTemperature", sensor)
        reasons = self._query("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._query("nvmlDeviceGetCurrentClocksThrottleReasons")
        power_w = None if milliwatts is None else milliwatts / 1000
        values = {
            "utilisation_percent": None if utilisation is None else utilisation.gpu,
            "memory_used_bytes": None if memory is None else memory.used,
            "power_w": power_w,
            "temperature_c": temperature,
            "clock_sm_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "clock_memory_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "other_gpu_processes": _count_others(
                self._query("nvmlDeviceGetComputeRunningProcesses")
            ),
            "throttle_reasons": None if reasons is None else throttle_reasons(reasons),
        }
        energy_j = self.energy.add(millijoules, power_w, power_time_s)
        if all(value is None for value in values.values()):
            self.error = self.error or "NVML has no readings of it"
            self._handle = None  # the next sample looks for the GPU again
        return {
            "gpu": self.selector,
            **values,
            "energy_j": None if energy_j is None else round(energy_j, 3),
        }

    def _query(self, name, *arguments):
        """The result of a call of NVML for this GPU; None if the driver or pynvml lacks it."""
        return None if self._handle is None else _quiet(self._nvml, name, self._handle, *arguments)


def _count_others(processes):
    """The number of a GPU's processes that are not of this run.

    None if none of this run is listed: it does not use the GPU yet, or the driver sees another PID
    because of a container, so that processes of this run cannot be told from others.
    """
    pids = {process.pid for process in processes or ()}
    ours = sum(map(_is_ours, pids))
    return len(pids) - ours if ours else None


def _is_ours(pid):
    supervisor = os.environ.get(SUPERVISOR)
    if pid == os.getpid() or not supervisor:
        return pid == os.getpid()
    with contextlib.suppress(OSError):
        return orphans.has_variables(Path(f"/proc/{pid}"), {SUPERVISOR: supervisor})
    return False


def find_nvml(environments: Iterable[Path]) -> None:
    """Make pynvml importable from an environment that has it, if this Python lacks it.

    It is one file without dependencies, so any Python can load it.

    `environments`: folders of Python environments.
    """
    if "pynvml" in sys.modules or importlib.util.find_spec("pynvml"):
        return
    found = (path for folder in environments for path in folder.glob(f"lib/python3*/{PYNVML}"))
    if path := next(found, None):
        spec = importlib.util.spec_from_file_location("pynvml", path)
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["pynvml"] = module


class _Energy:
    """Joules of one GPU since the first sample; None after a sample without a reading.

    The first sample decides the source: the driver's counter (mJ since the driver
    was loaded, Volta or later, renewed every 20 to 100 ms), else the integral of
    power by the trapezoid rule, which spans samples without power. Without a
    reading in the first sample there is no energy: its start is unknown.

    `integral_j`: that integral, also beside a counter; None after a sample without power.
    """

    def __init__(self):
        self.source = None
        self.joules = None
        self.integral_j: float | None = 0.0
        self._sum_j = 0.0
        self._last = self._last_power = None
        self._started = False

    def add(self, counter_mj, power_w, now_s):
        if power_w is None or self.integral_j is None:
            self.integral_j = None
        elif self._last_power:
            last_w, last_s = self._last_power
            self.integral_j += (now_s - last_s) * (last_w + power_w) / 2
        self._last_power = power_w, now_s
        if not self._started:
            self._started = True
            if counter_mj is not None:
                self.source = COUNTER
            elif power_w is not None:
                self.source = INTEGRATED
        reading = {COUNTER: counter_mj, INTEGRATED: power_w}.get(self.source)
        if reading is None:
            self.joules = None
            return None
        if self._last is not None:
            self._sum_j += self._since_last_j(reading, now_s)
        self._last = reading, now_s
        self.joules = self._sum_j
        return self.joules

    def _since_last_j(self, reading, now_s):
        last, last_s = self._last
        if self.source == INTEGRATED:
            return (now_s - last_s) * (last + reading) / 2
        # A counter below its last value was reset to 0.
        return (reading - last if reading >= last else reading) / 1000


def decode(value: Any) -> Any:
    """A value of NVML; old versions of pynvml return text as bytes."""
    return value.decode() if isinstance(value, bytes) else value


# What lies between two GPUs (nvmlGpuTopologyLevel_t), as nvidia-smi topo names it.
LEVELS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# The oldest driver for the libraries of a major version of CUDA, on Linux.
# Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Versions".
MIN_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
CUDA_PACKAGES = tuple(f"nvidia-cuda-runtime{suffix}" for suffix in ("", "-cu13", "-cu12", "-cu11"))
SMI_TIMEOUT_S = 60.0  # it takes seconds if the driver was not loaded, and may hang on a broken GPU
VERSION = re.compile(r"^\d+(\.\d+)+$", re.M)  # a line of its own; failures are printed to stdout
NVLINK, P2P_OK = 2, 0  # of nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t
NONE: dict[str, Any] = {
    "driver": None,
    "cuda_driver": None,
    "kinds": [],
    "devices": [],
    "links": [],
}


def gather_facts(selectors: Sequence[int | str], unknown: dict[str, str]) -> dict[str, Any]:
    """Facts of the GPUs of a process; `unknown` gets the reasons for those that are None."""
    if not selectors:  # NVML takes long to start
        return NONE
    with _nvml(unknown) as nvml:
        return _facts(_Queries(nvml, unknown), selectors) if nvml else NONE


def describe_old_driver() -> str:
    """That this node's driver is older than this Python's CUDA needs; "" if it is not, or unknown.

    CUDA's compatibility libraries may do without a newer one, so this is no reason to refuse a run.
    """
    versions = filter(None, map(_package_version, CUDA_PACKAGES))
    driver = gather_facts((0,), {})["driver"]
    if not (cuda := next(versions, None)) or not driver:
        return ""
    if not (needed := newer_driver(cuda, driver)):
        return ""
    return (
        f"the packages of this Python have CUDA {cuda}, which needs driver {needed} or newer, and "
        f"this node has {driver}: update the driver, install CUDA's compatibility libraries, or "
        "choose an environment with an older CUDA"
    )


def newer_driver(cuda: str, driver: str) -> str | None:
    """The oldest driver for a version of CUDA, if a driver is older; None if it is not, or unknown.

    >>> newer_driver("13.0.96", "535.104.05"), newer_driver("12.8.90", "535.104.05")
    ('580.65.06', None)
    """
    needed = MIN_DRIVERS.get(next(iter(_numbers(cuda)), 0))
    known = needed and _numbers(driver)
    return needed if needed and known and known < _numbers(needed) else None


def installed_driver() -> str | None:
    """The version of the driver that nvidia-smi lists; None if there is none, or it fails."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SMI_TIMEOUT_S
        )
        if not listed.returncode and (found := VERSION.search(listed.stdout)):
            return found[0]
    return None


def _numbers(version):
    return tuple(map(int, re.findall(r"\d+", version)))


def _package_version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class _Queries:
    """Calls of NVML; a call that fails returns None and adds its reason to `unknown`."""

    def __init__(self, nvml, unknown):
        self.nvml, self.unknown = nvml, unknown

    def __call__(self, name, *arguments, read=None):
        try:
            answer = decode(getattr(self.nvml, name)(*arguments))
            return read(answer) if read else answer
        except Exception as error:
            self.unknown[f"gpus.{name}"] = f"{type(error).__name__}: {error}"
            return None


def _facts(query, selectors):
    kinds, devices = [], []
    for selector in selectors:
        try:
            handle = find_gpu(query.nvml, selector)
        except Exception as error:
            query.unknown[f"gpus.{selector}"] = str(error)
            continue
        kind, device = _gpu(query, handle)
        devices.append({"selector": selector, **device})
        if kind not in kinds:
            kinds.append(kind)
    return {
        "driver": query("nvmlSystemGetDriverVersion"),
        "cuda_driver": query("nvmlSystemGetCudaDriverVersion_v2", read=_cuda_version),
        "kinds": sorted(kinds, key=str),
        "devices": devices,
        "links": _links(query),
    }


def _gpu(query, handle):
    """(facts of its kind, facts of this device)."""
    nvml, board = query.nvml, handle
    if _quiet(nvml, "nvmlDeviceIsMigDeviceHandle", handle):
        board = query("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle
    clocks = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    kind = {
        "name": query("nvmlDeviceGetName", handle),
        "memory_bytes": query("nvmlDeviceGetMemoryInfo", handle, read=lambda m: m.total),
        "compute_capability": query("nvmlDeviceGetCudaComputeCapability", board, read=_dotted),
        "vbios": query("nvmlDeviceGetVbiosVersion", board),
        "pcie_generation": query("nvmlDeviceGetMaxPcieLinkGeneration", board),
        "pcie_width": query("nvmlDeviceGetMaxPcieLinkWidth", board),
        "nvlinks": _nvlinks(nvml, board),
        **{
            f"clock_{name}_max_mhz": query("nvmlDeviceGetMaxClockInfo", board, number)
            for name, number in clocks.items()
        },
        **{
            f"clock_{name}_application_mhz": query("nvmlDeviceGetApplicationsClock", board, number)
            for name, number in clocks.items()
        },
        "power_limit_w": query("nvmlDeviceGetEnforcedPowerLimit", board, read=_watts),
        "power_limit_default_w": query(
            "nvmlDeviceGetPowerManagementDefaultLimit", board, read=_watts
        ),
        "ecc": query("nvmlDeviceGetEccMode", board, read=_current),
        "persistence": query("nvmlDeviceGetPersistenceMode", board, read=bool),
        "mig": query("nvmlDeviceGetMigMode", board, read=_current),
        "compute_mode": query("nvmlDeviceGetComputeMode", board, read=COMPUTE_MODES.get),
    }
    device = {
        "uuid": query("nvmlDeviceGetUUID", handle),
        "pci": query("nvmlDeviceGetPciInfo", board, read=lambda pci: decode(pci.busId)),
        # Both fall when a GPU idles.
        "pcie_generation": query("nvmlDeviceGetCurrPcieLinkGeneration", board),
        "pcie_width": query("nvmlDeviceGetCurrPcieLinkWidth", board),
        **{
            f"clock_{name}_mhz": query("nvmlDeviceGetClockInfo", board, number)
            for name, number in clocks.items()
        },
    }
    return kind, device


def _links(query):
    """[first index, second index, "NVLink" or a level] of each pair."""
    count = query("nvmlDeviceGetCount") or 0
    handles = [query("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [
        [a, b, _link(query, handles[a], handles[b])]
        for a, b in itertools.combinations(range(count), 2)
        if None not in (handles[a], handles[b])
    ]


def _link(query, one, other):
    if _quiet(query.nvml, "nvmlDeviceGetP2PStatus", one, other, NVLINK) == P2P_OK:
        return "NVLink"
    return query("nvmlDeviceGetTopologyCommonAncestor", one, other, read=LEVELS.get)


def _nvlinks(nvml, board):
    """The number of NVLinks that are up; 0 for a GPU without NVLink, for which the call fails."""
    most = getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)
    return sum(_quiet(nvml, "nvmlDeviceGetNvLinkState", board, n) == 1 for n in range(most))


def _quiet(nvml, name, *arguments):
    """The result of a call; None if it fails, which is an answer, too."""
    try:
        return getattr(nvml, name)(*arguments)
    except Exception:
        return None


def _watts(milliwatts):
    return milliwatts / 1000


def _current(modes):
    return bool(modes[0])  # the other is pending, until the next boot


def _dotted(numbers):
    return ".".join(map(str, numbers))


def _cuda_version(number):
    """
    >>> _cuda_version(12040)
    '12.4'
    """
    return f"{number // 1000}.{number % 1000 // 10}"


PCI, KFD = "sys/bus/pci/devices", "sys/class/kfd/kfd/topology/nodes"
CUDA, ROCR, HIP = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuPlace:
    """One GPU, or a MIG device with the place of its board.

    Attributes:
        uuid: unique over all nodes.
        pci: its address, as /sys/bus/pci/devices writes it; None: not known.
        numa_node: to which it is attached; None: not known.
        cpus: numbers of the CPUs near it; empty: not known.
    """

    uuid: str
    pci: str | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()


def visible_places(
    files: Files | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[GpuPlace, ...] | None:
    """The GPUs that a process sees, in the order of its framework; None: not known.

    `files`: of the root whose /sys is read.

    Raises Error: CUDA_VISIBLE_DEVICES names a missing GPU, one twice, or MIG devices beside whole
    GPUs.
    """
    files = files or Files()
    with _nvml({}) as nvml:
        try:
            if nvml and nvml.nvmlDeviceGetCount():
                return tuple(_nvidia(nvml, files, environ))
        except Error:
            raise
        except Exception:  # a GPU is lost, a call is missing: the framework says more
            return None
    amd = _amd(files)
    return tuple(_of_rocm(amd, environ)) if amd else None


@contextlib.contextmanager
def _nvml(unknown: dict[str, str]) -> Iterator[ModuleType | None]:
    """The module pynvml, ready for calls; None, with a reason, without it or a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        unknown["gpus"] = f"NVML does not start: {error}"
        yield None
        return
    try:
        yield pynvml
    finally:
        with contextlib.suppress(Exception):
            pynvml.nvmlShutdown()


def _nvidia(nvml, files, environ):
    count = nvml.nvmlDeviceGetCount()
    listed = environ.get(CUDA)
    selectors = visible_gpus(0, count if listed is None else len(listed), environ)
    mig = [isinstance(name, str) and name.startswith("MIG-") for name in selectors]
    if any(mig) and not all(mig):
        raise Error(
            f"{CUDA}={listed} has MIG devices beside whole GPUs, of which CUDA shows one MIG "
            "device alone: name MIG devices only, or whole GPUs only"
        )
    uuids = set()
    for selector in selectors:
        if isinstance(selector, int) and selector >= count:
            return  # there CUDA's list ends, too
        place = _nvidia_place(nvml, files, _handle(nvml, selector, listed))
        if place.uuid in uuids:
            raise Error(
                f"{CUDA}={listed} names {place.uuid} twice ({selector}), for which CUDA shows no "
                "GPU at all: name each once"
            )
        uuids.add(place.uuid)
        yield place


def _handle(nvml, selector, listed):
    try:
        return find_gpu(nvml, selector)
    except Exception as error:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        uuids = [decode(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        raise Error(
            f"{CUDA}={listed}: {selector} is not on this node ({error}); the driver shows "
            f"{', '.join(uuids)}: was it set for another node, or does the job have other GPUs?"
        ) from error


def _nvidia_place(nvml, files, handle):
    board = handle
    with contextlib.suppress(Exception):  # drivers without MIG lack the call
        if nvml.nvmlDeviceIsMigDeviceHandle(handle):
            board = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    uuid = decode(nvml.nvmlDeviceGetUUID(handle))
    pci = pci_address(decode(nvml.nvmlDeviceGetPciInfo(board).busId))
    node, cpus = _near(files, pci)
    if not cpus:
        cpus = _ideal_affinity(nvml, files, board)
    return GpuPlace(uuid, pci, node, cpus)


def pci_address(bus_id: str) -> str:
    """The kernel's PCI address of the device with NVML's bus id.

    >>> pci_address("00000000:1B:00.0"), pci_address("00010000:1B:00.0")
    ('0000:1b:00.0', '10000:1b:00.0')
    """
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


KERNEL_LOG, RECORD_BYTES = Path("/dev/kmsg"), 1 << 16
# NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 00000008, ... MMU Fault: ...
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<gpu>[\da-f:]+)[^)]*\): (?P<xid>\d+)(?:, (?:pid|name)=[^,\n]*)*"
    r"(?:, (?P<message>[^\n]*))?",
    re.IGNORECASE,
)


class KernelLog:
    """The errors (Xid) of some GPUs, by their selectors, that the kernel logs from now on.

    Few users may read its log (kernel.dmesg_restrict): for others there are none. Sources:
    https://docs.nvidia.com/deploy/xid-errors/ for what the numbers mean, and
    https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg, of which each read is a record.
    """

    def __init__(
        self, nvml: ModuleType, selectors: Iterable[int | str], path: Path = KERNEL_LOG
    ) -> None:
        self._gpus: set[str] = set()
        self._file: int | None = None
        for selector in selectors:
            with contextlib.suppress(Exception):  # a GPU is lost
                place = _nvidia_place(nvml, Files(), find_gpu(nvml, selector))
                self._gpus.add(str(place.pci).partition(".")[0])
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def errors(self) -> list[dict[str, Any]]:
        """Those since the last call: `gpu`, its PCI address; `xid`, the number; `message`."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(
            OSError
        ):  # no more, or some are overwritten: the next call goes on
            while self._file is not None and (record := os.read(self._file, RECORD_BYTES)):
                text = record.decode(errors="replace")
                found += [match.groupdict("") for match in _XID.finditer(text)]
        ours = [error for error in found if error["gpu"].lower() in self._gpus]
        return [error | {"xid": int(error["xid"])} for error in ours]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def describe_errors(errors: Iterable[Mapping[str, Any]]) -> str:
    """A sentence about the errors of a run's GPUs, as its record has them; "" without any."""
    texts = [
        f"{error['times']} x Xid {error['xid']} of GPU {error['gpu']} on {error['host']}"
        + (f" ({phrases.short(error['message'])})" if error["message"] else "")
        for error in errors
    ]
    return f"the kernel logged errors of its GPUs: {', '.join(texts)}" if texts else ""


def _near(files: Files, pci: str) -> tuple[int | None, tuple[int, ...]]:
    """(NUMA node, CPUs) of a PCI device; (None, ()) if the firmware does not tell."""
    with contextlib.suppress(OSError, ValueError):
        node = int(files.text(f"{PCI}/{pci}/numa_node"))
        if node >= 0:
            return node, tuple(expand(files.text(f"{PCI}/{pci}/local_cpulist")))
    return None, ()


def _ideal_affinity(nvml, files, handle):
    """The CPUs that NVML considers near; () if these are all, which says nothing."""
    with contextlib.suppress(Exception):
        online = set(expand(files.text(f"{CPU}/online")))
        masks = nvml.nvmlDeviceGetCpuAffinity(handle, math.ceil((max(online) + 1) / 64))
        cpus = [
            64 * place + bit
            for place, mask in enumerate(masks)
            for bit in range(64)
            if mask >> bit & 1
        ]
        if set(cpus) < online:
            return tuple(cpus)
    return ()


def _amd(files: Files) -> list[GpuPlace]:
    """AMD's GPUs in the order of ROCm: nodes of the kernel's topology that have SIMD units."""
    places = []
    for node in files.paths(f"{KFD}/*"):
        with contextlib.suppress(OSError, ValueError):  # a control group may hide other GPUs
            facts = dict(line.split() for line in files.text(f"{node}/properties").splitlines())
            if int(facts["simd_count"]):
                location = int(facts["location_id"])
                pci = (
                    f"{int(facts.get('domain', 0)):04x}:{location >> 8 & 0xFF:02x}:"
                    f"{location >> 3 & 0x1F:02x}.{location & 7}"
                )
                places.append(
                    GpuPlace(f"GPU-{int(facts['unique_id']):016x}", pci, *_near(files, pci))
                )
    return places


def _of_rocm(places: list[GpuPlace], environ: Mapping[str, str]) -> list[GpuPlace]:
    """AMD's GPUs that ROCR_VISIBLE_DEVICES and then HIP_VISIBLE_DEVICES leave visible."""
    for name in (ROCR, HIP if HIP in environ else CUDA):
        if name in environ:
            places = list(_named(places, name, environ[name]))
    return places


def _named(places: list[GpuPlace], name: str, listed: str) -> Iterator[GpuPlace]:
    by_name: dict[Any, GpuPlace] = dict(enumerate(places)) | {gpu.uuid: gpu for gpu in places}
    for entry in (entry.strip() for entry in listed.split(",")):
        selector = int(entry) if entry.isdecimal() else entry.replace("GPU-0x", "GPU-")
        if entry.startswith("GPU-") and selector not in by_name:
            raise Error(
                f"{name}={listed}: {entry} is not on this node; the kernel shows "
                f"{', '.join(gpu.uuid for gpu in places) or 'none'}"
            )
        if selector not in by_name:
            return
        yield by_name[selector]
