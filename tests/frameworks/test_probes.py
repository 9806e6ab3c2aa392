"""Probes whose items are made up, and rates of a CPU that are measured after a run."""

import json

import pytest

from dlbench.log import event_log
from dlbench.trainer import engine
from support.trainers import framework_runs
from support.trainers.framework_runs import JAX, PYTORCH, Framework
from support.trainers.training_runs import SERVERS, TWO_DEVICES, events, train

HOW = [
    ("tensorflow", TWO_DEVICES[0]),
    ("tensorflow", SERVERS | {"strategy_options": "update=averaged"}),
    ("jax", {"strategy": "sharded"}),
    ("pytorch", {"strategy": "ddp", "launcher": "local"}),
]


@pytest.mark.parametrize(("framework", "how"), HOW, ids=[how["strategy"] for _, how in HOW])
def test_items_that_are_copied_for_each_step_are_those_that_lie_on_the_devices(
    python, digits, tmp_path, framework, how
):
    own = {"framework": framework, "environment": engine.environment(framework), **how}
    own["devices_per_node"] = 2
    losses = []
    for probe in ("synthetic", "copied"):
        log = tmp_path / probe / "train.jsonl"
        fields = {"dataset": "digits", "evaluate": "no", "steps": 6, "warmup_steps": 1}
        finished = train(log, digits, (), python(framework), probe=probe, **own, **fields)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        paths = event_log.rank_paths(log)
        losses.append([event["loss"] for path in paths for event in events(path, "step")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert len(set(losses[0])) > 1


TENSORFLOW = Framework({"framework": "tensorflow"}, {}, {"tensorflow"})


@pytest.mark.parametrize(
    ("framework", "precision"),
    [(TENSORFLOW, "bfloat16"), (JAX, "float32"), (PYTORCH, "bfloat16")],
    ids=lambda value: getattr(value, "name", value),
)
def test_one_process_measures_a_cpu_after_the_first_run_and_not_again(
    tmp_path, python, framework, precision
):
    folder, small = tmp_path / "kept", framework_runs.small_model(framework, tmp_path)
    # What is attained is not what is tested.
    flags = ["--calibrations", str(folder), "--calibration-s", "1", *small]
    fields = {"model": "small_model", "steps": 1, "precision": precision}
    fields |= framework.two_processes
    found = []
    for log in ("first", "later"):
        path = tmp_path / log / "train.jsonl"
        trained = framework.trained(path, python(framework.name), flags=flags, **fields)
        assert [event["event"] for event in trained[-2:]] == ["run_end", "calibration"]
        found.append(trained[-1])
        assert not any(events(other, "calibration") for other in event_log.rank_paths(path)[1:])
    first, later = found
    assert 1e-4 < first["tflops"] < 1e2, first
    assert 0.5 < first["gb_per_s"] < 1e4, first
    assert 1 <= first["spent_s"] < 60
    # Where there are two, they say in what the machine became another one.
    machines = [json.loads(path.read_text())["machine"] for path in folder.iterdir()]
    assert len(machines) == 1, machines
    assert later == {
        "event": "calibration",
        **{key: first[key] for key in ("tflops", "gb_per_s", "matrix_size")},
        "kept": True,
    }
