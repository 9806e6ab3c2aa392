"""Sample what a training process, its node and its GPUs use, from a thread inside the process.

Each sample is one `sample` event of the run's log:
    t_s                           when, on the clock of the log
    cpu_percent                   of this process since the last sample, 100 = one core
    memory_bytes                  resident set of this process
and, where the process samples its node (local rank 0 does), of the whole node:
    node_cpu_percent              since the last sample, 100 = all cores busy
    node_memory_available_bytes   what can be allocated without swapping
    load_average_1min
and, where it uses GPUs, `gpus`, one entry a GPU in the order they were given:
    gpu                           its selector: NVML index or UUID
    utilisation_percent           share of NVML's last period (1/6 s to 1 s) in which a kernel ran
    memory_used_bytes             by all processes and the driver
    power_w                       of the board; mean of the last second since Ampere except GA100
    temperature_c                 of the chip
    clock_sm_mhz, clock_memory_mhz
    throttle_reasons              what sets the clocks, [] = nothing; see REASONS
    energy_j                      since the first sample

What cannot be read is None and read again at the next sample. Children of the
process (data loading workers) count for the node, not for the process. NVML
reports memory only of a MIG device: power and clocks are the whole board's.
"""

import contextlib
import os
import threading
import time

from dlbench import Error

PATIENCE_S = 5.0  # for a sample under way when stop() comes: a broken driver may never answer
COUNTER = "counter"
INTEGRATED = "integrated power"

# Bits of NVML's clocks event reasons (once: clocks throttle reasons), as nvml.h numbers them;
# older pynvml lack the last. All are kept, also those that slow nothing down:
# gpu_idle shows a GPU that waits for data, applications_clocks_setting clocks that someone fixed.
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


class Sampler:
    """Samples every `interval_s` seconds from start() to stop(); no failure of it ends training.

    Args:
        log: has `write(event, **values)`, which threads may share, and `now()` in seconds.
        interval_s: seconds between samples, above 0.
        gpus: NVML selectors of the GPUs this process uses, see `visible_gpus`.
        node: whether to sample the node as a whole too.
        clock: monotonic seconds, for the schedule, CPU shares and integrated power.
    """

    def __init__(self, log, interval_s=1.0, gpus=(), node=True, clock=time.monotonic):
        if not interval_s > 0:
            raise Error(f"interval_s is {interval_s}: expected seconds between samples, above 0")
        self._log = log
        self._interval_s = interval_s
        self._selectors = tuple(gpus)
        self._clock = clock
        self._process = _Process(clock)
        self._node = _Node() if node else None
        self._nvml = None
        self._gpus = []
        self._ended = threading.Event()
        self._thread = None
        self._totals = None

    def start(self):
        """Take the first sample, then go on in the background.

        Returns:
            dict: `interval_s`, `node`, `gpus` (the selectors) and `gpus_not_sampled`, the
            reason why some or all of them gave no first sample, None where all did.
        """
        reasons = self._open_gpus()
        self._started_s = self._clock()
        self._process.begin()
        self._sample()
        reasons += [f"GPU {gpu.selector}: {gpu.error}" for gpu in self._gpus if gpu.error]
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()
        return {
            "interval_s": self._interval_s,
            "node": self._node is not None,
            "gpus": list(self._selectors),
            "gpus_not_sampled": "; ".join(reasons) or None,
        }

    def stop(self):
        """Take the last sample and end the thread; at once, but for a sample under way.

        Returns:
            dict: over the time from start() to now
            - energy_j: of all given GPUs; None where the first or the last sample lacks one
              of them, for a part of the energy is no answer
            - energy_source: "counter" (NVML's, in the driver), or "integrated power" where at
              least one GPU has no counter, or None where energy_j is None
            - cpu_time_s: CPU seconds of this process, all threads, user and system
            - peak_memory_bytes: highest resident set since the process began (VmHWM)
        """
        if self._thread is None:
            raise Error("stop() before start(): nothing was sampled")
        if self._totals is None:
            self._ended.set()
            self._thread.join(PATIENCE_S)
            hangs = self._thread.is_alive()
            if not hangs:
                self._sample()
            energy_j, energy_source = (None, None) if hangs else self._energy()
            self._totals = {
                "energy_j": energy_j,
                "energy_source": energy_source,
                "cpu_time_s": self._process.cpu_time_s(),
                "peak_memory_bytes": _reading(self._process.peak_memory_bytes),
            }
            if not hangs:
                self._close()
        return dict(self._totals)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def _open_gpus(self):
        """Make NVML ready. Returns reasons why there will be no GPUs in the samples."""
        if not self._selectors:
            return []
        try:
            import pynvml

            pynvml.nvmlInit()
        except ImportError as error:
            return [f"the package nvidia-ml-py is missing: {error}"]
        except Exception as error:
            return [f"NVML does not start, is the driver loaded? {error}"]
        self._nvml = pynvml
        self._gpus = [_Gpu(pynvml, selector, self._clock) for selector in self._selectors]
        return []

    def _run(self):
        number = 0
        while True:
            elapsed_s = self._clock() - self._started_s
            number = next_sample(number, elapsed_s, self._interval_s)
            if self._ended.wait(max(0.0, number * self._interval_s - elapsed_s)):
                return
            self._sample()

    def _sample(self):
        # Whatever goes wrong, a full disk included: a benchmark does not end for its thermometer.
        with contextlib.suppress(Exception):
            values = {"t_s": round(self._log.now(), 6), **self._process.sample()}
            if self._node:
                values.update(self._node.sample())
            if self._gpus:
                values["gpus"] = [gpu.sample() for gpu in self._gpus]
            self._log.write("sample", **values)

    def _energy(self):
        """(joules of all GPUs, where they come from), (None, None) where one is missing."""
        joules = [gpu.energy.joules for gpu in self._gpus]
        if not joules or None in joules:
            return None, None
        sources = {gpu.energy.source for gpu in self._gpus}
        return round(sum(joules), 3), COUNTER if sources == {COUNTER} else INTEGRATED

    def _close(self):
        self._process.close()
        if self._node:
            self._node.close()
        if self._nvml:
            # NVML counts its users: the framework's own NVML stays.
            _reading(self._nvml.nvmlShutdown)


def next_sample(number, elapsed_s, interval_s):
    """Number of the sample to take next; sample n is due n intervals after the start.

    Due dates never move, so a late sample delays no other; those missed are left out.

    >>> next_sample(3, 3.2, 1.0), next_sample(3, 6.9, 1.0), next_sample(3, 2.999999, 1.0)
    (4, 7, 4)
    """
    return max(number, int(elapsed_s / interval_s)) + 1


def visible_gpus(first, count, environ=os.environ):
    """NVML selectors of `count` GPUs from the `first` of those that CUDA shows this process.

    Reads CUDA_VISIBLE_DEVICES as CUDA does: indices or UUIDs (these may be cut short), and
    the first entry that is neither (-1, an empty one) ends the list. Where it is unset, all GPUs
    in order. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or CUDA's indices are not NVML's. An index that
    the machine lacks ends CUDA's list too; that is not checked, sampling finds it.

    >>> visible_gpus(1, 2, {"CUDA_VISIBLE_DEVICES": "3,GPU-8932f937,0,-1,1"})
    ('GPU-8932f937', 0)

    Returns:
        tuple: ints and texts; fewer than `count` where the list ends before.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(range(first, first + count))
    selectors = []
    for entry in (entry.strip() for entry in listed.split(",")):
        if entry.isdecimal():
            selectors.append(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            selectors.append(entry)
        else:
            break
    return tuple(selectors[first : first + count])


def throttle_reasons(mask):
    """Names of the bits of NVML's clocks event reasons, the lowest bit first.

    >>> throttle_reasons(0x44), throttle_reasons(0), throttle_reasons(0x8001)
    (['sw_power_cap', 'hw_thermal_slowdown'], [], ['gpu_idle', 'unknown_0x8000'])
    """
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return [REASONS.get(bit, f"unknown_{bit:#x}") for bit in bits]


class _Process:
    """This process: CPU time from CLOCK_PROCESS_CPUTIME_ID (ns), memory from /proc/self."""

    def __init__(self, clock):
        self._clock = clock
        self._memory = _KernelFile("/proc/self/statm")
        self._page_bytes = os.sysconf("SC_PAGESIZE")
        self._last = None

    def begin(self):
        self._cpu_at_start_s = time.process_time()

    def sample(self):
        return {
            "cpu_percent": _reading(self._cpu_percent),
            "memory_bytes": _reading(self._memory_bytes),
        }

    def cpu_time_s(self):
        return round(time.process_time() - self._cpu_at_start_s, 6)

    def peak_memory_bytes(self):
        # Not ru_maxrss: that one begins with the peak of whoever started this process.
        with open("/proc/self/status", "rb") as file:
            return _kibibytes(file.read(), b"VmHWM:")

    def close(self):
        self._memory.close()

    def _cpu_percent(self):
        last, self._last = self._last, (self._clock(), time.process_time())
        if last is None:
            return None
        wall_s, cpu_s = (now - before for now, before in zip(self._last, last, strict=True))
        return round(100 * cpu_s / wall_s, 2)

    def _memory_bytes(self):
        return int(self._memory.read().split()[1]) * self._page_bytes


class _Node:
    """The node as the kernel counts it, beyond our container and control group."""

    def __init__(self):
        self._cpu = _KernelFile("/proc/stat")
        self._memory = _KernelFile("/proc/meminfo")
        self._load = _KernelFile("/proc/loadavg")
        self._last = None

    def sample(self):
        return {
            "node_cpu_percent": _reading(self._cpu_percent),
            "node_memory_available_bytes": _reading(self._memory_available_bytes),
            "load_average_1min": _reading(lambda: float(self._load.read().split()[0])),
        }

    def close(self):
        for file in (self._cpu, self._memory, self._load):
            file.close()

    def _cpu_percent(self):
        """Of ticks of 10 ms; time that a hypervisor took from us (steal) is busy time."""
        # user nice system idle iowait irq softirq steal; the guest times after are in user.
        ticks = [int(value) for value in self._cpu.read().split(b"\n", 1)[0].split()[1:9]]
        last, self._last = self._last, (sum(ticks), ticks[3] + ticks[4])
        if last is None:
            return None
        total, idle = (now - before for now, before in zip(self._last, last, strict=True))
        return round(100 * (1 - idle / total), 2)

    def _memory_available_bytes(self):
        return _kibibytes(self._memory.read(), b"MemAvailable:")


class _KernelFile:
    """A file of /proc that stays open; the kernel writes it anew for each read at 0."""

    def __init__(self, path):
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1  # whose reading fails

    def read(self):
        return os.pread(self._file, 1024, 0)

    def close(self):
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Gpu:
    """One GPU through NVML. `error` says why the last sample of it is empty, None where not."""

    def __init__(self, nvml, selector, clock):
        self.selector = selector
        self.energy = _Energy()
        self.error = None
        self._nvml = nvml
        self._clock = clock
        self._handle = None

    def sample(self):
        nvml = self._nvml
        try:
            self.error = None
            if self._handle is None:
                self._handle = self._find()
        except Exception as error:
            self.error = str(error)
        utilisation = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        power_time_s = self._clock()
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        sensor = nvml.NVML_TEMPERATURE_GPU
        # Where two names are given, the first is new and the second about to go.
        temperature = self._ask("nvmlDeviceGetTemperatureV", sensor)
        if temperature is None:
            temperature = self._ask("nvmlDeviceGetTemperature", sensor)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        power_w = None if milliwatts is None else milliwatts / 1000
        values = {
            "utilisation_percent": None if utilisation is None else utilisation.gpu,
            "memory_used_bytes": None if memory is None else memory.used,
            "power_w": power_w,
            "temperature_c": temperature,
            "clock_sm_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "clock_memory_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "throttle_reasons": None if reasons is None else throttle_reasons(reasons),
        }
        energy_j = self.energy.add(millijoules, power_w, power_time_s)
        if all(value is None for value in values.values()):
            self.error = self.error or "NVML reads nothing of it"
            self._handle = None  # to be found anew
        return {
            "gpu": self.selector,
            **values,
            "energy_j": None if energy_j is None else round(energy_j, 3),
        }

    def _find(self):
        nvml, selector = self._nvml, self.selector
        if isinstance(selector, int):
            return nvml.nvmlDeviceGetHandleByIndex(selector)
        try:
            return nvml.nvmlDeviceGetHandleByUUID(selector)
        except nvml.NVMLError:
            # CUDA knows a GPU by the beginning of its UUID too, NVML does not.
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            found = [h for h in handles if _text(nvml.nvmlDeviceGetUUID(h)).startswith(selector)]
            if len(found) != 1:
                raise
            return found[0]

    def _ask(self, name, *arguments):
        """What NVML says of this GPU; None where it, the driver or pynvml cannot."""
        if self._handle is None:
            return None
        return _reading(lambda: getattr(self._nvml, name)(self._handle, *arguments))


class _Energy:
    """Joules of one GPU since the first sample; None after a sample without a reading.

    The first sample settles the source: the driver's counter (mJ since the driver
    was loaded, Volta or later, renewed every 20 to 100 ms), else the trapezoid
    rule over power, across samples without power too. A GPU without a first
    reading has no energy: its start is unknown.
    """

    def __init__(self):
        self.source = None
        self.joules = None
        self._sum_j = 0.0
        self._last = None
        self._begun = False

    def add(self, counter_mj, power_w, now_s):
        if not self._begun:
            self._begun = True
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
        # A counter below its last value began anew at 0.
        return (reading - last if reading >= last else reading) / 1000


def _reading(read):
    """What `read()` returns, None where it fails, for whatever reason."""
    try:
        return read()
    except Exception:
        return None


def _kibibytes(content, name):
    """The value of one line `Name:   1234 kB`, in bytes."""
    words = content[content.index(name) :].split(maxsplit=2)
    return int(words[1]) * 1024


def _text(value):
    return value.decode() if isinstance(value, bytes) else value  # bytes from old pynvml
