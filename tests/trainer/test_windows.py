"""Windows of steps in real runs: they change when the host waits for losses, nothing else."""

import contextlib
import math
import signal
import sys
import time

import pytest

from dlbench.log import event_log
from dlbench.records import parse_run, progress
from dlbench.study.runs import Run
from support.programs import forked
from support.trainers.training_runs import (
    SERVERS,
    TRAIN,
    TWO_DEVICES,
    events,
    how_forked,
    train,
)

# A learning rate that rises within windows, momenta, and dropout's random numbers in cnn12.
SHORT = {"steps": 24, "warmup_steps": 5, "optimizer": "momentum", "deterministic": True,
         "learning_rate_warmup_steps": 13}  # fmt: skip


def steps_of(path):
    """(step, loss, learning rate, warm-up) of each step, in or out of windows."""
    found = []
    for event in events(path, "step"):
        losses = event.get("losses", [event["loss"]])
        rates = event.get("learning_rates", [event["learning_rate"]] * len(losses))
        first = event["step"] - len(losses) + 1
        for place, (loss, rate) in enumerate(zip(losses, rates, strict=True)):
            found.append((first + place, loss, rate, event["warm_up"]))
    return found


def both(folder, data=None, **fields):
    """The logs of the ranks of a run whose steps are waited for, and of one with windows."""
    found = []
    for length in (1, 10):
        log = folder / str(length) / "train.jsonl"
        finished = train(log, data, steps_per_sync=length, **SHORT | fields)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        found.append(event_log.rank_paths(log))
    return found


def see_equal(single, windows):
    assert len(single) == len(windows)
    for one, other in zip(single, windows, strict=True):
        assert steps_of(one) == steps_of(other)
        digests = [events(path, "run_end")[0]["weights_sha256"] for path in (one, other)]
        assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "how",
    [{"model": "cnn12", "dataset": "synthetic"}, {"precision": "float16"}, {"mode": "forward"}],
    ids=["dropout", "float16", "forward"],
)
def test_windows_give_the_losses_rates_and_weights_of_single_steps_bit_for_bit(how, tmp_path):
    see_equal(*both(tmp_path, **how))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", TWO_DEVICES, ids=lambda how: "-".join(how.values()))
def test_windows_on_two_devices_train_as_single_steps_do(how, digits, tmp_path):
    see_equal(*both(tmp_path, digits, dataset="digits", devices_per_node=2, **how))


def test_a_window_ends_with_the_warm_up_the_epoch_and_the_run_and_times_add_up(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"dataset": "digits", "batch_per_device": 200, "epochs": 3, "steps_per_sync": 5}
    assert train(log, digits, **how).returncode == 0
    steps = events(log, "step")
    # 1437 items are 8 steps an epoch at most; the first step, which compiles, is alone.
    assert [step["step"] for step in steps] == [1, 6, 8, 13, 15, 20, 22]
    assert [step.get("window_steps", 1) for step in steps] == [1, 5, 2, 5, 2, 5, 2]
    assert [step["warm_up"] for step in steps] == [True] * 3 + [False] * 4
    assert [e["step"] for e in events(log, "eval")] == [0, 8, 15, 22]
    for first, last in ((3, 4), (5, 6)):  # epochs 2 and 3; evaluations are no part of them
        took_s = sum(s["step_time_s"] * s["window_steps"] for s in steps[first : last + 1])
        began_s = steps[first]["t_s"] - steps[first]["step_time_s"] * steps[first]["window_steps"]
        assert took_s == pytest.approx(steps[last]["t_s"] - began_s, abs=1e-5)
    assert [e["steps_per_sync"] for e in events(log, "windows")] == [5]
    run = Run.from_spec(events(log, "run_start")[0]["spec"])
    summary = parse_run.content(run, parse_run.rank_logs(log))["summary"]
    assert (summary["steps_measured"], summary["burn_in_steps"]) == (14, 8)
    assert summary["window_steps"] == 5
    total_s = sum(s["step_time_s"] * s["window_steps"] for s in steps[3:])
    assert summary["images_per_second"] == pytest.approx(200 * 14 / total_s, rel=1e-6)


def test_a_loss_that_is_not_a_number_within_a_window_is_named_by_its_step(tmp_path):
    how = {"learning_rate": 1e39, "warmup_steps": 1, "steps": 60, "optimizer": "sgd"}
    single, windows = tmp_path / "1" / "train.jsonl", tmp_path / "20" / "train.jsonl"
    assert train(single, **how).returncode == 1
    assert train(windows, steps_per_sync=20, **how).returncode == 1
    last = events(single, "step")[-1]["step"]
    assert 2 <= last < 21
    end = events(windows, "run_end")[0]
    assert (end["status"], end["message"]) == (
        "failed",
        f"the loss is not a number from step {last} on",
    )
    losses = events(windows, "step")[-1]["losses"]
    assert [math.isfinite(loss) for loss in losses].index(False) == last - 2


@pytest.mark.slow
def test_a_run_that_stops_between_windows_goes_on_as_if_it_had_not(digits, tmp_path):
    long = {"dataset": "digits", "steps": 1000, "warmup_steps": 3, "deterministic": True,
            "optimizer": "momentum", "steps_per_sync": 7}  # fmt: skip
    whole, parts = tmp_path / "whole" / "train.jsonl", tmp_path / "parts" / "train.jsonl"
    assert train(whole, digits, **long).returncode == 0
    run = Run(**{"model": "lenet5", "batch_per_device": 8, **long})
    command = [sys.executable, str(TRAIN), *run.flags(), "--log", str(parts)]
    command += ["--data", str(digits), "--checkpoint", str(parts.with_name("checkpoint"))]
    stopped = 0
    for _ in range(20):
        process = forked.start(**how_forked(command, run))
        count = 0
        while process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                count = parts.read_text().count('"window_steps": 7')
            if count > 3 * (stopped + 1) and stopped < 2:
                process.send_signal(signal.SIGTERM)
                break
            time.sleep(0.05)
        if process.wait(timeout=120) == 0:
            break
        stopped += 1
    assert stopped
    assert len(events(parts, "resume")) >= 1
    assert [(s, loss) for s, loss, _, _ in steps_of(parts)] == [
        (s, loss) for s, loss, _, _ in steps_of(whole)
    ]
    digests = [events(path, "run_end")[0]["weights_sha256"] for path in (whole, parts)]
    assert digests[0] == digests[1]


def test_windows_are_longer_than_neither_the_run_nor_what_can_be_asked_for(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=4, warmup_steps=2, steps_per_sync=1000).returncode == 0
    assert [e["step"] for e in events(log, "step")] == [1, 2, 6]
    assert events(log, "windows")[0]["steps_per_sync"] == 4
    for wrong in (0, -1, 1001):
        finished = train(tmp_path / "none.jsonl", steps=4, steps_per_sync=wrong)
        assert finished.returncode == 2
        assert "steps-per-sync: expected a whole number from 1 to 1000" in finished.stderr


def test_a_strategy_that_waits_for_each_step_refuses_windows(tmp_path):
    finished = train(tmp_path / "train.jsonl", steps=4, steps_per_sync=10, **SERVERS)
    assert finished.returncode
    said = finished.stdout + finished.stderr
    assert "strategy parameter_server waits for each step: steps_per_sync must be 1" in said


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how",
    [{}, *TWO_DEVICES[1:2], SERVERS | {"strategy_options": "update=asynchronous"}],
    ids=["single", "horovod", "servers"],
)
def test_a_warm_up_of_some_time_is_as_long_on_all_ranks_and_all_steps_follow_it(how, tmp_path):
    log = tmp_path / "train.jsonl"
    devices = 2 if how else 1
    fields = {"steps": 6, "warmup_steps": 2, "warmup_s": 1.0, "devices_per_node": devices, **how}
    finished = train(log, **fields)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    taken = []
    for path in event_log.rank_paths(log):
        steps, (ended,) = events(path, "step"), events(path, "warm_up")
        warm = [step["step"] for step in steps if step["warm_up"]]
        assert warm == list(range(1, ended["last_step"] + 1))
        assert len(steps) == len(warm) + 6 == ended["total_steps"]
        assert steps[len(warm) - 1]["t_s"] - steps[0]["t_s"] >= 1.0
        assert steps[len(warm) - 2]["t_s"] - steps[0]["t_s"] < 3.0
        taken.append(len(warm))
    assert len(set(taken)) == 1
    assert taken[0] > 2
    run = Run.from_spec(events(log, "run_start")[0]["spec"])
    content = parse_run.content(run, parse_run.rank_logs(log))
    assert (content["status"], run.warmup_s) in (("ok", 1.0), ("unstable", 1.0)), content["message"]
    summary = content["summary"]
    assert (summary["steps_measured"], summary["burn_in_steps"]) == (6, taken[0])
    assert progress.latest(log).total_steps == taken[0] + 6


@pytest.mark.slow
def test_a_run_that_stops_in_its_timed_warm_up_or_after_it_measures_all_its_steps(tmp_path):
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=2000, warmup_steps=3,
              warmup_s=2.0)  # fmt: skip
    command = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]
    for seen in ('"event": "step"', '"event": "warm_up"', None):
        process = forked.start(**how_forked(command, run))
        while seen and process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                text = log.read_text()
                # In this session, not in what it took from the checkpoint.
                if seen in text[max(0, text.rfind('"event": "resume"')) :]:
                    process.send_signal(signal.SIGTERM)
                    break
            time.sleep(0.05)
        assert process.wait(timeout=120) == (75 if seen else 0)
    (first, *_) = events(log, "warm_up")
    steps = events(log, "step")
    assert len(events(log, "resume")) == 2
    assert [step["step"] for step in steps] == list(range(1, first["total_steps"] + 1))
    assert first["total_steps"] == first["last_step"] + 2000
    assert parse_run.content(run, parse_run.rank_logs(log))["status"] in ("ok", "unstable")


def test_a_negative_or_endless_warm_up_is_refused(tmp_path):
    for wrong in (-1.0, math.inf, math.nan, 86_401.0):
        finished = train(tmp_path / "none.jsonl", steps=4, warmup_s=wrong)
        assert finished.returncode == 2
        assert "warmup-s: expected a number of at least 0" in finished.stderr
