"""Attainable rates of a CPU, measured once through each framework after a run."""

import json

import pytest

from dlbench.log import event_log
from support.trainers import framework_runs
from support.trainers.framework_runs import JAX, PYTORCH, Framework
from support.trainers.training_runs import events

TENSORFLOW = Framework({"framework": "tensorflow"}, {}, {"tensorflow"}, "small_model.py", "")
SHORT = ("--calibration-s", "1")  # what is attained is not what is tested
FRAMEWORKS = {one.name: one for one in (TENSORFLOW, JAX, PYTORCH)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_cpu_is_measured_after_the_first_run_and_not_again(tmp_path, python, name, precision):
    framework, folder = FRAMEWORKS[name], tmp_path / "kept"
    small = framework_runs.small_model(framework, tmp_path)
    flags = ["--calibrations", str(folder), *SHORT, *small]
    fields = {"model": "small_model", "steps": 1, "precision": precision}
    found = []
    for log in ("first", "later"):
        path = tmp_path / log / "train.jsonl"
        kinds = [e["event"] for e in framework.trained(path, python(name), flags=flags, **fields)]
        assert kinds[-2:] == ["run_end", "calibration"]
        found += events(path, "calibration")
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


def test_only_one_process_of_a_run_measures_and_the_run_ends_well(tmp_path, python):
    log = tmp_path / "train.jsonl"
    flags = ["--calibrations", str(tmp_path / "kept"), *SHORT]
    PYTORCH.trained(log, python("pytorch"), flags=flags, steps=1, **PYTORCH.two_processes)
    counts = [len(events(path, "calibration")) for path in event_log.rank_paths(log)]
    assert counts == [1, 0]
