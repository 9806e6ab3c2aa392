"""Which GPUs a process uses, and their readings through NVML.

A sample of one GPU is:
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

A value that cannot be read is None, and the next sample tries again.
For a MIG device NVML reports only its own memory; power and clocks are those of the whole board.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from dlbench.machine.energy import COUNTER, INTEGRATED

SUPERVISOR = "DLBENCH_SUPERVISOR"  # variable of all processes of a run: see leftovers.py

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
    that GPU has an error.

    >>> visible_gpus(1, 2, {"CUDA_VISIBLE_DEVICES": "3,GPU-8932f937,0,-1,1"})
    ('GPU-8932f937', 0)

    Returns:
        Indices and UUIDs; fewer than `count` if the list ends before.
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
    """NVML's handle of a GPU.

    Args:
        nvml: the module pynvml.
        selector: of `visible_gpus`.

    Raises:
        NVMLError: no GPU, or several, have this selector.
    """
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

    Args:
        nvml: the module pynvml.
        selector: of `visible_gpus`.
        clock: returns the time in seconds.

    Attributes:
        error: why the last sample is empty, or None.
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
        if self._handle is None:
            return None
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except Exception:
            return None


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
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{SUPERVISOR}={supervisor}".encode() in file.read().split(b"\0")
    return False


def find_nvml(environments: Iterable[Path]) -> None:
    """Make pynvml importable from an environment that has it, if this Python lacks it.

    It is one file without dependencies, so any Python can load it.

    Args:
        environments: folders of Python environments.
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
    """

    def __init__(self):
        self.source = None
        self.joules = None
        self._sum_j = 0.0
        self._last = None
        self._started = False

    def add(self, counter_mj, power_w, now_s):
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
