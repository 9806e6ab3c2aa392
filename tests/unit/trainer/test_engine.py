"""engine: what belongs to a framework and what frameworks share."""

import dataclasses
import re
import types

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.run_fields import OF_PROGRAMS
from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.study.runs import Run
from dlbench.trainer import engine, flags
from dlbench.trainer.engine import Peak

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)


def run(**fields):
    return dataclasses.replace(RUN, **fields)


def test_each_framework_has_an_engine_and_those_on_keras_share_models():
    assert engine.names() == ["jax", "pytorch", "tensorflow"]
    for framework in engine.names():
        shared = "pytorch/models" if framework == "pytorch" else "keras/models"
        assert engine.plugin_kind(framework, "models") == shared
        constants = plugins.constants(framework, "engine")
        assert {"ENVIRONMENT", "PACKAGES", "OUT_OF_MEMORY", "BY_DESIGN"} <= set(constants)


def test_a_framework_that_another_program_trains_with_is_laid_out_as_tensorflows():
    assert engine.plugin_kind("mxnet", "strategies") == "tensorflow/strategies"
    assert engine.environment("mxnet") == "train"


def test_a_run_by_hand_has_the_environment_of_its_framework_unless_it_names_one():
    words = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "8"]
    words += ["--steps", "5", "--log", "x"]
    assert flags.parse(None, words)[0].environment == "train"
    assert flags.parse(None, [*words, "--framework", "jax"])[0].environment == "jax"
    named = flags.parse(None, [*words, "--framework", "jax", "--environment", "mine"])[0]
    assert named.environment == "mine"


@pytest.mark.parametrize(
    ("framework", "strategy", "devices", "there"),
    [
        ("jax", "mirrored", 1, "sharded, single"),
        ("jax", "horovod", 2, "sharded"),
        ("tensorflow", "sharded", 2, "horovod, mirrored, multiworker, parameter_server"),
        ("pytorch", "mirrored", 1, "ddp, fsdp, hsdp, single"),
    ],
)
def test_a_strategy_of_another_framework_is_named_with_those_that_fit(
    framework, strategy, devices, there
):
    fields = {"framework": framework, "strategy": strategy, "devices_per_node": devices}
    options = "cycle_time_ms=1" if strategy == "horovod" else ""
    of_study = run(**fields, strategy_options=options)
    for asked in (of_study, types.SimpleNamespace(**dataclasses.asdict(of_study))):  # by flags
        reason = engine.unsupported_strategy(asked)
        assert reason.startswith(f"strategy {strategy} is one of ")
        assert reason.endswith(f"not of {framework}; on these devices {framework} has: {there}")
    assert engine.strategy_of(of_study).__module__.endswith(f".{strategy}")
    assert engine.unsupported_strategy(run(framework=framework)) is None


def test_a_field_that_a_framework_lacks_is_named_in_a_study_and_by_hand():
    for framework, field, words in (
        ("jax", "xla", "jax compiles every step with XLA"),
        ("jax", "compile", "compile is a field of framework pytorch"),
        ("tensorflow", "compile", "tensorflow has xla"),
        ("pytorch", "xla", "or say compile: true"),
    ):
        asked = run(framework=framework, **{field: True})
        for one in (asked, types.SimpleNamespace(**dataclasses.asdict(asked))):
            assert words in engine.unsupported(one)
        assert engine.unsupported(run(framework=framework)) is None


def test_a_field_that_is_declared_as_that_of_others_needs_no_word_of_the_framework(monkeypatch):
    declared = engine.DECLARED["recompute"]._replace(frameworks=("jax", "pytorch"))
    monkeypatch.setitem(engine.DECLARED, "recompute", declared)
    reason = "recompute is a field of framework jax and pytorch: leave it out"
    assert engine.unsupported(run(recompute=True)) == reason
    assert engine.unsupported(run(framework="jax", recompute=True)) is None
    assert engine.unsupported(run()) is None
    for name in OF_PROGRAMS:
        assert f"precision {name} is for" in engine.unsupported(run(precision=name))


@pytest.mark.parametrize(
    ("precision", "gpu", "capability", "reason"),
    [
        ("tf32", None, None, "precision tf32 is one of NVIDIA's GPUs; this device is a CPU"),
        ("tf32", "Tesla V100", (7, 0), "needs compute capability 8.0; Tesla V100 has 7.0"),
        ("bfloat16", "Tesla T4", [7, 5], "needs compute capability 8.0; Tesla T4 has 7.5"),
        ("float16", "Tesla M40", (5, 2), "needs compute capability 5.3; Tesla M40 has 5.2"),
    ],
)
def test_a_device_without_the_numbers_of_a_precision_is_refused(precision, gpu, capability, reason):
    with pytest.raises(Error, match=re.escape(reason)):
        engine.check_precision(precision, gpu, capability)


def test_a_device_computes_in_numbers_that_it_has_or_says_nothing_of():
    engine.check_precision("bfloat16", None, None)
    engine.check_precision("tf32", "NVIDIA H100", (9, 0))
    engine.check_precision("float16", "AMD Instinct MI250X", None)
    engine.check_precision("float32", "Tesla K80", (3, 7))


COUNTED = {"a": (5, 8), "b": (7, 7)}


def test_each_device_has_its_own_peaks_in_their_order():
    assert engine.read_peaks("ab", COUNTED.get) == Peak([5, 7], [8, 7], None)


def test_what_is_not_counted_of_one_device_is_not_known_and_named():
    for missing in (None, -1, 0):
        peak = engine.read_peaks("ab", (COUNTED | {"b": (7, missing)}).get)
        assert peak == Peak([5, 7], None, "the framework does not count what is reserved")


def test_a_framework_that_counts_nothing_or_fails_ends_no_run_and_says_why():
    def fail(device):
        raise ValueError(f"Allocator stats not available for device '{device}'\n")

    for read, words in (
        (lambda device: (None, None), "the framework does not count it"),
        (fail, "ValueError: Allocator stats not available for device 'CPU:0'"),
    ):
        assert engine.read_peaks(["CPU:0"], read) == Peak(None, None, words)


def logged(tmp_path, **fields):
    """What is read of a run's end with these fields."""
    log = event_log.EventLog(tmp_path / "train.jsonl")
    log.write("run_end", status="failed", message="", t_utc=event_log.utc_now(), **fields)
    log.close()
    (found,) = event_log.read(tmp_path / "train.jsonl")
    return found


def test_the_fields_of_run_end_are_read_again(tmp_path):
    fields = {
        "peak_allocated_bytes_per_device": [5, 7],
        "peak_reserved_bytes_per_device": None,
        "device_memory_unknown": "why",
        "device_memory_limit_bytes": 9,
    }
    assert logged(tmp_path, **fields).items() >= fields.items()


@pytest.mark.parametrize("wrong", [5, [-1], ["5"], [0.5]])
def test_peaks_that_are_no_counts_are_an_error_of_the_log(tmp_path, wrong):
    with pytest.raises(LogError, match="peak_allocated_bytes_per_device"):
        logged(tmp_path, peak_allocated_bytes_per_device=wrong)
