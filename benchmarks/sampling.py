"""What sampling costs the training process, beside the same readings through psutil.

In rounds, each over its share of the samples:
- microseconds of CPU per sample back to back, written to a log, and the ratio to psutil;
- the same in the background thread, that wakes up for each sample as in training,
  and the per cent of a core at 1 Hz (target: under 1).
Process and node only: what NVML takes for a GPU is a check of tests/gpu.
"""

import tempfile
import time
from pathlib import Path

import psutil

from dlbench.log.event_log import EventLog
from dlbench.trainer.sampling import Sampler

from . import measuring

INTERVAL_S = 0.005  # of the thread here; 1 s would take hours


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    samples = args.samples // args.rounds
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder) / "train.jsonl")
        ours, theirs = Sampler(log, interval_s=1e6), Psutil(log)
        ours.start()
        calls = {
            "ours": lambda: back_to_back(ours._sample, samples),
            "psutil": lambda: back_to_back(theirs.sample, samples),
            "thread": lambda: in_the_thread(log, samples),
        }
        taken_us = measuring.in_turns(args.rounds, calls)
        ours.stop()
    figures = measuring.Figures(args.json)
    figures.add("a sample, back to back, CPU time", taken_us["ours"], "us")
    figures.add("the same over psutil's", measuring.ratios(taken_us["ours"], taken_us["psutil"]))
    figures.add("a sample in the thread, CPU time", taken_us["thread"], "us")
    percent = [us / 1e4 for us in taken_us["thread"]]
    figures.add("sampling at 1 Hz", percent, "% of a core", at_most=1)


def back_to_back(sample, samples):
    """Microseconds of CPU per sample, of this thread."""
    begun = time.thread_time()
    for _ in range(samples):
        sample()
    return (time.thread_time() - begun) / samples * 1e6


def in_the_thread(log, samples):
    """Microseconds of CPU per sample, of the whole process, that does nothing else."""
    counting = Counting(log)
    sampler = Sampler(counting, interval_s=INTERVAL_S)
    sampler.start()
    begun, before = time.process_time(), counting.written
    time.sleep(samples * INTERVAL_S)
    cpu_s, written = time.process_time() - begun, counting.written - before
    sampler.stop()
    return cpu_s / written * 1e6


class Counting:
    """A log that counts what was written: under load, dates are missed."""

    def __init__(self, log):
        self._log = log
        self.now = log.now
        self.written = 0

    def write(self, event, **values):
        self._log.write(event, **values)
        self.written += 1


class Psutil:
    """The peer: the same values into the same log."""

    def __init__(self, log):
        self._log = log
        self._process = psutil.Process()

    def sample(self):
        self._log.write(
            "sample",
            t_s=round(self._log.now(), 6),
            cpu_percent=self._process.cpu_percent(),
            memory_bytes=self._process.memory_info().rss,
            node_cpu_percent=psutil.cpu_percent(),
            node_memory_available_bytes=psutil.virtual_memory().available,
            load_average_1min=psutil.getloadavg()[0],
        )


if __name__ == "__main__":
    main()
