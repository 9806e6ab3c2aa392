"""The GPUs that a process sees, and where in the node each is: PCI address, NUMA node, near CPUs.

- For NVIDIA's GPUs NVML has UUID and PCI address, and the kernel has the CPUs near that address
  (/sys/bus/pci/devices/*/numa_node and local_cpulist). If the firmware does not tell the kernel
  (numa_node is -1), NVML's ideal affinity is used.
- For AMD's GPUs the kernel's topology has both (/sys/class/kfd), in the order of ROCm.
- If there is neither, for instance without the package pynvml, the visible GPUs are unknown: None.

CUDA_VISIBLE_DEVICES has numbers, GPU-UUIDs (maybe abbreviated) or MIG-UUIDs; ROCR_VISIBLE_DEVICES
has numbers or GPU-UUIDs, and HIP_VISIBLE_DEVICES numbers among those that remain.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dlbench import Error
from dlbench.machine import gpu_readings
from dlbench.machine.hardware import CPU, Files, expand

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


def visible(
    files: Files | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[GpuPlace, ...] | None:
    """The GPUs that a process sees, in the order of its framework; None: not known.

    Args:
        files: of the root whose /sys is read.

    Raises:
        Error: CUDA_VISIBLE_DEVICES names a missing GPU, one twice, or MIG devices beside whole
            GPUs.
    """
    files = files or Files()
    with _nvml() as nvml:
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
def _nvml() -> Iterator[ModuleType | None]:
    """The module pynvml, ready for calls; None without the package or a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _nvidia(nvml, files, environ):
    count = nvml.nvmlDeviceGetCount()
    listed = environ.get(CUDA)
    selectors = gpu_readings.visible_gpus(0, count if listed is None else len(listed), environ)
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
        return gpu_readings.find_gpu(nvml, selector)
    except Exception as error:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        uuids = [gpu_readings.decode(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        raise Error(
            f"{CUDA}={listed}: {selector} is not on this node ({error}); the driver shows "
            f"{', '.join(uuids)}: was it set for another node, or does the job have other GPUs?"
        ) from error


def _nvidia_place(nvml, files, handle):
    board = handle
    with contextlib.suppress(Exception):  # drivers without MIG lack the call
        if nvml.nvmlDeviceIsMigDeviceHandle(handle):
            board = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    uuid = gpu_readings.decode(nvml.nvmlDeviceGetUUID(handle))
    pci = pci_address(gpu_readings.decode(nvml.nvmlDeviceGetPciInfo(board).busId))
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
