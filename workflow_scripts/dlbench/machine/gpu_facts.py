"""Facts of the GPUs of a process, their settings and links, read through NVML.

- `kinds` has the facts that GPUs of one kind share, each kind once, so that it does not depend on
  the number of GPUs of a run.
- `devices` has the facts of each GPU: UUID, place on the bus, its present link and clocks.
- `links` has an entry for each pair of all GPUs that NVML shows: NVLink, or what is between the two
  on the PCI bus. The number of NVLinks is a fact of the kind.

A MIG device has its own name and memory; its other facts are those of its board.
"""

import contextlib
import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from dlbench.machine.gpu_readings import decode, find_gpu

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


def gather(selectors: Sequence[int | str], unknown: dict[str, str]) -> dict[str, Any]:
    """Facts of the GPUs of a process.

    Args:
        selectors: of gpu_readings.visible_gpus.
        unknown: dictionary to which the reasons for facts that are None are added.
    """
    if not selectors:  # NVML takes long to start
        return NONE
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # the package or the driver is missing
        unknown["gpus"] = f"NVML does not start: {error}"
        return NONE
    try:
        return _facts(_Queries(pynvml, unknown), selectors)
    finally:
        with contextlib.suppress(Exception):
            pynvml.nvmlShutdown()


def describe_old_driver() -> str:
    """That this node's driver is older than this Python's CUDA needs; "" if it is not, or unknown.

    CUDA's compatibility libraries may do without a newer one, so this is no reason to refuse a run.
    """
    versions = filter(None, map(_package_version, CUDA_PACKAGES))
    driver = gather((0,), {})["driver"]
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
