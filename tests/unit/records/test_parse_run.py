"""parse_run: from logs to summaries, with what must hold of their numbers."""

import dataclasses
import json
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog
from dlbench.records import parse_run, step_times, summaries
from support.runs.parsed_runs import RUN, TWO, parsed, write

EPOCHS = dataclasses.replace(RUN, steps=None, epochs=2, dataset="digits")


@given(st.floats(1e-5, 100).map(lambda s: round(s, 7)), st.integers(1, 4096), st.integers(1, 200))
def test_constant_step_times_give_their_mean_exactly_and_no_scatter(step_time_s, batch, steps):
    times = [step_time_s] * steps
    rate = step_times.images_per_second(times, batch)
    assert rate == pytest.approx(batch / step_time_s, rel=1e-15)
    summary = step_times.summary([*times, step_time_s])
    assert summary["step_time_mean_s"] == summary["step_time_median_s"] == step_time_s
    assert summary["step_time_sd_s"] == summary["step_time_mad_s"] == 0.0


def test_the_warm_up_and_compiling_are_counted_apart(tmp_path):
    write(tmp_path, [9.0, 8.0, 0.5, 0.25], warm_up=2)
    summary = parsed(tmp_path)["summary"]
    assert (summary["burn_in_steps"], summary["steps_measured"]) == (2, 2)
    assert summary["images_per_second"] == 2 * 32 / 0.75
    # The graph, and what the first step took longer.
    assert summary["compile_s"] == 0.5 + 9.0 - 0.375


def test_checkpoints_cost_their_writes_and_what_steps_beside_them_take_more():
    def step(t_s, step_time_s, **more):
        return {"t_s": t_s, "step_time_s": step_time_s, "warm_up": False, **more}

    writes = [
        {"t_s": 5.0, "write_s": 3.0, "waited_s": 1.0, "bytes": 100},  # steps from 3 s on
        {"t_s": 9.0, "write_s": 2.0, "waited_s": 2.0, "bytes": 120},  # no steps meanwhile
    ]
    # The first step is warm-up; the window from 3 to 5 s is beside a write, of three others none.
    steps = [step(1.0, 9.0, warm_up=True), step(2.0, 0.5), step(5.0, 1.0, window_steps=2)]
    steps += [step(5.5, 0.5), step(7.0, 0.75), step(9.25, 0.25)]
    found = summaries.of_checkpoints(types.SimpleNamespace(writes=writes, steps=steps))
    assert list(found) == [
        ("checkpoint_write_s", 2.5, "s", "lower"),
        ("checkpoint_wait_s", 1.5, "s", "lower"),
        ("checkpoint_bytes", 110.0, "B", "lower"),
        ("checkpoint_step_loss_s", 0.5, "s", "lower"),
    ]
    alone = types.SimpleNamespace(writes=writes[1:], steps=steps)
    assert [name for name, *_ in summaries.of_checkpoints(alone)][-1] == "checkpoint_bytes"
    none = types.SimpleNamespace(writes=[], steps=steps)
    assert list(summaries.of_checkpoints(none)) == []


def test_steps_take_as_long_as_on_the_rank_that_took_longest_for_all_of_them(tmp_path):
    write(tmp_path, [1.0, 0.5, 0.25, 0.25], rank=0, losses=[1.0] * 4)
    write(tmp_path, [5.0, 0.25, 0.5, 0.125], rank=1, losses=[3.0] * 4)
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["images_per_second"] == 3 * 64 / 1.0
    assert summary["step_time_mean_s"] == pytest.approx(1 / 3)
    assert (summary["step_time_median_s"], summary["final_loss"]) == (0.25, 2.0)


@given(data=st.data(), batch=st.integers(1, 512), ranks=st.integers(2, 4))
def test_throughput_of_jittered_ranks_is_items_over_the_longest_elapsed_time(data, batch, ranks):
    """Ends of steps scatter around those of the training, evaluations and checkpoints between."""
    nominal = data.draw(st.lists(st.floats(0.01, 2), min_size=8, max_size=30))
    each = {"min_size": len(nominal), "max_size": len(nominal)}
    pauses = data.draw(st.lists(st.sampled_from([0, 0, 0.5, 30.0]), **each))
    jitter = st.lists(st.floats(-0.004, 0.004), **each)
    half, warm_up, elapsed_s, first_epoch_s = len(nominal) // 2, 2, [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            ends_s = np.cumsum(nominal) + np.cumsum(pauses) + data.draw(jitter)
            times = np.diff(ends_s, prepend=0.0) - pauses
            own_s = ends_s - np.cumsum(pauses)  # of a clock that stands still in pauses
            elapsed_s.append(own_s[-1] - own_s[warm_up - 1])
            first_epoch_s.append(own_s[half - 1] - own_s[0])
            epochs = {"warm_up": warm_up, "epoch": lambda step: 1 if step <= half else 2}
            write(Path(folder), times.tolist(), rank, **epochs)
        run = dataclasses.replace(TWO, devices_per_node=ranks, batch_per_device=batch)
        run = dataclasses.replace(run, steps=None, epochs=2, dataset="digits")
        summary = parsed(Path(folder), run)["summary"]
    items = (len(nominal) - warm_up) * run.global_batch
    assert summary["images_per_second"] == pytest.approx(items / max(elapsed_s), rel=1e-4)
    total_s = summary["step_time_mean_s"] * summary["steps_measured"]
    assert total_s == pytest.approx(max(elapsed_s), rel=1e-4)
    first = (half - 1) * run.global_batch / max(first_epoch_s)
    assert summary["first_epoch_images_per_second"] == pytest.approx(first, rel=1e-4)


def test_ranks_whose_steps_end_apart_did_not_stall(tmp_path):
    """Here the maxima over the ranks have a median that is 8 % above the time that passed."""
    chance = np.random.default_rng(1)
    for rank in range(2):
        ends_s = 0.01 * np.arange(1, 402) + chance.normal(0, 0.001, 401)
        write(tmp_path, np.diff(ends_s, prepend=0.0).tolist(), rank)
    record = parsed(tmp_path, TWO)
    assert (record["status"], record["message"]) == ("ok", "")
    assert record["summary"]["step_time_median_s"] == pytest.approx(0.01, rel=0.03)


@pytest.mark.parametrize(("steps", "rate"), [(0, None), (1, None), (2, 32.0), (3, 64 / 3)])
def test_a_first_epoch_is_kept_apart_and_measured_without_its_first_step(tmp_path, steps, rate):
    times = [9.0, 1.0, 2.0][:steps] + [0.5] * 4
    write(tmp_path, times, warm_up=steps, epoch=lambda step: 1 if step <= steps else 2)
    summary = parsed(tmp_path, EPOCHS)["summary"]
    assert (summary["first_epoch_images_per_second"], summary["images_per_second"]) == (rate, 64)


@pytest.mark.parametrize(
    ("first", "second", "status", "message"),
    [
        ({}, {"weights": ["1"]}, "failed", "the weights differ over the devices at the end (2 ver"),
        ({}, None, "failed", "expected 2 devices, found 1 in the logs of 1 rank(s)"),
        ({}, {"times": [0.5] * 3}, "failed", "expected 4 steps, found 4 and 3"),
        ({}, {"status": None}, "failed", "rank 1 ended without a word after step 4"),
        (
            {"status": "failed", "message": "stopped by a signal"},
            {"status": None, "times": []},
            "failed",
            "rank 1 ended without a word before its first step",
        ),
        ({"status": "oom", "message": "GPU 0"}, {"status": None}, "oom", "rank 0: GPU 0"),
        ({"status": "timeout", "message": "why"}, {}, "timeout", "rank 0: why"),
        ({"status": "skipped", "message": "why"}, {}, "skipped", "rank 0: why"),
    ],
)
def test_what_failed_of_one_rank_is_named(tmp_path, first, second, status, message):
    for rank, fields in enumerate([first] if second is None else [first, second]):
        write(tmp_path, rank=rank, **{"times": [0.5] * 4} | fields)
    record = parsed(tmp_path, TWO)
    assert record["status"] == status
    assert record["message"].startswith(message)


def test_what_ended_all_ranks_before_their_first_step_is_said_and_not_that_one_has_no_end(tmp_path):
    end = {"status": "failed", "message": "stopped at time_limit_s", "before_first_step": True}
    write(tmp_path, [], 0, **end)
    write(tmp_path, [], 1, status=None)
    record = parsed(tmp_path, TWO)
    assert record["message"] == "rank 0: stopped at time_limit_s"
    assert record["provenance"]["before_first_step"] is True


def test_energy_and_cpu_time_are_those_of_all_ranks_or_unknown(tmp_path):
    used = {"cpu_time_s": 2.0, "peak_memory_bytes": 5, "energy_j": 10.0}
    write(tmp_path, [0.5] * 3, 0, **used)
    write(tmp_path, [0.5] * 3, 1, **used | {"energy_j": None, "peak_memory_bytes": 7})
    summary = parsed(tmp_path, TWO)["summary"]
    assert (summary["cpu_time_s"], summary["peak_memory_bytes"]) == (4.0, 7)
    assert summary["energy_j"] is None


def test_the_energy_of_a_node_is_what_its_meter_said_with_what_was_wrong_with_it(tmp_path):
    write(tmp_path, [0.5] * 3, host_energy_j=4.0, host_energy_samples=61)
    log = EventLog(tmp_path / "train.jsonl")
    energy = {"node_energy_j": 9.0, "node_energy_samples": 80, "node_energy_sampled_share": 0.9}
    log.write("power_meter", scope="node", command=["watts"], trouble="it ended", **energy)
    log.close()
    summary = parsed(tmp_path)["summary"]
    assert (summary["host_energy_j"], summary["node_energy_j"]) == (4.0, 9.0)
    assert summary["energy_remark"] == "node: readings for 90.0 % of the time; meter: it ended"


def test_a_run_that_went_on_with_other_devices_is_unstable(tmp_path):
    write(tmp_path, [0.5] * 3, status=None)
    log = EventLog(tmp_path / "train.jsonl")
    now = event_log.utc_now()
    log.write("resume", step=3, t_s=1.5, t_utc=now, host="b", device_model="another")
    log.write("run_end", t_utc=now, status="ok", message="", weights_sha256=["0"])
    log.close()
    record = parsed(tmp_path)
    assert (record["status"], record["summary"]["resumes"]) == ("unstable", 1)
    assert record["message"] == "trained on different devices: None, another"


@pytest.mark.parametrize(
    ("times", "median_s", "reason"),
    [
        ([0.1] * 50 + [2.0], 0.1, "some steps stalled"),
        # Most steps are the slower ones.
        ([0.02, 0.03, 0.03] * 20, 0.03, "the median step time: fast and slow steps alternate"),
    ],
)
def test_steps_of_which_some_stalled_make_a_run_unstable(tmp_path, times, median_s, reason):
    write(tmp_path, times)
    record = parsed(tmp_path)
    assert record["status"] == "unstable" and record["message"].endswith(reason)
    assert record["summary"]["step_time_median_s"] == median_s


def test_a_run_that_ends_in_its_warm_up_measured_nothing(tmp_path):
    write(tmp_path, [0.5], warm_up=1)
    assert parsed(tmp_path)["message"] == "no step was measured after the warm-up"
    with pytest.raises(ValueError, match="did the run stop during warm-up"):
        step_times.images_per_second([], 32)


def test_a_loss_that_is_not_a_number_is_left_out_of_the_record(tmp_path):
    write(tmp_path, [0.5] * 3, losses=[1.0, 2.0, float("inf")], status="failed")
    assert parsed(tmp_path)["summary"]["final_loss"] is None
    json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)


def test_a_log_that_was_cut_short_is_no_result(tmp_path):
    write(tmp_path, [0.5] * 3, status=None)
    with pytest.raises(LogError, match="no run_end: the run was cut short"):
        parsed(tmp_path)
    with pytest.raises(LogError, match="there is no training log"):
        parse_run.parse(RUN, tmp_path / "absent.jsonl", tmp_path / "run.json")


def test_what_nccl_used_is_said_of_all_ranks(tmp_path):
    for rank in (0, 1):
        write(tmp_path, [0.5] * 3, rank)
        log = EventLog(event_log.rank_path(tmp_path / "train.jsonl", rank))
        logged = {"algorithms": {"AllReduce RING/SIMPLE": 3}} if rank == 0 else {}
        log.write("nccl", version="2.28.9", network="IB", transports={"NET/IB/GDRDMA": 8}, **logged)
        log.close()
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["nccl_transports"] == "NET/IB/GDRDMA 16" and summary["gpudirect_rdma"]
    assert summary["nccl_version"] == "2.28.9"
    assert summary["nccl_algorithms"] == "AllReduce RING/SIMPLE 3"


COPIES = dataclasses.replace(RUN, copies_per_node=2)


def write_copies(folder, *times, began_s=(0.0, 0.0), **values):
    """Logs of copies that began at some seconds of one day."""
    for number, (own, second) in enumerate(zip(times, began_s, strict=True)):
        write(folder, own, number, **values)
        path = event_log.rank_path(folder / "train.jsonl", number)
        events = [json.loads(line) for line in path.read_text().splitlines()]
        events[0] |= {"t_utc": f"2026-11-21T00:00:{second:09.6f}Z", "cores": [number]}
        path.write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_the_numbers_of_copies_are_those_of_one_copy(tmp_path):
    write_copies(tmp_path, [1.0, 0.5, 0.5, 0.5], [1.0, 0.25, 0.25, 0.25])
    summary = parsed(tmp_path, COPIES)["summary"]
    assert summary["copies_images_per_second"] == [64.0, 128.0]
    assert summary["images_per_second"] == 96.0
    assert summary["copy_sd_images_per_second"] == pytest.approx(64 / 2**0.5)
    assert summary["steps_measured"] == 3
    assert (summary["step_time_mean_s"], summary["step_time_median_s"]) == (0.375, 0.375)
    assert summary["step_time_sd_s"] == pytest.approx(0.136931, rel=1e-5)
    # Measured from 1.0 to 2.5 and from 1.0 to 1.75.
    assert summary["overlap"] == pytest.approx(0.75 / 1.125)


@pytest.mark.parametrize(
    ("second", "overlap", "status"),
    [(0.0, 1.0, "ok"), (0.09, 0.91, "ok"), (0.12, 0.88, "unstable"), (30.0, 0.0, "unstable")],
)
def test_copies_that_were_not_measured_together_are_unstable(tmp_path, second, overlap, status):
    write_copies(tmp_path, *[[1.0, *[0.125] * 8]] * 2, began_s=(0.0, second))
    record = parsed(tmp_path, COPIES)
    assert record["summary"]["overlap"] == pytest.approx(overlap, abs=1e-12)
    assert (record["status"], record["summary"]["images_per_second"]) == (status, 32 / 0.125)
    assert record["summary"]["copy_sd_images_per_second"] == 0.0
    if status == "unstable":
        assert f"were measured at once in {overlap:.0%} of their time only" in record["message"]


def test_copies_of_different_speed_did_not_stall(tmp_path):
    write_copies(tmp_path, [1.0, *[0.110] * 20], [1.0, *[0.100] * 20])
    record = parsed(tmp_path, COPIES)
    assert record["status"] == "ok"
    assert 0.9 < record["summary"]["overlap"] < 1


def test_a_copy_that_stalled_is_named(tmp_path):
    write_copies(tmp_path, [1.0, *[0.1] * 40], [1.0, *[0.1] * 38, 1.0, 1.0])
    record = parsed(tmp_path, COPIES)
    assert record["status"] == "unstable"
    assert record["message"].startswith("copy 1: ")
    assert record["message"].endswith("some steps stalled")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((["a", "a"], ["b", "b"]), ""),  # copies need not end with equal weights
        ((["a", "a"], ["a", "b"]), "the weights differ over the devices at the end"),
        ((["a", "a"], ["a"]), "expected 2 devices, found 1 in the logs of 1 rank(s)"),
    ],
)
def test_each_copy_has_all_devices_of_the_run_with_equal_weights(tmp_path, weights, message):
    for number, own in enumerate(weights):
        write(tmp_path, [1.0, 0.5, 0.5], number, weights=own)
    run = dataclasses.replace(COPIES, strategy="mirrored", devices_per_node=2)
    record = parsed(tmp_path, run)
    assert record["status"] == ("failed" if message else "ok")
    assert message in record["message"]


def test_copies_that_shared_a_core_were_not_packed(tmp_path):
    write_copies(tmp_path, *[[1.0, 0.5, 0.5]] * 2)
    path = event_log.rank_path(tmp_path / "train.jsonl", 1)
    path.write_text(path.read_text().replace('"cores": [1]', '"cores": [0, 1]'))
    record = parsed(tmp_path, COPIES)
    message = "copies 0 and 1 shared the cores [0]"
    assert (record["status"], record["message"]) == ("failed", message)


SIGNAL = {"status": "failed", "message": event_log.STOPPED_BY_SIGNAL}


@pytest.mark.parametrize(
    ("first", "second", "status", "message"),
    [
        ({}, None, "failed", "expected 2 copies, found 1 logs"),
        (SIGNAL, {"status": "failed", "message": "no data"}, "failed", "copy 1: no data"),
        (SIGNAL, {"status": None}, "failed", "copy 1 ended without a word after step 2"),
        # What the supervisor says is said of all copies.
        ({"status": "timeout", "message": "at its limit", "hung": False}, SIGNAL, "timeout",
         "at its limit"),
    ],
)  # fmt: skip
def test_a_copy_that_is_missing_died_or_failed_is_named(tmp_path, first, second, status, message):
    for number, end in enumerate([first] if second is None else [first, second]):
        write(tmp_path, [1.0, 0.5], number, **end)
    record = parsed(tmp_path, COPIES)
    assert (record["status"], record["message"]) == (status, message)


def test_the_first_epoch_of_copies_is_that_of_one_copy(tmp_path):
    run = dataclasses.replace(COPIES, steps=None, epochs=2, dataset="digits")
    for number, second in enumerate((1.0, 0.5)):
        times = [9.0, second, second, 0.5, 0.5]
        write(tmp_path, times, number, warm_up=3, epoch=lambda step: 1 if step < 4 else 2)
    assert parsed(tmp_path, run)["summary"]["first_epoch_images_per_second"] == (32 + 64) / 2


def test_energy_of_copies_is_that_of_all(tmp_path):
    used = {"cpu_time_s": 2.0, "energy_j": 10.0}
    for number in range(2):
        write(tmp_path, [0.5] * 3, number, **used, peak_memory_bytes=5 + number)
    summary = parsed(tmp_path, COPIES)["summary"]
    found = [summary[key] for key in ("cpu_time_s", "energy_j", "peak_memory_bytes")]
    assert found == [4.0, 20.0, 6]
