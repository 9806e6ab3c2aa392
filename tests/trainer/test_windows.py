"""Windows of steps in real runs: they change when the host waits for losses, nothing else."""

import pytest

from dlbench.log import event_log
from dlbench.records import costs, parse_run
from dlbench.study.runs import Run
from dlbench.trainer import flags
from support.trainers.framework_runs import digests, steps_of
from support.trainers.training_runs import SERVERS, TWO_DEVICES, events, train


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"model": "cnn12"}, marks=pytest.mark.ci),
        {"precision": "float16"},
        {"mode": "forward"},
    ],
    ids=["dropout", "float16", "forward"],
)
def test_windows_give_the_losses_rates_and_weights_of_single_steps_bit_for_bit(how, tmp_path):
    # A learning rate that rises within windows, momenta, and dropout's random numbers in cnn12.
    how |= {"steps": 24, "warmup_steps": 5, "optimizer": "momentum", "deterministic": True,
            "learning_rate_warmup_steps": 13}  # fmt: skip
    found = []
    for length in (1, 10):
        log = tmp_path / str(length) / "train.jsonl"
        finished = train(log, steps_per_sync=length, **how)
        assert finished.returncode == 0, finished.stderr
        found.append((steps_of(log), digests(log)))
    assert found[0] == found[1]


@pytest.mark.ci
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


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.ci),
        TWO_DEVICES[1],
        SERVERS | {"strategy_options": "update=asynchronous"},
    ],
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
        taken.append(len(warm))
    assert len(set(taken)) == 1
    assert taken[0] > 2
    run = Run.from_spec(events(log, "run_start")[0]["spec"])
    content = parse_run.content(run, parse_run.rank_logs(log))
    assert content["status"] in ("ok", "unstable"), content["message"]
    summary = content["summary"]
    assert (summary["steps_measured"], summary["burn_in_steps"]) == (6, taken[0])
    assert costs.latest(log).total_steps == taken[0] + 6


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flag", "values", "expected"),
    [
        ("steps-per-sync", ("0", "-1", "1001"), "expected a whole number from 1 to 1000"),
        ("warmup-s", ("-1.0", "inf", "nan", "86401.0"), "expected a number of at least 0"),
    ],
)
def test_a_length_out_of_range_is_refused(flag, values, expected, capsys):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=4)
    for value in values:
        with pytest.raises(SystemExit):
            flags.parse(None, [*run.flags(), "--log", "none", f"--{flag}={value}"])
        assert f"{flag}: {expected}" in capsys.readouterr().err
