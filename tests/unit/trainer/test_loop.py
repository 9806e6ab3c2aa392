"""The loop drives an engine of any framework: here one of plain Python, on made-up losses."""

import types

import numpy as np
import pytest

from dlbench.log import event_log
from dlbench.trainer import checkpoints, copies, loop
from dlbench.trainer.engine import Kept
from dlbench.trainer.schedule import Schedule, steps_in

STEPS = {"steps": 3, "warmup_steps": 1, "epochs": None}
EPOCHS = {"steps": None, "warmup_steps": 0, "epochs": 2}


def spec(**fields):
    values = {"mode": "train", "evaluate": "auto", "batch_per_device": 4, "nodes": 1}
    return types.SimpleNamespace(**{**values, "devices_per_node": 1, **STEPS, **fields})


class Weight:
    """A variable of this framework: an array that can be read and set."""

    def __init__(self):
        self.value = np.zeros(2)

    @property
    def shape(self):
        return self.value.shape

    def numpy(self):
        return self.value.copy()

    def assign(self, value):
        self.value = value


class Engine:
    """Halves its loss in each step, from 1."""

    learning_rate, data_sha256, item_shape, gpus_seen = 0.1, None, (2,), 0

    def __init__(self, records=None, losses=None):
        self.records, self.losses, self.calls = records, losses or {}, []
        self.weight = Weight()
        self.strategy = types.SimpleNamespace(
            rank=0,
            size=1,
            local_rank=0,
            devices=["CPU:0"],
            cores=[0],
            packages=(),
            gather=lambda values: np.asarray([values], np.float64),
            settings=dict,
            gpus=tuple,
        )

    def build(self):
        self.calls.append("build")

    def begin(self, first):
        self.calls.append(("begin", first))

    def trace(self):
        self.calls.append("trace")

    def step(self, index, until):
        self.weight.value = self.weight.value + 1
        return self.losses.get(index, 2.0**-index)

    def evaluate(self):
        return {"loss": 0.5, "examples": 8}

    def parameters(self):
        return 2

    def kept(self):
        return Kept(common={"weight": [self.weight]}, own={})

    def weights_sha256(self):
        return ["0"]

    def gpu_name(self):
        raise AssertionError("asked for a GPU on a CPU")

    def versions(self):
        return {"plain": "1.0"}

    def build_facts(self):
        return {"plain_build": {}}


def trained(engine, path, run=None, **more):
    """(fields of run_end, the log) of a run."""
    log = event_log.EventLog(path)
    end = loop.train(run or spec(), engine, copies.Copy(0, 1, path), log, sample_every_s=0, **more)
    log.close()
    return end, list(event_log.read(path))


def test_an_engine_of_any_framework_is_built_traced_and_timed(tmp_path):
    engine = Engine()
    end, log = trained(engine, tmp_path / "train.jsonl")
    assert engine.calls == ["build", ("begin", 0), "trace"]
    assert [event["event"] for event in log] == ["run_start", "machine", "compile", *["step"] * 4]
    assert [event["loss"] for event in log[3:]] == [0.5, 0.25, 0.125, 0.0625]
    assert [event["warm_up"] for event in log[3:]] == [True, False, False, False]
    assert log[0]["versions"]["plain"] == "1.0"
    assert log[1]["software"]["plain_build"] == {}
    assert (end["status"], end["weights_sha256"]) == ("ok", ["0"])


def test_held_out_items_are_scored_before_training_and_after_each_epoch(tmp_path):
    _, log = trained(Engine(records=10), tmp_path / "train.jsonl", spec(**EPOCHS))
    scored = [(e["epoch"], e["step"]) for e in log if e["event"] == "eval"]
    assert scored == [(0, 0), (1, 3), (2, 5)]
    assert [e["warm_up"] for e in log if e["event"] == "step"] == [True] * 3 + [False] * 2


def test_a_loss_that_is_not_a_number_is_the_last_one(tmp_path):
    end, log = trained(Engine(losses={2: float("nan")}), tmp_path / "train.jsonl")
    assert end["status"] == "failed"
    assert [e["step"] for e in log if e["event"] == "step"] == [1, 2]


def test_a_stopped_run_goes_on_with_the_variables_of_its_engine(tmp_path):
    path, stops = tmp_path / "train.jsonl", iter(["", "SIGTERM"])
    how = {"folder": tmp_path / "checkpoint", "every_s": 1e9, "asked": lambda: next(stops, "")}
    long = spec(steps=10**6)
    with pytest.raises(checkpoints.Stopped) as stopped:
        trained(Engine(), path, long, checkpointing=how)
    step = int(str(stopped.value).split()[-1])
    again = Engine(losses={step + 3: float("inf")})
    _, log = trained(again, path, long, checkpointing=how)
    assert ("begin", step) in again.calls
    assert again.weight.value.tolist() == [step + 3] * 2
    assert [e["step"] for e in log if e["event"] == "step"] == list(range(1, step + 4))


def test_the_last_record_of_an_epoch_ends_it_though_batches_go_across():
    assert [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)] == [3, 5, 8]


def test_as_many_steps_as_warmed_up_the_run_warm_up_what_goes_on():
    schedule = Schedule(spec(steps=20, warmup_steps=2), None)
    warm = [step for step in range(11, 15) if schedule.is_warm_up(step, 1, first=10)]
    assert warm == [11, 12]
    assert Schedule(spec(**EPOCHS), 10).epoch_after(3) == 2
