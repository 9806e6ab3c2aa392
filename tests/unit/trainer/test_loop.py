"""loop: it drives an engine of any framework, here one in plain Python with made-up losses."""

import itertools
import types
from types import SimpleNamespace

import numpy as np
import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from dlbench.trainer import checkpoints, copies, engine, loop
from dlbench.trainer.engine import CheckpointState, Peak, reading_only
from dlbench.trainer.schedule import Schedule, steps_in

STEPS = {"steps": 3, "warmup_steps": 1, "warmup_s": 0.0, "epochs": None}
EPOCHS = {"steps": None, "warmup_steps": 0, "epochs": 2}


def spec(**fields):
    lenet = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "learning_rate": 0.1}
    return Run(**lenet | STEPS | fields)


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


class Engine(engine.Engine):
    """Halves its loss in each step, from 1."""

    learning_rate, data_sha256, item_shape, gpu_count = 0.1, None, (2,), 0

    def __init__(self, records=None, losses=None):
        self.records, self.losses, self.calls = records, losses or {}, []
        self.weight = Weight()
        self.strategy = types.SimpleNamespace(
            rank=0, size=1, local_rank=0, devices=["CPU:0"], cores=[0], packages=(), binding=None,
            gather=lambda values: np.asarray([values], np.float64),
            settings=dict, gpus=tuple, supports_windows=True,
        )  # fmt: skip

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

    def checkpoint_state(self):
        return CheckpointState(replicated={"weight": [self.weight]}, per_rank={})

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


def test_the_end_says_what_the_devices_held_at_most_or_why_that_is_not_known(tmp_path):
    end, _ = trained(Engine(), tmp_path / "plain.jsonl")
    assert end["peak_allocated_bytes_per_device"] is None
    assert end["device_memory_unknown"] == "the framework does not count it"
    engine = Engine()
    engine.peak_memory = lambda: Peak([5], None, "why", 9)
    end, _ = trained(engine, tmp_path / "counting.jsonl")
    assert end["peak_allocated_bytes_per_device"] == [5]
    assert end["peak_reserved_bytes_per_device"] is None
    assert (end["device_memory_unknown"], end["device_memory_limit_bytes"]) == ("why", 9)


def test_held_out_items_are_scored_before_training_and_after_each_epoch(tmp_path):
    _, log = trained(Engine(records=10), tmp_path / "train.jsonl", spec(**EPOCHS))
    scored = [(e["epoch"], e["step"]) for e in log if e["event"] == "eval"]
    assert scored == [(0, 0), (1, 3), (2, 5)]
    assert [e["warm_up"] for e in log if e["event"] == "step"] == [True] * 3 + [False] * 2


def test_a_batch_may_be_larger_than_the_data(tmp_path):
    _, log = trained(Engine(records=3), tmp_path / "train.jsonl", spec(**EPOCHS | {"epochs": 5}))
    assert [(e["step"], e["epoch"]) for e in log if e["event"] == "step"] == [
        (1, 1), (2, 2), (3, 3), (4, 5)
    ]  # fmt: skip


def test_windows_have_the_losses_of_all_their_steps_and_end_where_epochs_do(tmp_path):
    run = spec(**EPOCHS | {"epochs": 3}, steps_per_sync=4)
    _, log = trained(Engine(records=22), tmp_path / "train.jsonl", run)
    steps = [event for event in log if event["event"] == "step"]
    # 22 items in batches of 4 end epochs with steps 6, 11 and 17.
    assert [step["step"] for step in steps] == [1, 5, 6, 10, 11, 15, 17]
    losses = [loss for step in steps for loss in step.get("losses", [step["loss"]])]
    assert losses == [2.0**-index for index in range(1, 18)]
    assert [(e["epoch"], e["step"]) for e in log if e["event"] == "eval"] == [
        (0, 0), (1, 6), (2, 11), (3, 17)
    ]  # fmt: skip
    assert next(e for e in log if e["event"] == "windows")["steps_per_sync"] == 4


def test_a_loss_that_is_not_a_number_ends_the_run_and_is_named_by_its_step(tmp_path):
    end, log = trained(Engine(losses={2: float("nan")}), tmp_path / "single.jsonl")
    assert end["status"] == "failed"
    assert [e["step"] for e in log if e["event"] == "step"] == [1, 2]
    engine = Engine(losses={4: float("inf"), 5: float("nan")})
    end, log = trained(engine, tmp_path / "window.jsonl", spec(steps=30, steps_per_sync=8))
    assert end["message"] == "the loss is not a number from step 4 on"
    losses = [e["losses"] for e in log if e.get("window_steps")]
    assert losses[0][1:3] == [2.0**-3, float("inf")]


def test_the_learning_rates_of_a_window_are_logged_where_they_differ(tmp_path):
    how = {"steps": 10, "steps_per_sync": 5, "learning_rate_warmup_steps": 4}
    _, log = trained(Engine(), tmp_path / "train.jsonl", spec(**how))
    windows = [event for event in log if event["event"] == "step" and "losses" in event]
    assert windows[0]["learning_rates"] == pytest.approx([0.05, 0.075, 0.1, 0.1, 0.1])
    assert "learning_rates" not in windows[1]


def stopped(path, run):
    """The last step of a run that is stopped soon, and how to go on with it."""
    stops = iter(["", "SIGTERM"])
    how = {"folder": path.parent / "checkpoint", "every_s": 1e9}
    how["stop_reason"] = lambda: next(stops, "")
    with pytest.raises(checkpoints.Stopped) as stopped:
        trained(Engine(), path, run, checkpointing=how)
    return int(str(stopped.value).split()[-1]), how


def test_ranks_meet_for_checkpoints_after_whole_windows(tmp_path):
    path = tmp_path / "train.jsonl"
    step, _ = stopped(path, spec(steps=10**6, steps_per_sync=7))
    steps = [e for e in event_log.read(path) if e["event"] == "step"]
    assert steps[-1]["step"] == step
    assert {e["window_steps"] for e in steps[1:]} == {7}


def test_a_stopped_run_goes_on_with_the_variables_of_its_engine(tmp_path):
    path, long = tmp_path / "train.jsonl", spec(steps=10**6)
    step, how = stopped(path, long)
    again = Engine(losses={step + 3: float("inf")})
    _, log = trained(again, path, long, checkpointing=how)
    assert ("begin", step) in again.calls
    assert again.weight.value.tolist() == [step + 3] * 2
    assert [e["step"] for e in log if e["event"] == "step"] == list(range(1, step + 4))


def test_the_last_record_of_an_epoch_ends_it_though_batches_go_across():
    assert [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)] == [3, 5, 8]


def test_as_many_steps_as_warmed_up_the_run_warm_up_what_goes_on():
    schedule = Schedule(spec(steps=20, warmup_steps=2), None)
    assert schedule.warm_up_end(first=10) == 12
    assert schedule.warm_up_end(first=0) == 2
    assert Schedule(spec(**EPOCHS), 10).epoch_after(3) == 2


class Reading:
    """An engine that can only read; what would need its model is not there."""

    strategy, gpu_count = SimpleNamespace(rank=0), 0
    records, data_sha256, item_shape = 100, "of-data", (28, 28, 1)

    def __init__(self):
        self.taken = []

    def host_batches(self, first):
        for number in itertools.count(first + 1):
            self.taken.append(number)
            yield number


@pytest.mark.parametrize("first", [0, 7])
def test_each_step_takes_one_batch_after_the_one_that_is_taken_before_the_first(first):
    made = reading_only(Reading)()
    made.build()
    made.begin(first)
    made.trace()
    assert made.taken == [first + 1]
    assert made.window(first + 1, first + 3, 10) == [0.0, 0.0, 0.0]
    assert made.taken == list(range(first + 1, first + 5))


def test_it_has_the_data_of_its_framework_and_no_model():
    made = reading_only(Reading)()
    assert (made.records, made.data_sha256, made.item_shape) == (100, "of-data", (28, 28, 1))
    assert (made.parameters(), made.attention(), made.weights_sha256()) == (None, None, [])
    assert made.model_flops().forward_per_item is None
    assert made.model_flops().unknown == ["mode input has no model"]
