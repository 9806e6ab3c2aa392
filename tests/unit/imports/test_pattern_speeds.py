"""pattern_speeds: what a printed time or rate is, in times of steps and items per second."""

import pytest

from dlbench.imports import kinds, merging, table_rows
from dlbench.imports.log_file import LogFile

TIME = r"^(?P<step>\d+) (?P<step_time_ms>\S+)"


def row(log, content, processes=1, fields=(), **patterns):
    """The row of a run, completed with fields of the run."""
    log.write_text(content)
    (run,) = kinds.of_config(patterns, processes).read(LogFile(log))
    merged = merging.merge([merging.Source(run, "patterns", "log", "0" * 64)])
    table_rows.complete(merged, {"the run": dict(fields)}, "log")
    return table_rows.run_row(merged, "run", None, None)


BATCH = {"global_batch": 8}


@pytest.mark.parametrize(
    ("means", "times", "mean_s", "measured"),
    [
        ("of one step", (9000, 100, 300), 0.2, 2),
        ("mean since the last line", (9000, 100, 300), 0.2, 20),
        ("running mean", (1000, 600, 500), 0.25, 20),  # 10 s, 12 s and 15 s after 10, 20, 30 steps
    ],
)
def test_a_time_is_of_what_is_said(log, means, times, mean_s, measured):
    content = "".join(f"{10 * n} {time}\n" for n, time in enumerate(times, start=1))
    warm_up = {"warm_up": 10} if means == "of one step" else {}
    found = row(log, content, fields=BATCH, step=TIME, means=means, **warm_up)
    assert found["step_time_mean_s"] == pytest.approx(mean_s)
    assert found["images_per_second"] == pytest.approx(8 / mean_s)
    assert found["steps_measured"] == measured


def test_a_running_mean_may_begin_after_the_warm_up(log):
    content = "10 500\n20 250\n"  # of 8 steps, and of 18
    found = row(log, content, fields=BATCH, step=TIME, means="running mean", warm_up=2)
    assert found["step_time_mean_s"] == pytest.approx(0.25)
    assert found["steps_measured"] == 18
    # One by which time went backwards is left out.
    found = row(log, "1 900\n2 400\n3 500\n", fields=BATCH, step=TIME, means="running mean")
    assert "line 2 left out: a running mean by which steps took no time" in found["notes"]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1e3), ("us", 1e6)])
def test_units_are_in_names(log, unit, factor):
    content = "".join(f"{n} {0.25 * factor}\n" for n in (1, 2, 3))
    found = row(log, content, fields=BATCH, step=TIME.replace("_ms", f"_{unit}"))
    assert found["step_time_mean_s"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("group", "value", "of", "fields"),
    [
        ("items_per_second", 32, "all devices", {}),
        ("samples_per_second", 8, "one device", {"devices": 4}),
        ("images_per_second", 16, "one process", {"devices": 4}),
        ("tokens_per_second", 3200, "all devices", {"item_shape": "100"}),
        ("tokens_per_second", 800, "one device", {"item_shape": "100", "devices": 4}),
        ("steps_per_second", 4, "one device", {"devices": 4}),
    ],
)
@pytest.mark.parametrize("key", ["step", "rate"])
def test_a_rate_is_converted_to_that_of_all_devices(log, key, group, value, of, fields):
    content = "".join(f"{n} {value}\n" for n in (1, 2, 3))
    patterns = {"of": of, key: rf"^(?:\d) (?P<{group}>\S+)"}
    found = row(log, content, 2, BATCH | fields, **patterns)
    if key == "step" or group == "steps_per_second":
        assert found["step_time_mean_s"] == pytest.approx(0.25)
    if key == "step" or group != "steps_per_second":
        assert found["images_per_second"] == pytest.approx(32)


def test_without_the_batch_rates_are_a_throughput_alone(log):
    step = r"^(?P<step>\d+) (?P<items_per_second>\S+)"
    found = row(log, "10 1\n20 10\n30 30\n", step=step)
    assert found["images_per_second"] == pytest.approx(15)  # 20 steps in 10/10 + 10/30 of a time
    assert found["steps_measured"] == 20 and "step_time_mean_s" not in found


def test_tokens_of_items_of_unknown_length_are_a_rate_of_tokens(log):
    found = row(log, "5\n", rate=r"(?P<tokens_per_second>\S+)")
    assert found["tokens_per_second"] == 5 and "images_per_second" not in found
    assert "item_shape, the tokens of an item, is unknown" in found["notes"]


def test_a_rate_of_the_whole_training_counts_before_that_of_the_steps_which_may_contradict_it(log):
    def found(total):
        content = f"1 100\n2 100\n3 100\ntotal {total} items/s\n"
        return row(log, content, fields=BATCH, step=TIME, rate=r"total (?P<items_per_second>\S+)")

    assert found(79)["images_per_second"] == 79 and "contradicts" not in found(79)
    assert found(79)["rate_uncertainty"] == pytest.approx(0.5 / 79)  # the last printed digit
    assert "4 times as much" in found(20.0)["contradicts"]


def test_the_last_printed_digit_is_the_uncertainty(log):
    found = row(log, "1 10\n2 10\n3 10\n", fields=BATCH, step=TIME)
    assert found["rate_uncertainty"] == pytest.approx(0.05)
