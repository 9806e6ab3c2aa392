"""pattern_run: what the numbers in lines become: rows, columns, metrics, times and rates."""

import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.imports import kinds, log_lines, table_rows
from dlbench.imports.log_file import LogError, LogFile
from support.logs.rewritten_logs import DATES, RANKS


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=20), min_size=1))
def test_a_block_is_split_at_its_newlines(texts):
    block = "".join(f"{text}\n" for text in texts).encode("utf-8", "replace")
    expected = block.decode("utf-8", "replace").split("\n")[:-1]
    assert log_lines.split_lines(block).to_pylist() == expected


def test_bytes_that_are_no_text_are_replaced():
    assert log_lines.split_lines(b"a\xff\nb\n").to_pylist() == ["a\ufffd", "b"]


@given(st.lists(st.from_regex(r"[a-c]{0,3}(loss|lass) ?[0-9.e+-]{0,4}[a-c]?", fullmatch=True)))
def test_groups_are_those_of_re(texts):
    pattern = r"^.*?loss ?(?P<loss>[\d.]+)(?:a|(?P<more>b))?"
    rows, groups = log_lines.match_groups(pa.array(texts, pa.string()), pattern)
    found = [(row, match) for row, text in enumerate(texts) if (match := re.search(pattern, text))]
    assert rows.tolist() == [row for row, _ in found]
    for name, column in groups.items():
        assert column.to_pylist() == [match[name] or "" for _, match in found]


@pytest.mark.parametrize("prefix", [*DATES, *RANKS])
def test_prefixes_are_recognised_as_by_the_reader_of_consoles(prefix):
    line = f"{prefix.decode()}step 1"
    assert len(log_lines.matching(pa.array([line]), log_lines.PREFIXED)) == 1
    ranks, rest = log_lines.without_labels(pa.array([line]), log_lines.LABELS)
    rank, text = log_lines.split(line)
    if prefix in RANKS and text == rest[0].as_py():
        assert ranks[0].as_py() == rank


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), ("-2e-3", -0.002), ("1,2", None), ("5ms", None), ("inf", float("inf"))],
)
def test_numbers_are_read_as_printed(text, value):
    (read,) = log_lines.parse_numbers(pa.array([text]))
    assert read == value if value is not None else np.isnan(read)


def test_a_pattern_on_which_re_would_hang_takes_no_time():
    lines = pa.array(["a" * 100_000] * 10)
    assert not len(log_lines.matching(lines, r"(?:a+)+b"))


def test_the_last_digit_of_long_and_strange_numbers_is_no_error():
    assert log_lines.half_last_digit(pa.array(["1e400", "nan", "", "12"])) == 0.5


STEP = r"step (?P<step>\S+) loss (?P<loss>\S+) took (?P<step_time_ms>\S+) ms"

BAR = r"(?P<step>\d+) of (?P<epoch_steps>\d+): (?P<step_time_s>\S+)"
EPOCH = r"(?P<epoch>\d)/(?P<step>\d+): (?P<step_time_s>\S+)"


def read(log, content, **patterns):
    log.write_text(content)
    (run,) = kinds.of_config({"step": STEP} | patterns, 1).read(LogFile(log))
    run.complete(run.columns)
    return run


def step(number, time_ms=125, loss=2.5):
    return f"step {number} loss {loss} took {time_ms} ms\n"


def test_steps_that_count_from_0_are_counted_from_1(log):
    run = read(log, step(0) + step(1) + step(2))
    assert list(run.steps.step) == [1, 2, 3]
    assert "steps count from 0 in the log, from 1 here" in run.notes
    # Lines without numbers of steps are numbered.
    run = read(log, "took 5 ms\n" * 3, step=r"took (?P<step_time_ms>\S+)")
    assert list(run.steps.step) == [1, 2, 3] and list(run.steps.warm_up) == [1, 0, 0]


@pytest.mark.parametrize(
    ("pattern", "content", "steps", "said"),
    [
        (BAR, "9 of 10: 1\n5 of 10: 1\n",
         None, "step 5 after step 9: lines of two runs, of several ranks, or of another epoch"),
        (BAR, "10 of 10: 1\n5 of 10: 1\n",
         [10, 15], None),
        (EPOCH, "3/5: 1\n3/10: 1\n4/5: 1\n",
         [25, 30, 35], "epochs are taken to be as long as the longest"),
        (EPOCH, "2/9: 1\n1/10: 1\n",
         None, "step 10 of epoch 1 after step 9 of epoch 2"),
        (r"(?P<steps>\d+) steps in (?P<window_time_s>\S+)", "20 steps in 5\n10 steps in 5\n",
         [20, 30], None),
        (r"(?P<step>\d+): (?P<steps>\d+) steps in (?P<window_time_s>\S+)",
         "20: 20 steps in 5\n50: 10 steps in 5\n", [20, 50], None),
    ],
)  # fmt: skip
def test_steps_that_begin_anew_are_of_another_epoch_if_that_is_known(
    log, pattern, content, steps, said
):
    if steps is None:
        with pytest.raises(LogError, match=said):
            read(log, content, step=pattern)
        return
    run = read(log, content, step=pattern)
    assert list(run.steps.step) == steps and (said or "") in "; ".join(run.notes)
    if "steps in" in content:
        assert list(run.steps.step_time_s) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("warm_up", "expected"), [(None, [1, 0, 0, 0]), (0, [0, 0, 0, 0]), (2, [1, 1, 0, 0])]
)
def test_warm_up_is_the_first_line_or_what_is_said(log, warm_up, expected):
    entry = {} if warm_up is None else {"warm_up": warm_up}
    run = read(log, "".join(map(step, range(1, 5))), **entry)
    assert list(run.steps.warm_up) == expected


def test_what_is_no_number_is_left_out_with_its_line(log):
    run = read(log, step(1) + step(2, "n/a") + step("x") + step(4, 0) + step(5, loss="nan"))
    assert list(run.steps.step) == [1, 2, 4, 5]
    assert [math.isnan(time) for time in run.steps.step_time_s] == [False, True, True, False]
    notes = "\n".join(run.notes)
    assert "line 3 left out: a step whose number is none" in notes
    assert "lines 2 to 4, 2 of them, left out: step_time_ms that is no number above 0" in notes
    assert math.isnan(run.steps.loss[-1]) and "the loss is nan from line 5 on" in run.notes


def test_evaluations_have_scores_as_shares(log):
    pattern = r"eval (?P<epoch>\d+): (?P<loss>\S+) top1 (?P<top1_percent>\S+)%"
    run = read(log, step(1) + step(2) + "eval 1: 2.5 top1 75%\neval 2: 2.0 top1 900%\n",
               evaluation=pattern)  # fmt: skip
    assert run.evals == [
        {"split": "validation", "epoch": 1, "loss": 2.5, "top1": 0.75},
        {"split": "validation", "epoch": 2, "loss": 2.0},
    ]
    assert "line 4 left out: top1 of an evaluation: '900'" in run.notes


def test_settings_are_the_first_that_the_log_states_and_learning_rates_columns_of_steps(log):
    content = "batch 1,024\nitems of 3x4\nbatch 2\n1 lr 0.5 1\n2 lr 0.25 1\n"
    patterns = [r"batch (?P<global_batch>\S+)", r"items of (?P<item_shape>\S+)"]
    steps = r"(?P<step>\d+) lr (?P<learning_rate>\S+) (?P<step_time_s>\S+)"
    run = read(log, content, settings=patterns, step=steps)
    assert (run.columns["global_batch"], run.columns["item_shape"]) == (1024, "3x4")
    assert list(run.steps.more["learning_rate"]) == [0.5, 0.25]


def test_of_several_lines_with_a_metric_the_last_counts(log):
    metrics = {
        "bw": {"pattern": r"bw (?P<value>\S+) (?P<unit>\S+)", "better": "higher"},
        "odd": r"odd (\S+)",
    }
    run = read(log, step(1) + step(2) + "bw 3 GB/s\nbw 4,000 GB/s\nodd inf\n", metrics=metrics)
    assert run.metrics == [{"name": "bw", "value": 4000, "unit": "GB/s", "better": "higher"}]
    assert "line 5 left out: metric odd: expected a finite number, found 'inf'" in run.notes


@pytest.mark.parametrize(("unit", "line"), [({}, 2), ({"unit": "MB/s"}, 1)])
def test_a_metric_of_another_unit_is_refused(log, unit, line):
    metrics = {"bw": {"pattern": r"bw (?P<value>\S+) (?P<unit>\S+)"} | unit}
    with pytest.raises(LogError, match=f"line {line}: metric bw has the unit '.B/s', expected '.B"):
        read(log, "bw 3 GB/s\nbw 4 MB/s\n" + step(1), metrics=metrics)


TIME = r"^(?P<step>\d+) (?P<step_time_ms>\S+)"


def row(log, content, processes=1, fields=(), **patterns):
    """The row of a run, completed with fields of the run."""
    log.write_text(content)
    (run,) = kinds.of_config(patterns, processes).read(LogFile(log))
    merged = table_rows.merge([table_rows.Source(run, "patterns", "log", "0" * 64)])
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
