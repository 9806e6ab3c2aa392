"""sampling: what a process, its node and its GPUs use, without harm to the training.

The process and the node are sampled for real. NVML itself was not run: no GPU
is here, so `StandIn` has the NVML functions in use, with the names, arguments,
units and errors of nvidia-ml-py 13.
"""

import doctest
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from dlbench import Error, eventlog, sampling
from dlbench.sampling import Sampler, throttle_reasons, visible_gpus

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Log:
    """Keeps events."""

    def __init__(self):
        self.events = []

    def now(self):
        return time.perf_counter()

    def write(self, event, **values):
        self.events.append({"event": event, **values})


class Clock:
    """Seconds that pass only by `advance`."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class NVMLError(Exception):
    pass


class StandIn:
    """pynvml for two GPUs of 100 W and 200 W; `broken` names functions or GPUs that fail."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    UUIDS = ("GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "MIG-cccc3333-0000")

    def __init__(self, clock, broken=()):
        self.clock = clock
        self.broken = set(broken)
        self.watts = [100, 200, 0]
        self.mask = 0x24
        self.users = 0
        self.found = []

    def __getattribute__(self, name):
        if name in object.__getattribute__(self, "__dict__").get("broken", ()):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def fail_where_broken(self, gpu):
        if gpu in self.broken:
            raise NVMLError("GPU is lost")

    def nvmlInit(self):
        if "driver" in self.broken:
            raise NVMLError("NVML Shared Library Not Found")
        self.users += 1

    def nvmlShutdown(self):
        self.users -= 1

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        self.fail_where_broken(index)
        if index not in (0, 1):
            raise NVMLError("Invalid Argument")
        self.found.append(index)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.UUIDS:
            raise NVMLError("Not Found")
        return self.UUIDS.index(uuid)

    def nvmlDeviceGetUUID(self, handle):
        return self.UUIDS[handle]

    def nvmlDeviceGetUtilizationRates(self, handle):
        self.fail_where_broken(handle)
        return SimpleNamespace(gpu=90 + handle, memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle):
        self.fail_where_broken(handle)
        return SimpleNamespace(used=(handle + 1) * 2**30)

    def nvmlDeviceGetPowerUsage(self, handle):
        self.fail_where_broken(handle)
        return self.watts[handle] * 1000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.fail_where_broken(handle)
        return 5_000_000 + int(self.clock() * self.watts[handle] * 1000)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        self.fail_where_broken(handle)
        return 60 + sensor

    nvmlDeviceGetTemperatureV = nvmlDeviceGetTemperature

    def nvmlDeviceGetClockInfo(self, handle, kind):
        self.fail_where_broken(handle)
        return {self.NVML_CLOCK_SM: 1410, self.NVML_CLOCK_MEM: 1593}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        self.fail_where_broken(handle)
        return self.mask

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons


ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def nvml(monkeypatch):
    stand_in = StandIn(Clock())
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def gpu_sampler(log, nvml, gpus):
    """A sampler that samples at its start, when asked, and at its stop."""
    return Sampler(log, interval_s=1e6, gpus=gpus, node=False, clock=nvml.clock)


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(sampling).failed == 0


# The process and the node, for real.


@linux
def test_a_sample_has_the_process_and_the_node_in_a_log_that_reads_back(tmp_path):
    log = eventlog.EventLog(tmp_path / "train.jsonl")
    log.start()
    with Sampler(log, interval_s=0.1):
        busy(0.15)
    _, *samples = eventlog.read(tmp_path / "train.jsonl")
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


def test_a_sleeping_process_uses_almost_no_cpu(log):
    sampler = Sampler(log, interval_s=1e6)
    sampler.start()
    time.sleep(0.3)
    sampler.stop()
    assert log.events[-1]["cpu_percent"] < 10


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
def test_a_busy_node_and_an_idle_one_differ(log):
    ticks = iter(
        [
            b"cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1\n",
            b"cpu  150 0 110 830 10 0 0 0 99 0\ncpu0 1\n",  # 60 busy, 30 idle, 10 waiting
            b"cpu  150 0 110 830 10 0 0 0 99 0\ncpu0 1\n",  # no tick in between
        ]
    )
    sampler = Sampler(log, interval_s=1e6)
    sampler._node._cpu = SimpleNamespace(read=lambda: next(ticks), close=lambda: None)
    sampler.start()
    sampler._sample()
    sampler.stop()
    assert [event["node_cpu_percent"] for event in log.events] == [None, 60, None]


@linux
def test_stopping_closes_every_file(log):
    import os

    before = len(os.listdir("/proc/self/fd"))
    Sampler(log).__enter__().stop()
    assert len(os.listdir("/proc/self/fd")) == before


# The schedule.


def test_samples_keep_their_schedule_though_each_takes_time(log):
    begun = []

    class Slow(Log):
        def write(self, event, **values):
            begun.append(time.monotonic() - sampler._started_s)
            time.sleep(0.02)

    sampler = Sampler(Slow(), interval_s=0.05, node=False)
    sampler.start()
    time.sleep(0.6)
    sampler.stop()
    # With drift each sample would come 20 ms later than the one before it.
    late_s = [at % 0.05 for at in begun[1:-1]]
    assert len(late_s) >= 5
    assert sorted(late_s)[len(late_s) // 2] < 0.02


def test_missed_samples_are_left_out_and_the_next_is_on_time(log):
    written = []

    class Stuck(Log):
        def write(self, event, **values):
            written.append(time.monotonic() - sampler._started_s)
            if len(written) == 2:
                time.sleep(0.35)  # begun at 0.1, over the dates 0.2, 0.3 and 0.4

    sampler = Sampler(Stuck(), interval_s=0.1, node=False)
    sampler.start()
    time.sleep(0.54)
    sampler.stop()
    assert written[:3] == pytest.approx([0, 0.1, 0.5], abs=0.04)
    assert len(written) == 4  # with the last one, at stop


def test_stop_returns_at_once_also_with_a_long_interval(log):
    sampler = Sampler(log, interval_s=3600)
    sampler.start()
    begun = time.monotonic()
    sampler.stop()
    assert time.monotonic() - begun < 0.5
    assert len(log.events) == 2
    assert not [thread for thread in threading.enumerate() if thread.name == "sampling"]


def test_the_thread_never_keeps_the_process_alive(log):
    sampler = Sampler(log, interval_s=3600)
    sampler.start()
    assert sampler._thread.daemon
    sampler.stop()


def test_totals_come_again_and_nothing_is_written_after_stop(log):
    with Sampler(log) as sampler:
        pass
    assert sampler.stop() == sampler.stop()
    assert len(log.events) == 2


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


def test_a_driver_that_never_answers_does_not_hold_up_the_end(log, nvml, monkeypatch):
    monkeypatch.setattr(sampling, "PATIENCE_S", 0.05)
    answer = threading.Event()
    sampler = Sampler(log, interval_s=0.02, gpus=(0,), node=False)
    sampler.start()
    nvml.nvmlDeviceGetPowerUsage = lambda handle: answer.wait(10)
    time.sleep(0.06)
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)
    answer.set()
    sampler._thread.join()


# GPUs, with the stand-in for NVML.


def test_a_gpu_is_sampled_in_named_units(log, nvml):
    sampler = gpu_sampler(log, nvml, [1])
    assert sampler.start() == {
        "interval_s": 1e6, "node": False, "gpus": [1], "gpus_not_sampled": None,
    }  # fmt: skip
    nvml.clock.now_s = 2.5
    sampler.stop()
    assert log.events[-1]["gpus"] == [
        {
            "gpu": 1, "utilisation_percent": 91, "memory_used_bytes": 2 * 2**30, "power_w": 200,
            "temperature_c": 60, "clock_sm_mhz": 1410, "clock_memory_mhz": 1593,
            "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"], "energy_j": 500,
        }
    ]  # fmt: skip
    assert nvml.users == 0


def test_energy_is_the_difference_of_the_counters_over_all_gpus(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.clock.now_s = 10
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (3000, "counter")
    assert [gpu["energy_j"] for gpu in log.events[0]["gpus"]] == [0, 0]
    assert [gpu["energy_j"] for gpu in log.events[-1]["gpus"]] == [1000, 2000]


def test_a_counter_that_begins_anew_loses_no_more_than_one_interval(log, nvml):
    sampler = gpu_sampler(log, nvml, [0])
    sampler.start()
    nvml.clock.now_s = 10
    sampler._sample()
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 7000
    assert sampler.stop()["energy_j"] == 1007


def test_without_a_counter_power_is_integrated_by_the_trapezoid_rule(log, nvml):
    nvml.broken.add(ENERGY)
    sampler = gpu_sampler(log, nvml, [0])
    sampler.start()
    for now_s, watts in ((1, 300), (3, 100)):
        nvml.clock.now_s, nvml.watts[0] = now_s, watts
        sampler._sample()
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (200 + 400, "integrated power")
    assert [event["gpus"][0]["energy_j"] for event in log.events] == [0, 200, 600, 600]


def test_one_gpu_without_a_counter_makes_the_sum_an_integration(log, nvml):
    counter = nvml.nvmlDeviceGetTotalEnergyConsumption

    def only_the_first(handle):
        if handle:
            raise NVMLError("Not Supported")
        return counter(handle)

    nvml.nvmlDeviceGetTotalEnergyConsumption = only_the_first
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.clock.now_s = 1
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (300, "integrated power")


def test_a_gpu_that_fails_for_a_while_is_found_again_and_its_energy_is_whole(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.broken.add(1)
    for now_s in (1, 2):
        nvml.clock.now_s = now_s
        sampler._sample()
    nvml.broken.clear()
    nvml.clock.now_s = 3
    totals = sampler.stop()
    well, failing = zip(*(event["gpus"] for event in log.events), strict=True)
    assert [gpu["power_w"] for gpu in well] == [100] * 4
    assert [gpu["power_w"] for gpu in failing] == [200, None, None, 200]
    assert set(failing[1].values()) == {1, None}
    assert totals["energy_j"] == 900
    assert nvml.found == [0, 1, 1]


def test_no_energy_is_better_than_a_part_of_it(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.broken.add(1)
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)

    sampler = gpu_sampler(log, nvml, [0, 1])
    assert sampler.start()["gpus_not_sampled"] == "GPU 1: GPU is lost"
    nvml.broken.clear()
    totals = sampler.stop()
    assert totals["energy_j"] is None
    assert log.events[-1]["gpus"][1]["power_w"] == 200


def test_one_reading_that_fails_leaves_the_others(log, nvml):
    nvml.broken.add("nvmlDeviceGetUtilizationRates")
    with gpu_sampler(log, nvml, [0]):
        pass
    gpu = log.events[0]["gpus"][0]
    assert gpu["utilisation_percent"] is None
    assert gpu["memory_used_bytes"] == 2**30


def test_without_a_driver_sampling_goes_on_and_says_why(log, nvml):
    nvml.broken.add("driver")
    sampler = gpu_sampler(log, nvml, [0])
    assert "NVML Shared Library Not Found" in sampler.start()["gpus_not_sampled"]
    assert sampler.stop()["energy_j"] is None
    assert len(log.events) == 2
    assert "gpus" not in log.events[0]


def test_without_pynvml_sampling_goes_on_and_says_why(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = Sampler(log, gpus=[0])
    assert "nvidia-ml-py is missing" in sampler.start()["gpus_not_sampled"]
    sampler.stop()
    assert "gpus" not in log.events[0]


def test_a_run_without_gpus_does_not_touch_nvml(log, nvml):
    nvml.broken.add("driver")
    sampler = Sampler(log)
    assert sampler.start()["gpus_not_sampled"] is None
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)


def test_a_gpu_is_found_by_its_uuid_whole_or_cut_short(log, nvml):
    sampler = gpu_sampler(log, nvml, ["GPU-bbbb2222-0000", "GPU-aaaa", "MIG-cccc3333-0000"])
    assert sampler.start()["gpus_not_sampled"] is None
    sampler.stop()
    gpus = log.events[0]["gpus"]
    assert [gpu["gpu"][:8] for gpu in gpus] == ["GPU-bbbb", "GPU-aaaa", "MIG-cccc"]
    assert [gpu["utilisation_percent"] for gpu in gpus] == [91, 90, 92]


@pytest.mark.parametrize("selector", ["GPU-", "GPU-dddd", 2])
def test_a_gpu_that_is_unknown_or_ambiguous_is_named(log, nvml, selector):
    sampler = gpu_sampler(log, nvml, [selector])
    assert sampler.start()["gpus_not_sampled"].startswith(f"GPU {selector}: ")
    sampler.stop()
    assert log.events[0]["gpus"][0]["power_w"] is None


@pytest.mark.parametrize(
    "gone",
    [
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"),
    ],
)
def test_old_and_new_names_of_nvml_functions_do(log, nvml, gone):
    nvml.broken.update(gone)
    with gpu_sampler(log, nvml, [0]):
        pass
    gpu = log.events[0]["gpus"][0]
    assert gpu["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert gpu["temperature_c"] == 60


def test_every_throttle_reason_has_a_name_and_none_is_an_empty_list():
    assert throttle_reasons(0) == []
    assert throttle_reasons(0x7FF) == list(sampling.REASONS.values())
    assert throttle_reasons(0x801) == ["gpu_idle", "unknown_0x800"]


# Which GPUs are ours.


@pytest.mark.parametrize(
    ("listed", "first", "count", "expected"),
    [
        (None, 2, 2, (2, 3)),
        ("2,1,0", 0, 2, (2, 1)),
        ("2,1,0", 2, 1, (0,)),
        (" 4 , 5 ", 1, 1, (5,)),
        ("GPU-aaaa1111,MIG-cccc", 0, 2, ("GPU-aaaa1111", "MIG-cccc")),
        ("0,2,-1,1", 0, 4, (0, 2)),
        ("0,,1", 0, 2, (0,)),
        ("", 0, 1, ()),
        ("-1", 0, 1, ()),
        ("NoDevFiles", 0, 1, ()),
        ("0", 1, 1, ()),
    ],
)
def test_visible_gpus_are_those_that_cuda_shows(listed, first, count, expected):
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible_gpus(first, count, environ) == expected
