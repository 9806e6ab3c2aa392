"""profiling: more steps after the run are traced, and a failure affects nothing else."""

import gzip
import json
import types

import pytest

from dlbench.common.files import sha256
from dlbench.log import event_log
from dlbench.plan import skipping
from dlbench.plan.skipping import Devices
from dlbench.study.runs import Run
from dlbench.trainer import engine, profiling
from dlbench.trainer.profiling import Track

ADD = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 0.0, "dur": 2.0}
SECOND = 10**12  # picoseconds


class Engine(engine.Engine):
    """Notes the steps it takes; its profiler sees an addition."""

    records, gpu_count = None, 0

    def __init__(self, rank=0):
        self.strategy = types.SimpleNamespace(rank=rank, supports_windows=True)
        self.taken = []

    def window(self, first, last, until):
        self.taken.append((first, last))
        return [0.5] * (last - first + 1)

    def profile(self, work, folder):
        (folder / "raw").touch()
        work()
        return [ADD]


def spec(**fields):
    lenet = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "steps": 20}
    return Run(**lenet | {"warmup_steps": 2, "warmup_s": 0.0, "evaluate": "no"} | fields)


def profiled(folder, engine_, run=None):
    log = event_log.EventLog(folder / "train.jsonl")
    profiling.profile(run or spec(), engine_, log, folder)
    log.close()
    return next(iter(event_log.read(folder / "train.jsonl")), None)


def test_further_steps_are_traced_and_the_trace_lies_beside_the_log(tmp_path):
    made = Engine()
    event = profiled(tmp_path, made)
    assert made.taken == [(n, n) for n in range(18, 23)]
    trace = tmp_path / event_log.TRACE
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] == [ADD]
    assert (event["bytes"], event["sha256"]) == (trace.stat().st_size, sha256(trace))
    assert event["steps"] == 5
    assert {path.name for path in tmp_path.iterdir()} == {"train.jsonl", "trace.json.gz"}


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"steps_per_sync": 10}, [(18, 22)]),  # one window
        ({"steps": 2, "warmup_steps": 1}, [(1, 1), (2, 2), (3, 3)]),  # as many as the run has
    ],
)
def test_long_windows_and_short_runs_have_as_many_steps_traced(tmp_path, fields, taken):
    made = Engine()
    assert profiled(tmp_path, made, spec(**fields))["steps"] == taken[-1][1] - taken[0][0] + 1
    assert made.taken == taken


def test_other_processes_take_the_steps_and_write_nothing(tmp_path):
    made = Engine(rank=1)
    assert profiled(tmp_path, made) is None
    assert len(made.taken) == 5
    assert not (tmp_path / event_log.TRACE).exists()


@pytest.mark.parametrize("before", [True, False], ids=["before the steps", "after them"])
def test_a_profiler_that_fails_is_named_and_all_steps_are_taken_once(tmp_path, before):
    made = Engine()

    def profile(work, folder):
        if not before:
            work()
        raise RuntimeError("no\ncounters")

    made.profile = profile
    event = profiled(tmp_path, made)
    assert event["unknown"] == "RuntimeError: no counters" and "sha256" not in event
    assert len(made.taken) == 5


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_that_fails_ends_no_process(tmp_path, rank):
    made = Engine(rank)
    made.window = lambda first, last, until: 1 / 0
    event = profiled(tmp_path, made)
    assert event is None if rank else event["unknown"].startswith("ZeroDivisionError")


def test_without_a_profiler_or_a_place_for_the_trace_the_reason_is_told(tmp_path):
    class Plain(Engine):
        profile = engine.Engine.profile

    assert "has no profiler" in profiled(tmp_path, Plain())["unknown"]
    (tmp_path / "other" / event_log.TRACE).mkdir(parents=True)
    assert "IsADirectoryError" in profiled(tmp_path / "other", Engine())["unknown"]
    assert not list(tmp_path.rglob("*.part"))


def test_where_the_first_process_computes_nothing_a_run_has_no_profile():
    run = spec(profile=True, strategy="parameter_server", launcher="local")
    reason = skipping.cannot_run(run, Devices("cpu", 4, 4, 1))
    assert reason.startswith("strategy parameter_server has no profile")


def complete(events):
    return [event for event in events if event["ph"] == "X"]


def test_operations_of_tensorflow_and_xla_are_told_from_all_else_on_the_host():
    track = Track("/host:CPU", "worker", [
        ("model/conv/BiasAdd:_FusedConv2D", 5 * SECOND, SECOND, {"_pt": 1, "id": 3}),
        ("fusion.12", 6 * SECOND, SECOND, {"hlo_op": "fusion.12", "hlo_module": "jit_train"}),
        ("Iterator::Root::Prefetch", 7 * SECOND, SECOND, {}),
        ("EagerLocalExecute: __inference_step", 8 * SECOND, 2 * SECOND, {"raw": b"x"}),
    ])  # fmt: skip
    found = complete(profiling.chrome([track]))
    assert [event.get("cat") for event in found] == ["cpu_op", "cpu_op", None, None]
    assert [(event["ts"], event["dur"]) for event in found] == [
        (0.0, 1e6), (1e6, 1e6), (2e6, 1e6), (3e6, 2e6)
    ]  # fmt: skip
    assert found[0]["args"] == {"id": 3} and found[3]["args"] == {}


def test_of_a_device_its_streams_are_kept_and_not_what_sums_them_up():
    kernel = ("loop_add_fusion_3", 0, SECOND, {"hlo_op": "loop_add_fusion.3"})
    tracks = [
        Track("/device:GPU:0", "Stream #14(Compute)", [kernel, ("MemcpyH2D", SECOND, 5, {})]),
        Track("/device:GPU:0", "XLA Ops", [kernel]),
        Track("/device:GPU:0", "XLA Modules", [("jit_train", 0, SECOND, {})]),
        Track("/host:CPU", "empty", []),
    ]
    events = profiling.chrome(tracks)
    names = {e["args"]["name"] for e in events if (e["ph"], e["name"]) == ("M", "thread_name")}
    assert names == {"Stream #14(Compute)"}
    assert [event["cat"] for event in complete(events)] == ["kernel", "gpu_memcpy"]


def test_a_device_without_streams_has_the_operations_that_it_names():
    other = Track("/device:TPU:0", "XLA Modules", [("jit_train", 0, SECOND, {})])
    own = Track("/device:TPU:0", "XLA Ops", [("fusion.1", 0, SECOND, {"hlo_op": "fusion.1"})])
    (event,) = complete(profiling.chrome([other, own]))
    assert (event["name"], event["cat"]) == ("fusion.1", "kernel")
