"""What the checks make of logs and traces of GPUs, on made ones."""

import gzip
import json
from types import SimpleNamespace

from dlbench.log import event_log
from tests.gpu.checks import devices, machine, photographs, speed

GIB = 2**30


class Report:
    """Keeps what a check finds."""

    def __init__(self):
        self.numbers, self.faults, self.notes = {}, [], []

    def number(self, name, value, unit=""):
        self.numbers[name] = value

    def note(self, text):
        self.notes.append(text)

    def expect(self, holds, otherwise):
        if not holds:
            self.faults.append(otherwise)
        return bool(holds)


def run_of(samples=(), **end):
    """A run with samples of (seconds, watts, used bytes) of its GPU, and fields of run_end."""
    gpus = [
        {"t_s": t, "gpus": [{"power_w": w, "memory_used_bytes": used, "other_gpu_processes": 0}]}
        for t, w, used in samples
    ]
    return SimpleNamespace(
        events=lambda kind: gpus,
        event=lambda kind: end,
        summary={"images_per_second": 100.0},
        run=SimpleNamespace(mode="train"),
        step_s=lambda: 1.0,
    )


def test_memory_by_nvml_is_that_of_the_allocator_and_of_the_context():
    report = Report()
    run = run_of(
        [(0.0, 90, 2 * GIB), (1.0, 90, 5 * GIB), (2.0, 90, None)],
        peak_allocated_bytes_per_device=[2 * GIB],
        peak_reserved_bytes_per_device=[3 * GIB],
        device_memory_unknown=None,
    )
    speed._memory(report, "bfloat16", run, before=GIB)
    assert report.numbers["bfloat16: memory beside the allocator"] == 1.0
    assert not report.faults
    speed._memory(report, "bfloat16", run, before=4 * GIB)
    assert len(report.faults) == 2  # NVML has less than was allocated, and than was reserved


def test_memory_that_a_framework_does_not_count_is_a_fault_with_its_reason():
    report = Report()
    unknown = {"peak_allocated_bytes_per_device": None, "peak_reserved_bytes_per_device": None}
    run = run_of([(0.0, 90, GIB)], **unknown, device_memory_unknown="not counted")
    speed._memory(report, "float32", run, before=0)
    assert report.faults == ["what is allocated is unknown: not counted"]


def test_energy_is_compared_with_power_over_time():
    samples = [(0.0, 100, 0), (1.0, 300, 0), (2.0, 300, 0)]
    for energy_j, faults in ((500.0, 0), (900.0, 1)):
        report = Report()
        end = {"energy_j": energy_j, "energy_source": "counter", "energy_unknown": None}
        speed._energy(report, "tf32", run_of(samples, **end))
        assert report.numbers["tf32: energy over power x time"] == energy_j / 500
        assert report.numbers["tf32: power at most"] == 300
        assert len(report.faults) == faults


def test_model_flops_are_compared_with_the_peak_and_with_a_product():
    start = {"forward_flops_per_item": 1e12, "device_model": "NVIDIA H100 80GB HBM3"}
    report = Report()
    speed._utilisation(report, "bfloat16", run_of(**start), attained=700.0)
    assert report.numbers["bfloat16: model FLOP/s"] == 300  # forward pass and twice as much back
    assert report.numbers["bfloat16: of the matrix product"] == 300 / 700
    assert not report.faults
    speed._utilisation(report, "bfloat16", run_of(**start), attained=200.0)
    assert report.faults == ["bfloat16: more than a matrix product", "bfloat16: product 0.20"]


def test_copies_are_beside_kernels_as_far_as_their_times_overlap(tmp_path):
    kernels = [{"cat": "kernel", "name": "gemm", "ts": t, "dur": 10} for t in (0, 5, 100)]
    copies = [
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": t, "dur": 10}
        for t in (10, 30)
    ]
    events = [{"ph": "X", **event} for event in kernels + copies]
    with gzip.open(tmp_path / event_log.TRACE, "wt") as file:
        json.dump({"traceEvents": events}, file)
    report, run = Report(), run_of()
    run.log = tmp_path / "train.jsonl"
    assert photographs._copies(report, run) == 0.25
    assert report.numbers["share of them beside kernels"] == 0.25  # from 10 to 15


def test_losses_are_as_far_apart_as_the_two_farthest():
    assert devices.far([1.0, 2.2], [1.0, 2.0]) == (2.2 - 2.0) / 2.0
    assert devices.far([1.0], [1.0, 2.0]) == devices.far([], []) == float("inf")


def test_what_nvidia_smi_prints_is_read_as_the_facts_have_it():
    assert machine._parse_value("Enabled", "ecc") is True
    assert machine._parse_value("[N/A]", "ecc") is None
    assert machine._equal(81559 * 2**20, machine._parse_value("81559", "memory_bytes"))
    assert machine._equal("9.0", machine._parse_value("9.0", "compute_capability"))
    assert not machine._equal(700.0, machine._parse_value("650.00", "power_limit_w"))
    assert not machine._equal(None, 700.0)
