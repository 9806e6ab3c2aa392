"""Records of runs of several copies at once: two of the run, each on its own device."""

import dataclasses
import json

import pytest

from dlbench.log import event_log
from support.runs.parsed_runs import RUN, parsed, write

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
