"""sampling: the use of a real process and its node, without harm to the training."""

import os
import sys
import threading
import time

import pytest

from dlbench import Error
from dlbench.log import event_log
from dlbench.trainer import sampling
from dlbench.trainer.sampling import Sampler
from support.trainers.powercap_trees import two_sockets
from support.trainers.sampling_stand_ins import Log

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def log():
    return Log()


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


# The process and the node, for real.


@linux
def test_a_sample_has_the_process_and_the_node_in_a_log_that_reads_back(tmp_path):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    log.start(spec={})
    with Sampler(log, interval_s=0.1):
        busy(0.15)
    _, *samples = event_log.read(tmp_path / "train.jsonl")
    assert len(samples) >= 3
    for sample in samples:
        assert list(sample) == [
            "event", "t_s", "cpu_percent", "memory_bytes",
            "node_cpu_percent", "node_memory_available_bytes", "load_average_1min",
        ]  # fmt: skip
        assert sample["event"] == "sample"
        assert sample["memory_bytes"] > 5e6
        assert sample["node_memory_available_bytes"] > 1e7
        assert sample["load_average_1min"] >= 0
    assert samples[0]["cpu_percent"] is samples[0]["node_cpu_percent"] is None
    assert 0 <= samples[1]["node_cpu_percent"] <= 100


def test_only_the_process_is_sampled_where_another_samples_the_node(log):
    with Sampler(log, node=False):
        pass
    assert list(log.events[0]) == ["event", "t_s", "cpu_percent", "memory_bytes"]


def test_one_busy_thread_is_a_hundred_percent_of_its_time_on_a_core(log):
    sampler = Sampler(log, interval_s=1e6, node=False)
    sampler.start()
    wall_s = time.monotonic()
    busy(0.4)
    wall_s = time.monotonic() - wall_s
    totals = sampler.stop()
    # Others use this machine: what counts is the share of the time that passed.
    assert log.events[-1]["cpu_percent"] == pytest.approx(100 * 0.4 / wall_s, rel=0.1)
    assert totals["cpu_time_s"] == pytest.approx(0.4, abs=0.05)


@linux
def test_allocated_memory_shows_and_its_peak_stays(log):
    sampler = Sampler(log, interval_s=1e6)
    sampler.start()
    content = bytearray(b"x" * 2**25) * 4
    with_content = Sampler(log, interval_s=1e6)
    with_content.start()
    before, during = (event["memory_bytes"] for event in log.events)
    assert during - before > 0.9 * 2**27
    del content
    with_content.stop()
    totals = sampler.stop()
    assert log.events[-1]["memory_bytes"] < during - 0.9 * 2**27
    assert totals["peak_memory_bytes"] >= 0.95 * during


@linux
def test_a_busy_node_and_an_idle_one_differ(log, monkeypatch):
    before = b"cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1\n"
    after = b"cpu  150 0 110 830 10 0 0 0 99 0\ncpu0 1\n"  # 60 busy, 30 idle, 10 waiting
    ticks = iter([before, after, after])
    sampler = Sampler(log, interval_s=1e6)
    read = sampling._kernel_file
    monkeypatch.setattr(
        sampling, "_kernel_file", lambda path: next(ticks) if path == "/proc/stat" else read(path)
    )
    sampler.start()
    sampler._sample()
    sampler.stop()
    assert [event["node_cpu_percent"] for event in log.events] == [None, 60, None]


@linux
def test_stopping_closes_every_file(log):
    before = len(os.listdir("/proc/self/fd"))
    Sampler(log).__enter__().stop()
    assert len(os.listdir("/proc/self/fd")) == before


# The schedule.


@pytest.mark.ci
def test_samples_keep_their_schedule_though_each_takes_time(log):
    begun = []

    class Slow(Log):
        def write(self, event, **values):
            begun.append(time.monotonic() - sampler._started_s)
            time.sleep(0.04)

    sampler = Sampler(Slow(), interval_s=0.1, node=False)
    sampler.start()
    time.sleep(1.15)
    sampler.stop()
    # With drift each sample would come 40 ms later than the one before it.
    late_s = [at % 0.1 for at in begun[1:-1]]
    assert len(late_s) >= 5
    assert sorted(late_s)[len(late_s) // 2] < 0.04


@pytest.mark.ci
def test_missed_samples_are_left_out_and_the_next_is_on_time(log):
    written = []

    class Stuck(Log):
        def write(self, event, **values):
            written.append(time.monotonic() - sampler._started_s)
            if len(written) == 2:
                time.sleep(1.05)  # begun at 0.3, over the dates 0.6, 0.9 and 1.2

    sampler = Sampler(Stuck(), interval_s=0.3, node=False)
    sampler.start()
    time.sleep(1.65)
    sampler.stop()
    assert written[:3] == pytest.approx([0, 0.3, 1.5], abs=0.14)
    assert len(written) == 4  # with the last one, at stop


def test_stop_returns_at_once_also_with_a_long_interval(log):
    sampler = Sampler(log, interval_s=3600)
    sampler.start()
    thread, begun = sampler._thread, time.monotonic()
    assert sampler.stop() == sampler.stop()
    assert time.monotonic() - begun < 60
    assert thread.daemon  # it keeps no process alive
    assert len(log.events) == 2
    assert not [thread for thread in threading.enumerate() if thread.name == "sampling"]


def test_wrong_use_is_named():
    with pytest.raises(Error, match="interval_s is 0"):
        Sampler(Log(), interval_s=0)
    with pytest.raises(Error, match=r"stop\(\) before start"):
        Sampler(Log()).stop()


# Failures.


def test_where_nothing_can_be_read_samples_say_so_and_go_on(log, monkeypatch):
    monkeypatch.setattr(sampling.os, "open", refuse)
    sampler = Sampler(log, interval_s=1e6)
    monkeypatch.setattr("builtins.open", refuse)
    sampler.start()
    totals = sampler.stop()
    monkeypatch.undo()
    missing = ("memory_bytes", "node_cpu_percent", "node_memory_available_bytes")
    for sample in log.events:
        assert [sample[name] for name in (*missing, "load_average_1min")] == [None] * 4
    assert totals["peak_memory_bytes"] is None
    assert totals["cpu_time_s"] >= 0


def refuse(*_, **__):
    raise PermissionError("no")


def test_a_log_that_cannot_be_written_does_not_end_training():
    class Full(Log):
        def write(self, event, **values):
            raise OSError(28, "No space left on device")

    sampler = Sampler(Full(), interval_s=0.01)
    sampler.start()
    time.sleep(0.05)
    assert sampler._thread.is_alive()
    assert sampler.stop()["cpu_time_s"] >= 0


# The energy of processors.


def test_a_node_whose_processors_count_their_energy_has_it_in_samples_and_totals(log, tmp_path):
    tree = two_sockets(tmp_path / "powercap")
    sampler = Sampler(log, interval_s=1e6, counters={"rapl": tree.root})
    assert sampler.start()["energy_domains"][:2] == ["package-0", "package-0/dram"]
    tree.show("intel-rapl:1", 4_000_000)
    totals = sampler.stop()
    assert [sample["package_energy_j"] for sample in log.events] == [0, 3]
    assert (totals["host_energy_j"], totals["host_energy_samples"]) == (3, 2)


def test_processors_that_hide_their_energy_leave_samples_as_they_are(log, tmp_path):
    with Sampler(log, interval_s=1e6, counters={"rapl": tmp_path}) as sampler:
        totals = sampler.stop()
    assert "package_energy_j" not in log.events[0]
    assert totals["host_energy_j"] is None
    assert totals["host_energy_unknown"]
    assert "host_energy_j" not in Sampler(log, node=False).__enter__().stop()
