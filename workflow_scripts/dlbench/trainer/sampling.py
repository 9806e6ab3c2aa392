"""Sample what a training process, its node and its GPUs use, from a thread inside the process.

Programs of others are sampled from outside: then the processes are all those of the program
(dlbench/imports/train_external.py). Each sample is one `sample` event of the run's log:
    t_s                           when, on the clock of the log
    cpu_percent                   of this process since the last sample, 100 = one core
    memory_bytes                  resident set of this process
and, where the process samples its node (local rank 0 does), of the whole node:
    node_cpu_percent              since the last sample, 100 = all cores busy
    node_memory_available_bytes   what can be allocated without swapping
    load_average_1min
    package_energy_j              of all processors since the first sample, where they count it
    dram_energy_j                 of their memory, where that is counted (dlbench/machine/energy.py)
and, where it uses GPUs, `gpus`, one entry a GPU in the order given, and `xids`, if the kernel has
logged errors of these since the last sample (dlbench/machine/gpus.py).

A value that cannot be read is None, and the next sample tries again. Children of the process (data
loading workers) count for the node, not for the process.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from dlbench import Error
from dlbench.log.event_log import EventLog
from dlbench.machine import energy
from dlbench.machine.gpus import Gpu, KernelLog

PATIENCE_S = 5.0  # stop() waits so long for a running sample: a broken driver may never answer


class Process(Protocol):
    """What a Sampler reads of the processes that train; CPU time counts from begin()."""

    def begin(self) -> None: ...

    def sample(self) -> dict[str, Any]: ...

    def cpu_time_s(self) -> float: ...

    def peak_memory_bytes(self) -> int: ...


class Sampler:
    """Samples every `interval_s` seconds from start() to stop(); no failure of it ends training.

    Args:
        log: gets the samples.
        interval_s: seconds between samples, above 0.
        gpus: NVML selectors of the GPUs this process uses, as `gpus.visible_gpus` says.
        node: whether to sample the node as a whole too.
        clock: monotonic seconds, for the schedule, CPU shares and integrated power.
        counters: folders of energy counters, by reader, instead of Linux's own.
        process: what trains; None: this process.
    """

    def __init__(
        self,
        log: EventLog,
        interval_s: float = 1.0,
        gpus: Iterable[int | str] = (),
        node: bool = True,
        clock: Callable[[], float] = time.monotonic,
        counters: Mapping[str, Path] | None = None,
        process: Process | None = None,
    ):
        if not interval_s > 0:
            raise Error(f"interval_s is {interval_s}: expected seconds between samples, above 0")
        self._log = log
        self._interval_s = interval_s
        self._selectors = tuple(gpus)
        self._clock = clock
        self._process: Process = process or _Process(clock)
        self._node = _Node() if node else None
        self._counters = energy.Counters(clock, interval_s, counters) if node else None
        self._coverage = energy.Coverage(energy.LONGEST_GAP * interval_s)
        self._nvml: Any = None
        self._gpus: list[Gpu] = []
        self._kernel_log: KernelLog | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._totals: dict[str, Any] | None = None

    def start(self) -> dict[str, Any]:
        """Take the first sample and start the thread that takes the others.

        Returns:
            dict: `interval_s`, `node`, `gpus` (the selectors) and `gpus_not_sampled`, the
            reason why some of them gave no first sample, None if all did; if the node is
            sampled also `energy_domains`, the counters of energy that are read.
        """
        self._reasons = reasons = self._open_gpus()
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
            **({"energy_domains": self._counters.domains} if self._counters else {}),
        }

    def stop(self) -> dict[str, Any]:
        """Take the last sample and end the thread; waits only for a sample that is running.

        Returns:
            dict: over the time from start() to now
            - energy_j: of all given GPUs, by NVML; where that has none and the node is sampled,
              of all GPUs of the node, by its counters; None if the first or the last sample lacks
              one of them, as a partial sum would mislead
            - host_energy_j, node_energy_j: of the node, if it is sampled
            - further fields of the energies: see dlbench/machine/energy.py
            - cpu_time_s: CPU seconds of this process, all threads, user and system
            - peak_memory_bytes: highest resident set since the process started (VmHWM)
        """
        if self._thread is None:
            raise Error("stop() before start(): nothing was sampled")
        if self._totals is None:
            self._stopped.set()
            self._thread.join(PATIENCE_S)
            hangs = self._thread.is_alive()
            if not hangs:
                self._sample()
            self._totals = {
                **self._energy(hangs),
                "cpu_time_s": self._process.cpu_time_s(),
                "peak_memory_bytes": _reading(self._process.peak_memory_bytes),
            }
            if not hangs:
                self._close()
        return dict(self._totals)

    def __enter__(self) -> "Sampler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _open_gpus(self):
        """Initialize NVML. Returns the reasons why samples will have no GPUs."""
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
        self._gpus = [Gpu(pynvml, selector, self._clock) for selector in self._selectors]
        self._kernel_log = KernelLog(pynvml, self._selectors)
        return []

    def _run(self):
        number = 0
        while True:
            elapsed_s = self._clock() - self._started_s
            number = next_sample(number, elapsed_s, self._interval_s)
            if self._stopped.wait(max(0.0, number * self._interval_s - elapsed_s)):
                return
            self._sample()

    def _sample(self):
        # No failure of a sample, not even a full disk, may end the benchmark.
        with contextlib.suppress(Exception):
            values = {"t_s": round(self._log.now(), 6), **self._process.sample()}
            if self._node:
                values.update(self._node.sample())
            if self._counters and self._counters.domains:
                values.update(self._counters.sample())
            if self._kernel_log and (xids := self._kernel_log.errors()):
                values["xids"] = xids
            if self._gpus:
                values["gpus"] = [gpu.sample() for gpu in self._gpus]
                known = all(gpu.energy.joules is not None for gpu in self._gpus)
                self._coverage.add(self._clock(), known)
            self._log.write("sample", **values)

    def _energy(self, hangs):
        """The energy fields of the GPUs and, if the node is sampled, of the node."""
        counters = self._counters
        if hangs:
            unknown = f"the last sample did not end within {PATIENCE_S:g} s"
            of_node = energy.fields("host_", None, None, unknown) if counters else {}
            return energy.fields("", None, None, unknown) | of_node
        gpus = [gpu.energy for gpu in self._gpus]
        joules, integrals = ([getattr(e, n) for e in gpus] for n in ("joules", "integral_j"))
        known = bool(joules) and None not in joules
        counter = {each.source for each in gpus} == {energy.COUNTER}
        note = ""
        if counter and known and None not in integrals:
            note = energy.disagreement(sum(joules), sum(integrals))
        found = energy.fields(
            "",
            sum(joules) if known else None,
            f"GPUs: {energy.COUNTER if counter else energy.INTEGRATED}",
            self._why_no_energy(),
            **self._coverage.quality(counter),
            note=note,
        )
        if counters and self._selectors and not known:
            found = counters.fields("") or found
        return found | (counters.fields("host_") | counters.fields("node_") if counters else {})

    def _why_no_energy(self):
        if not self._selectors:
            return "no GPUs"
        return "; ".join(self._reasons) or "a GPU gave no reading at the first or the last sample"

    def _close(self):
        if self._kernel_log:
            self._kernel_log.close()
        if self._nvml:
            # NVML counts its initializations: that of the framework stays valid.
            _reading(self._nvml.nvmlShutdown)


def next_sample(number: int, elapsed_s: float, interval_s: float) -> int:
    """Number of the sample to take next; sample n is due n intervals after the start.

    Due times never move, so a late sample delays no other; missed samples are skipped.

    >>> next_sample(3, 3.2, 1.0), next_sample(3, 6.9, 1.0), next_sample(3, 2.999999, 1.0)
    (4, 7, 4)
    """
    return max(number, int(elapsed_s / interval_s)) + 1


class _Process:
    """This process: CPU time from CLOCK_PROCESS_CPUTIME_ID (ns), memory from /proc/self."""

    def __init__(self, clock):
        self._clock = clock
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
        # Not ru_maxrss, which starts with the peak of the process that started this one.
        with open("/proc/self/status", "rb") as file:
            return _kibibytes(file.read(), b"VmHWM:")

    def _cpu_percent(self):
        last, self._last = self._last, (self._clock(), time.process_time())
        if last is None:
            return None
        wall_s, cpu_s = (now - before for now, before in zip(self._last, last, strict=True))
        return round(100 * cpu_s / wall_s, 2)

    def _memory_bytes(self):
        return int(_kernel_file("/proc/self/statm").split()[1]) * self._page_bytes


class _Node:
    """The whole node as the kernel counts it, not only our container or control group."""

    def __init__(self):
        self._last = None

    def sample(self):
        return {
            "node_cpu_percent": _reading(self._cpu_percent),
            "node_memory_available_bytes": _reading(self._memory_available_bytes),
            "load_average_1min": _reading(lambda: float(_kernel_file("/proc/loadavg").split()[0])),
        }

    def _cpu_percent(self):
        """From ticks of 10 ms; time that a hypervisor took from us (steal) counts as busy."""
        # user nice system idle iowait irq softirq steal; the guest times after are in user.
        ticks = [int(value) for value in _kernel_file("/proc/stat").split(b"\n", 1)[0].split()[1:9]]
        last, self._last = self._last, (sum(ticks), ticks[3] + ticks[4])
        if last is None:
            return None
        total, idle = (now - before for now, before in zip(self._last, last, strict=True))
        return round(100 * (1 - idle / total), 2)

    def _memory_available_bytes(self):
        return _kibibytes(_kernel_file("/proc/meminfo"), b"MemAvailable:")


def _kernel_file(path):
    """The beginning of a file of /proc, as it is now."""
    with open(path, "rb", buffering=0) as file:
        return file.read(1024)


def _reading(read):
    """The result of `read()`; None if it fails for any reason."""
    try:
        return read()
    except Exception:
        return None


def _kibibytes(content, name):
    """The value of one line `Name:   1234 kB`, in bytes."""
    _, kibibytes, _ = content[content.index(name) :].split(maxsplit=2)
    return int(kibibytes) * 1024
