"""calibration: sizes are chosen, the fastest round counts, and a device is measured once."""

import functools
import json

import pytest

from dlbench.log import event_log
from dlbench.trainer import calibration

calibrate = functools.partial(calibration.calibrate, lasting_s=0.01)  # real clocks: no seconds
MACHINE = {"device_model": "A CPU", "precision": "float32", "versions": {"plain": "1.0"}}


class Clock:
    """Time that passes only by what is computed."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Device:
    """So many FLOP/s, which small matrices do not reach, and bytes a second; with stalls."""

    def __init__(self, clock, flops=5e10, gb_per_s=10.0, half_at=100):
        self.clock, self.flops, self.bytes, self.half_at = clock, flops, gb_per_s * 1e9, half_at
        self.sizes, self.calls = [], 0

    def product(self, size):
        self.sizes.append(size)
        rate = self.flops * size / (size + self.half_at)
        return lambda number: self.spend(number * 2 * size**3 / rate)

    def copy(self, numbers):
        moved = 12 * numbers
        return (lambda number: self.spend(number * moved / self.bytes)), moved

    def spend(self, seconds):
        self.calls += 1
        self.clock.now += seconds * (1.5 if self.calls % 4 == 0 else 1.0)


def test_the_rate_is_that_of_the_largest_product_that_is_short_and_stalls_do_not_count():
    clock = Clock()
    device = Device(clock)
    found = calibration.measure(device, clock)
    assert found["matrix_size"] == max(device.sizes)
    assert found["tflops"] == pytest.approx(0.05, rel=0.12)
    assert found["gb_per_s"] == pytest.approx(10.0)
    assert found["spent_s"] == pytest.approx(clock.now, abs=1e-3)


def test_slow_and_fast_devices_are_measured_in_seconds():
    for flops in (2e9, 1e15):
        clock = Clock()
        calibration.measure(Device(clock, flops, gb_per_s=flops / 5e9), clock)
        assert clock.now < 20


def test_others_that_disturb_for_seconds_and_slow_places_in_memory_do_not_count():
    class Disturbed(Device):
        places = 0

        def product(self, size):
            return self.placed(super().product(size))

        def copy(self, numbers):
            times, moved = super().copy(numbers)
            return self.placed(times), moved

        def placed(self, times):
            self.places += 1
            slower = (1.3, 1.2, 1.0)[self.places % 3]

            def elsewhere(number):
                disturbed = 1.5 if self.clock.now % 2 < 1.4 else 1.0
                begin = self.clock.now
                times(number)
                self.clock.now = begin + (self.clock.now - begin) * slower * disturbed

            return elsewhere

    clock = Clock()
    for _ in range(3):  # each begins at another moment, in another place
        found = calibration.measure(Disturbed(clock, half_at=0), clock)
        assert found["tflops"] == pytest.approx(0.05, rel=0.01)
        assert found["gb_per_s"] == pytest.approx(10.0, rel=0.01)
        clock.now += 0.7


def test_a_machine_is_measured_once_and_anew_where_it_is_another_or_its_file_is_damaged(tmp_path):
    made = []

    def kernels():
        made.append(1)
        return Device(Clock(), flops=1e9)

    def measured(**other):
        log = event_log.EventLog(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl")
        calibrate(kernels, tmp_path / "kept", MACHINE | other, log)
        return json.loads(log.content())

    first, later = measured(), measured()
    assert len(made) == 1
    assert (later["tflops"], later["gb_per_s"]) == (first["tflops"], first["gb_per_s"])
    assert later["kept"] and "kept" not in first
    (path,) = (tmp_path / "kept").iterdir()
    assert json.loads(path.read_text())["machine"] == MACHINE
    measured(precision="tf32")
    assert len(made) == 2
    for number, damage in enumerate(("", '{"machine": {}, "attained": {}}', "[]"), start=3):
        path.write_text(damage)
        measured()
        measured(precision="tf32")
        assert len(made) == number


def test_a_device_that_cannot_be_measured_says_why_and_the_run_stays_well(tmp_path):
    def kernels():
        raise MemoryError("the device is full")

    log = event_log.EventLog(tmp_path / "a.jsonl")
    calibrate(kernels, tmp_path / "kept", MACHINE, log)
    (event,) = event_log.read(tmp_path / "a.jsonl")
    assert event == {"event": "calibration", "unknown": "MemoryError: the device is full"}
