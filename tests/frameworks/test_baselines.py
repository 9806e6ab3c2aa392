"""Baselines measured through each framework: collectives of two devices, one device, its reader."""

import dataclasses
import json
import subprocess

import pytest

from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers import framework_runs
from support.trainers.training_runs import command_of

PROGRAM = REPOSITORY / "workflow_scripts" / "measure_baselines.py"
SHORT = ("--calibration-s", "1")  # what is attained is not what is tested
TWO = {
    "horovod": {"strategy": "horovod", "launcher": "horovodrun"},
    "mirrored": {"strategy": "mirrored"},
    "multiworker": {"strategy": "multiworker", "launcher": "local"},
    "sharded": {"framework": "jax", "strategy": "sharded"},
    "sharded, two processes": framework_runs.JAX.fields | framework_runs.JAX.two_processes,
    "ddp": framework_runs.PYTORCH.fields | framework_runs.PYTORCH.two_processes,
}

# What the libraries have not, and a word of the reason that the row gives.
LACKING = {
    "horovod": {"sendrecv": "Horovod has no"},
    "mirrored": {"reduce_scatter": "tf.distribute has no", "sendrecv": "tf.distribute has no"},
}
LACKING["multiworker"] = LACKING["mirrored"]
BUS_SHARES = {"all_reduce": 1, "all_gather": 1 / 2, "reduce_scatter": 1 / 2, "sendrecv": 1}


def measured(folder, python, *flags, **fields):
    """What the program writes of a run with these fields."""
    framework = fields.setdefault("framework", "tensorflow")
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=16, steps=1, **fields)
    interpreter, output = python(framework), folder / "baseline.json"
    words = [interpreter, PROGRAM, "--output", output, "--site", "here", *SHORT, *flags]
    words += ["--spec", json.dumps(dataclasses.asdict(run))]
    finished = subprocess.run(
        command_of(run, words, interpreter),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(output.read_text())


@pytest.mark.parametrize("name", TWO)
def test_each_collective_of_the_library_is_measured_over_two_devices(tmp_path, python, name):
    fields = {**TWO[name], "devices_per_node": 2}
    found = measured(tmp_path, python, "--model", "lenet5", **fields)
    lacking = LACKING.get(name, {})
    for measure, share in BUS_SHARES.items():
        rows = [row for row in found["rows"] if row["measure"] == measure]
        if measure in lacking:
            assert [lacking[measure] in row["unknown"] for row in rows] == [True]
            continue
        sizes = [row["size_bytes"] for row in rows]
        assert sizes[0] == 1024 and sizes == sorted(sizes)
        assert sizes[-1] == 4 * 61_706  # LeNet-5's parameters
        for row in rows:
            assert 0 < row["time_low_s"] <= row["time_s"] <= row["time_high_s"] < 5
            expected = share * row["size_bytes"] / row["time_s"] / 1e9
            assert row["value"] == pytest.approx(expected, rel=0.5)
    assert {row["measure"] for row in found["rows"]} == set(BUS_SHARES)
    assert found["conditions"]["strategy"] == fields["strategy"]
    assert len(found["hardware_sha256"]) == 64


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "pytorch"])
def test_one_device_is_measured_with_the_reader_of_its_framework(
    tmp_path, python, digits, framework
):
    read = {"model": "lenet5", "dataset": "digits", "batch_per_device": 32, "folder": str(digits)}
    found = measured(tmp_path, python, "--read", json.dumps(read), framework=framework)
    rows = {row["measure"]: row for row in found["rows"]}
    assert set(rows) == {
        "matrix_product", "memory_copy", "host_to_device", "file_read_cold", "file_read_warm",
        "items_read",
    }  # fmt: skip
    assert 1e-4 < rows["matrix_product"]["value"] < 1e2
    assert rows["items_read"]["value"] > 10 and rows["items_read"]["dataset"] == "digits"
    assert "nothing is copied" in rows["host_to_device"]["unknown"]


def test_a_copy_from_the_host_arrives_under_each_framework(python):
    """On a CPU, whose memory is the host's, this tests the calls, not their speed."""
    code = """
import sys
sys.path.insert(0, {programs!r})
from types import SimpleNamespace
from dlbench.common import plugins
from dlbench.trainer import engine
spec = SimpleNamespace(**{fields!r})
strategy = engine.strategy_of(spec)(spec, "cpu")
made = plugins.load(spec.framework, "engine").Engine(spec, strategy, None)
made.kernels().from_host(1000)(2)
"""
    for framework in ("tensorflow", "jax", "pytorch"):
        run = Run(
            model="lenet5", dataset="synthetic", batch_per_device=1, steps=1, framework=framework
        )
        words = code.format(programs=str(PROGRAM.parent), fields=dataclasses.asdict(run))
        finished = subprocess.run(
            [python(framework), "-c", words], capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
