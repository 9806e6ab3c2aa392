"""Statistics of steps that were timed in windows, on made-up logs."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis import run_tables
from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog
from dlbench.records import costs, parse_run, step_times
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=32, steps=3, steps_per_sync=10)
# Windows of up to 50 steps of up to a minute, from 1 us.
WINDOWS = st.lists(st.lists(st.floats(1e-6, 60), min_size=1, max_size=50), min_size=1, max_size=20)


def windowed(windows):
    """(mean time of each window, steps of each)."""
    return [math.fsum(own) / len(own) for own in windows], [len(own) for own in windows]


@given(WINDOWS)
def test_totals_means_and_rates_are_those_of_the_steps_whatever_the_windows(windows):
    times, lengths = windowed(windows)
    steps = [time for own in windows for time in own]
    summary = step_times.summary(times, lengths)
    assert summary["step_time_mean_s"] == pytest.approx(statistics.fmean(steps), rel=1e-9)
    rate = step_times.images_per_second(step_times.of_steps(times, lengths), 32)
    assert rate == pytest.approx(step_times.images_per_second(steps, 32), rel=1e-9)
    assert len(step_times.of_steps(times, lengths)) == len(steps)


@given(WINDOWS)
def test_median_percentile_and_mad_lie_within_the_windows_and_weigh_them_by_their_steps(windows):
    times, lengths = windowed(windows)
    summary = step_times.summary(times, lengths)
    low, high = min(times), max(times)
    for name in ("step_time_median_s", "step_time_p95_s", "step_time_mean_s"):
        assert low * (1 - 1e-12) <= summary[name] <= high * (1 + 1e-12)
    assert 0 <= summary["step_time_mad_s"] <= step_times.MAD_TO_SIGMA * (high - low) * (1 + 1e-12)
    each = np.repeat(times, lengths)
    assert summary["step_time_median_s"] == pytest.approx(np.median(each))
    assert summary["step_time_p95_s"] == pytest.approx(np.percentile(each, 95))


@given(st.lists(st.floats(1e-6, 60), min_size=2, max_size=50), st.integers(1, 50))
def test_the_scatter_of_equal_windows_is_that_of_their_means(times, steps):
    summary = step_times.summary(times, [steps] * len(times))
    assert summary["step_time_sd_s"] == statistics.stdev(times)


@given(st.lists(st.floats(1e-6, 60), min_size=1, max_size=50))
def test_windows_of_one_step_are_steps(times):
    assert step_times.summary(times, [1] * len(times)) == step_times.summary(times)
    assert step_times.summary([0.5], [10])["step_time_sd_s"] is None


def test_the_variance_over_windows_is_unbiased_though_the_last_one_is_shorter():
    random = np.random.default_rng(1)
    lengths, variances = [10, 10, 10, 3], []
    for _ in range(4000):
        steps = random.normal(1.0, 0.1, sum(lengths))
        windows = np.split(steps, np.cumsum(lengths)[:-1])
        deviation = step_times.summary(*windowed([list(own) for own in windows]))["step_time_sd_s"]
        variances.append(deviation**2)
    # Each window says 0.1^2 / 10 per step on average, as it weighs by its steps.
    means = len(lengths) - 1
    expected = 0.1**2 * means / (33 - sum(n * n for n in lengths) / 33)
    assert np.mean(variances) == pytest.approx(expected, rel=0.05)


def test_the_slowest_rank_is_the_one_that_took_longest_over_whole_windows():
    first = [{"step_time_s": 1.0, "window_steps": 10}, {"step_time_s": 4.0}]  # 14 s
    second = [{"step_time_s": 1.2, "window_steps": 10}, {"step_time_s": 1.0}]  # 13 s
    assert step_times.slowest(list(zip(first, second, strict=True))) == [1.0, 4.0]


def write(folder, windows, losses=None, rates=None):
    """A log of windows, the first of which is warm-up. Returns its path."""
    path = folder / "train.jsonl"
    log = EventLog(path)
    total = sum(map(len, windows))
    log.start(spec=RUN.values(), total_steps=total, devices=["CPU:0"], versions={})
    log.write("compile", trace_s=0.0)
    log.write("windows", step=0, steps_per_sync=10)
    t_s, step = 0.0, 0
    for number, own in enumerate(windows):
        t_s, step = t_s + math.fsum(own), step + len(own)
        mine = losses or [2.0 / (step + place) for place in range(len(own))]
        fields = event_log.window_fields(mine, rates or [0.01] * len(own))
        log.step(step, t_s, math.fsum(own) / len(own), mine[-1], 0.01, not number, 1, fields)
    end = {"status": "ok", "message": "", "weights_sha256": ["0"], "t_utc": event_log.utc_now()}
    log.write("run_end", t_s=t_s, **end)
    log.close()
    return path


def test_a_record_counts_steps_and_not_windows(tmp_path):
    path = write(tmp_path, [[3.0], [0.25] * 10, [0.25] * 10, [0.25] * 4])
    record = parse_run.content(RUN, parse_run.rank_logs(path))
    assert (record["status"], record["message"]) == ("ok", "")
    summary = record["summary"]
    assert (summary["steps_measured"], summary["burn_in_steps"]) == (24, 1)
    assert (summary["window_steps"], summary["images_per_second"]) == (10, 128.0)
    assert (summary["step_time_sd_s"], summary["compile_s"]) == (0.0, 2.75)
    assert costs.latest(path).images_per_second == 128.0


# What is lost with windows: the median moves with the stalls.
@pytest.mark.parametrize(("stalls", "status"), [(1, "unstable"), (10, "ok")])
def test_one_stalled_step_in_a_window_makes_a_run_unstable_and_one_in_each_does_not(
    tmp_path, stalls, status
):
    windows = [[0.1] * 9 + [2.0]] * stalls + [[0.1] * 10] * (10 - stalls)
    logs = parse_run.rank_logs(write(tmp_path, [[1.0], *windows]))
    assert parse_run.content(RUN, logs)["status"] == status


def test_all_losses_and_rates_of_a_window_are_rows_and_its_time_is_that_of_the_last(tmp_path):
    losses, rates = [2.0, math.nan, 1.0], [0.1, 0.2, 0.3]
    path = write(tmp_path, [[0.5] * 3] * 2, losses, rates)
    (log,) = parse_run.rank_logs(path)
    rows = [row for event in log.steps for row in run_tables.step_rows(event)]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_equal([row["loss"] for row in rows], losses * 2)
    assert [row["learning_rate"] for row in rows] == [0.1, 0.2, 0.01] * 2
    assert [row.get("window_steps") for row in rows] == [None, None, 3] * 2
    assert [row.get("step_time_s") for row in rows] == [None, None, 0.5] * 2
    assert [row["warm_up"] for row in rows] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"window_steps": 3', '"window_steps": 2', "expected step 2, found 3"),
        ('"losses": [2.0, ', '"losses": [', "expected 3 losses in the window .* found 2"),
        ('"losses": [2.0, 2.0, 2.0]', '"losses": [2.0, 2.0, null]', "losses"),
    ],
)
def test_a_window_whose_losses_are_not_as_many_as_its_steps_is_damage(
    before, after, reason, tmp_path
):
    path = write(tmp_path, [[0.5] * 3] * 2, [2.0] * 3)
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(LogError, match=reason):
        parse_run.rank_logs(path)


def test_the_progress_of_a_run_is_known_though_its_last_window_is_long(tmp_path):
    path = write(tmp_path, [[0.25] * 1000] * 2, [2.123456789012345] * 1000)
    shown = costs.latest(path)
    assert (shown.step, shown.images_per_second) == (2000, 128.0)
