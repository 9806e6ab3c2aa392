"""Peak memory of devices in each framework, on CPUs: not counted, with the reason."""

import pytest

from support.trainers import framework_runs
from support.trainers.framework_runs import JAX, PYTORCH, Framework
from support.trainers.training_runs import events

TENSORFLOW = Framework({"framework": "tensorflow"}, {}, {"tensorflow"}, "small_model.py", "")


@pytest.mark.parametrize("framework", [TENSORFLOW, JAX, PYTORCH], ids=lambda one: one.name)
def test_a_cpu_has_no_count_but_the_word_of_its_framework_beside_the_resident_set(
    tmp_path, python, framework
):
    log = tmp_path / "train.jsonl"
    flags = framework_runs.small_model(framework, tmp_path)
    framework.trained(log, python(framework.name), flags=flags, model="small_model", steps=1)
    (end,) = events(log, "run_end")
    assert end["peak_allocated_bytes_per_device"] is None
    assert end["peak_reserved_bytes_per_device"] is None
    assert end["device_memory_unknown"] == "the framework does not count it"
    assert end["peak_memory_bytes"] > 50e6
