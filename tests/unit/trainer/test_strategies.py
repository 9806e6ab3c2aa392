"""strategies: attributes of their classes, and how their options are parsed and written."""

import ast
import dataclasses
import os
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import options, plugins
from dlbench.machine import binding, limits
from dlbench.study.runs import Run
from dlbench.trainer import engine, strategy
from support.machines import topologies

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
NAMES = plugins.names("tensorflow/strategies")


def load(name):
    return plugins.load("tensorflow/strategies", name).Strategy


def run(**changes):
    return dataclasses.replace(RUN, **changes)


HOROVOD, SERVERS, MULTIWORKER = map(load, ("horovod", "parameter_server", "multiworker"))


# What they say of themselves.


@pytest.mark.parametrize(
    ("name", "changes", "jobs"),
    [
        ("single", {}, {"worker": 1}),
        ("mirrored", {"devices_per_node": 4}, {"worker": 1}),
        ("horovod", {"devices_per_node": 2, "nodes": 3}, {"worker": 6}),
        ("multiworker", {"devices_per_node": 2, "nodes": 3}, {"worker": 6}),
        (
            "parameter_server",
            {"devices_per_node": 2, "nodes": 3},
            {"chief": 1, "worker": 6, "ps": 1},
        ),
        (
            "parameter_server",
            {"devices_per_node": 4, "strategy_options": "servers=3"},
            {"chief": 1, "worker": 4, "ps": 3},
        ),
    ],
)
def test_a_strategy_says_its_processes_and_the_first_of_them_writes_the_log(name, changes, jobs):
    asked = run(strategy=name, **changes)
    assert list(load(name).jobs(asked).items()) == list(jobs.items())
    assert load(name).processes_per_node(asked) == jobs["worker"] // asked.nodes
    assert load(name).unsupported(asked) is None


@pytest.mark.parametrize(
    ("framework", "name", "text", "processes"),
    [
        ("jax", "sharded", "", 3),
        ("jax", "sharded", "processes=device", 6),
        ("pytorch", "ddp", "", 6),
        ("pytorch", "fsdp", "", 6),
        ("pytorch", "hsdp", "shard_size=2", 6),
    ],
)
def test_other_frameworks_have_a_process_for_each_node_or_for_each_device(
    framework, name, text, processes
):
    wide = run(framework=framework, strategy=name, devices_per_node=2, nodes=3)
    wide = dataclasses.replace(wide, strategy_options=text)
    assert engine.strategy_of(wide).jobs(wide) == {"worker": processes}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("single", {"devices_per_node": 2}, "single drives one device; 2 need mirrored or"),
        ("single", {"nodes": 3}, "single drives one device; 3 need"),
        ("mirrored", {"nodes": 2}, "mirrored stays on one node; 2 need horovod or multiworker"),
        ("parameter_server", {"strategy_options": "servers=0"}, "at least one of servers, found 0"),
        ("parameter_server", {"deterministic": True}, "cannot be deterministic: its workers race"),
    ],
)
def test_what_a_strategy_cannot_do_is_said(name, changes, reason):
    assert reason in load(name).unsupported(run(**changes))


TWO = {"framework": "pytorch", "devices_per_node": 2, "launcher": "torchrun", "model": "gpt_tiny"}
TENSOR = {**TWO, "strategy": "tensor_parallel"}
MESH = {**TWO, "framework": "jax", "strategy": "sharded", "launcher": "none"}


@pytest.mark.parametrize(
    ("changes", "text", "reason"),
    [
        ({**TENSOR, "model": "llama_tiny"}, "shard_size=1", None),
        (TENSOR, "shard_size=4", "does not divide devices_per_node, 2"),
        ({**TENSOR, "precision": "float16"}, "", "scale the loss differently; choose bfloat16"),
        ({**TENSOR, "model": "mixtral_tiny"}, "", "is of models with pytorch in DIVIDES"),
        (MESH, "batch_norm=global,model_axis=2", None),
        (MESH, "batch_norm=global,model_axis=3", "model_axis is 3, and does not divide"),
        (MESH, "batch_norm=global,model_axis=0", "model_axis is 0, and does not divide"),
        (MESH, "model_axis=2", "needs batch_norm=global and processes=node"),
        ({**MESH, "model": "llama_tiny"}, "batch_norm=global,model_axis=2", "with jax in DIVIDES"),
    ],
)
def test_how_devices_cannot_share_a_model_is_said(changes, text, reason):
    asked = run(**changes, strategy_options=text)
    said = engine.strategy_of(asked).unsupported(asked)
    assert reason in said if reason else said is None


@pytest.mark.parametrize("name", NAMES)
def test_one_device_is_supported_by_all_with_a_launcher_that_exists(name):
    assert load(name).unsupported(RUN) is None
    assert load(name).processes_per_node(RUN) == 1
    launcher = plugins.load("launchers", load(name).launcher)
    assert launcher.unsupported(run(strategy=name)) is None


def test_every_option_is_described_in_the_docstring_of_a_file_that_imports_no_framework():
    for framework in engine.names():
        kind = engine.plugin_kind(framework, "strategies")
        for name in plugins.names(kind):
            module = plugins.load(kind, name)
            for option in module.Strategy.OPTIONS:
                assert f"\n    {option} " in module.__doc__
            top = ast.parse(plugins.path(kind, name).read_bytes()).body
            imported = {a.name for node in top if isinstance(node, ast.Import) for a in node.names}
            imported |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
            assert not imported & {*engine.names(), "torch", "keras", "horovod.tensorflow"}


# The cores of a process.


def test_threads_that_a_library_started_before_are_kept_to_the_cores_too():
    allowed, ended = os.sched_getaffinity(0), threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        binding.set_affinity([min(allowed)])
        assert os.sched_getaffinity(thread.native_id) == {min(allowed)}
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        binding.set_affinity(allowed)
        ended.set()
        thread.join()


# Options.


def text_of(strategy, given):
    return options.canonical_text("strategy", name_of(strategy), strategy.OPTIONS, given)


def parsed_from(strategy, text):
    return options.parse("strategy", name_of(strategy), strategy.OPTIONS, text)


def name_of(strategy):
    return strategy.__module__.rpartition(".")[2]


def defaults(strategy):
    return {n: v[0] if isinstance(v, tuple) else v for n, v in strategy.OPTIONS.items()}


def values(allowed):
    """Values that an option may have, by its default."""
    if isinstance(allowed, tuple):
        return st.sampled_from(allowed)
    if isinstance(allowed, bool):
        return st.booleans()
    if isinstance(allowed, int):
        return st.integers(0, 1 << 40)
    return st.floats(0, 1e9).map(abs) | st.integers(0, 1 << 40)


cases = st.sampled_from(NAMES).flatmap(
    lambda name: st.tuples(
        st.just(load(name)),
        st.fixed_dictionaries(
            {}, optional={option: values(v) for option, v in load(name).OPTIONS.items()}
        ),
    )
)


@given(cases)
def test_options_come_back_from_their_text_and_defaults_need_none(case):
    strategy, given = case
    text = text_of(strategy, given)
    parsed = parsed_from(strategy, text)
    assert parsed == defaults(strategy) | given
    kinds = {name: type(value) for name, value in defaults(strategy).items()}
    assert {name: type(value) for name, value in parsed.items()} == kinds
    # One text a meaning: whatever is given in other words or another order.
    assert text_of(strategy, parsed) == text
    assert text_of(strategy, dict(reversed(given.items()))) == text
    assert text_of(strategy, defaults(strategy)) == text_of(strategy, {}) == ""
    assert strategy.parse_options(run(strategy_options=text)) == parsed


def test_options_are_written_by_name_and_numbers_of_either_kind_mean_the_same():
    chosen = {"timeline": True, "gradient_groups": 1, "compression": "fp16"}
    assert text_of(HOROVOD, chosen) == "compression=fp16,timeline=True"
    for cycle in (2, 2.0):
        assert text_of(HOROVOD, {"cycle_time_ms": cycle}) == "cycle_time_ms=2.0"
    for pack in (64, 64.0):
        assert text_of(MULTIWORKER, {"pack_mib": pack}) == "pack_mib=64"


@pytest.mark.parametrize(
    ("strategy", "name", "message"),
    [
        (HOROVOD, "zzz", "horovod has no option 'zzz'; there are: compression, cycle_time_ms, f"),
        (SERVERS, "server", "parameter_server has no option 'server' (did you mean 'servers'?)"),
        (load("single"), "", "single has no option ''; there are: none"),
    ],
)
def test_an_option_that_a_strategy_lacks_is_named_with_the_nearest(strategy, name, message):
    for make, chosen in ((text_of, {name: 1}), (parsed_from, f"{name}=1")):
        with pytest.raises(Error) as error:
            make(strategy, chosen)
        assert f"strategy {message}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("compression", True, "one of none, fp16"),
        ("timeline", 1, "true or false"),
        ("gradient_groups", -1, "a whole number of at least 0"),
        ("gradient_groups", 1.5, "a whole number of at least 0"),
        ("gradient_groups", True, "a whole number of at least 0"),
        ("gradient_groups", "1", "a whole number of at least 0"),
        ("cycle_time_ms", -0.5, "a number of at least 0"),
        ("cycle_time_ms", float("nan"), "a number of at least 0"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_shown(name, value, expected):
    with pytest.raises(Error) as error:
        text_of(HOROVOD, {name: value})
    assert str(error.value) == f"strategy option {name}: expected {expected}, found {value!r}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeline", "timeline: expected true or false, found ''"),
        ("gradient_groups=", "gradient_groups: expected a whole number of at least 0, found ''"),
        ("timeline=true,cycle_time_ms=-1", "expected a number of at least 0, found -1.0"),
    ],
)
def test_a_text_with_a_value_that_cannot_be_is_refused(text, message):
    with pytest.raises(Error) as error:
        parsed_from(HOROVOD, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "on_cpus", "on_gpus"),
    [
        ("", 1, 0),
        ("gradient_groups=3", 3, 3),
        ("overlap=no", 1, 1),
        ("overlap=no,gradient_groups=0", 0, 0),
        ("overlap=yes", 0, 0),
        ("overlap=yes,gradient_groups=3", 0, 0),
    ],
)
def test_gradients_wait_for_the_backward_pass_on_cpus_and_overlap_with_it_on_gpus(
    text, on_cpus, on_gpus
):
    horovod, chosen = plugins.load("tensorflow/strategies", "horovod"), parsed_from(HOROVOD, text)
    assert horovod.gradient_groups(chosen, on_gpus=False) == on_cpus
    assert horovod.gradient_groups(chosen, on_gpus=True) == on_gpus


# The GPUs and cores of a process whose devices are GPUs.


class OnGpus(strategy.BaseStrategy):
    """One process whose framework sees as many GPUs as `seen` says."""

    seen = 4

    def _configure(self, device, threads_per_device):
        return [f"gpu:{number}" for number in self.select_gpus(range(self.seen))]


@pytest.fixture
def on_gpus(tmp_path, monkeypatch):
    """A function that makes a strategy on the GPUs of a node, with the variables of a process."""
    for name in ("CUDA_VISIBLE_DEVICES", binding.THREADS, limits.THREADS):
        monkeypatch.delenv(name, raising=False)
    allowed = os.sched_getaffinity(0)

    def make(nvml, kind=OnGpus, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return kind(RUN, "gpu", tmp_path)

    yield make
    for name in (binding.THREADS, limits.THREADS):
        os.environ.pop(name, None)
    binding.set_affinity(allowed)


def test_threads_and_workers_of_a_process_on_gpus_follow_its_cores(on_gpus):
    made = on_gpus(topologies.h100_x8()[1])
    allowed = sorted(os.sched_getaffinity(0))
    assert made.devices == ["gpu:0"] and made.cores == allowed
    assert limits.usable_threads() == int(os.environ["OMP_NUM_THREADS"]) <= len(allowed)
    assert made.gpus() == (0,)


def test_threads_that_the_user_chose_stay_and_torchruns_one_does_not(on_gpus):
    on_gpus(topologies.h100_x8()[1], OMP_NUM_THREADS="3")
    assert os.environ["OMP_NUM_THREADS"] == "3"
    on_gpus(topologies.h100_x8()[1], OMP_NUM_THREADS="1", TORCHELASTIC_RUN_ID="none")
    assert os.environ["OMP_NUM_THREADS"] == str(limits.usable_threads())


def test_a_process_keeps_its_own_of_several_mig_devices_and_sees_no_other(on_gpus):
    made = on_gpus(topologies.mig_slices()[1], CUDA_VISIBLE_DEVICES="MIG-1111-0000,MIG-2222-0000")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-1111-0000"
    assert made.devices == ["gpu:0"] and made.gpus() == ("MIG-1111-0000",)


def test_without_binding_cores_stay_as_they_are(on_gpus):
    made = on_gpus(topologies.h100_x8()[1], **{binding.MODE: "none"})
    assert made.cores is None and made.binding.mode == "none"


class Second(OnGpus):
    @staticmethod
    def processes_per_node(run):
        return 2

    def join(self, spec):
        self.rank = self.local_rank = 1
        self.size = 2


@pytest.mark.parametrize(("shown", "seen", "number"), [("0", 1, 0), (None, 1, 0), (None, 2, 1)])
def test_where_no_driver_tells_the_number_of_gpus_seen_does(
    on_gpus, shown, seen, number, monkeypatch
):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes need two cores")
    both = [{"cpus": sorted(os.sched_getaffinity(0)), "gpus": None}] * 2
    monkeypatch.setattr(binding, "all_gather", lambda *_: both)
    one = type("One", (Second,), {"seen": seen})
    made = on_gpus(None, one, **({"CUDA_VISIBLE_DEVICES": shown} if shown else {}))
    assert made.devices == [f"gpu:{number}"]


def test_a_framework_that_sees_fewer_gpus_is_named_in_the_message(on_gpus, monkeypatch):
    monkeypatch.setattr(OnGpus, "seen", 0)
    with pytest.raises(Error, match=r"rank 0 needs 1 GPU.* its framework sees 0 in all"):
        on_gpus(topologies.h100_x8()[1])
