"""Importers of logs with times of steps or rates: Horovod's benchmark, convnet-benchmarks."""

import math

import pytest

from dlbench.imports.log_file import LogError
from support.logs.reading_logs import notes, read

HEADER = "Model: resnet50\nBatch size: 32\nNumber of GPUs: 4\nRunning warmup...\n"
ITERATIONS = "Iter #0: 100.0 img/sec per GPU\nIter #1: 50.0 img/sec per GPU\n"
TOTAL = "Img/sec per GPU: 75.0 +-49.0\nTotal img/sec on 4 GPU(s): 300.0 +-196.0\n"


# Horovod's synthetic benchmark


def test_iterations_of_horovod_become_windows_of_the_time_that_a_step_took(log):
    (run,) = read("horovod_synthetic", log, HEADER + ITERATIONS + TOTAL)
    # 32 items at 100 and at 50 items/s.
    assert list(run.steps.step_time_s) == [0.32, 0.64]
    assert list(run.steps.window_steps) == [10, 10]
    assert list(run.steps.step) == [10, 20]
    # 4 x 32 items over the mean time of 0.48 s are 266.7 items/s, not the printed 300: that is
    # 4 times the arithmetic mean of 100 and 50.
    assert "images_per_second" not in run.columns
    assert run.columns["global_batch"] / 0.48 == pytest.approx(800 / 3)
    assert "75.0 +-49.0 img/sec per device: the arithmetic mean of 2 iterations" in notes(run)
    assert "1.96 of their standard deviations" in notes(run)
    (run,) = read("horovod_synthetic", log, HEADER + ITERATIONS)
    assert run.columns == {
        "model": "resnet50", "dataset": "synthetic", "mode": "train", "strategy": "horovod",
        "devices": 4, "device_kind": "gpu", "batch_per_device": 32, "global_batch": 128,
        "item_shape": "224x224x3",
    }  # fmt: skip
    assert (run.status, run.message) == ("failed", "its log ends after iteration 1")


def test_without_a_batch_size_horovods_rate_is_the_harmonic_mean_or_the_printed_total(log):
    (run,) = read("horovod_synthetic", log, "Number of CPUs: 4\n" + ITERATIONS + TOTAL)
    # 4 x 2 / (1/100 + 1/50)
    assert run.columns["images_per_second"] == pytest.approx(800 / 3)
    assert len(run.steps) == 0
    (run,) = read("horovod_synthetic", log, "Total img/sec on 4 GPU(s): 300.0 +-196.0\n")
    assert run.columns["images_per_second"] == 300.0
    assert "arithmetic mean" in notes(run)


def test_runs_of_horovod_in_one_log_are_apart(log):
    content = HEADER + ITERATIONS + TOTAL + HEADER.replace("4", "2") + ITERATIONS
    first, second = read("horovod_synthetic", log, content)
    assert [run.columns["devices"] for run in (first, second)] == [4, 2]
    assert first.lines == (1, 8)
    assert second.lines == (9, 14)


def test_lines_of_two_ranks_are_not_taken_twice(log):
    lines = [line for line in (HEADER + ITERATIONS + TOTAL).splitlines() for _ in range(2)]
    labelled = "".join(f"{number % 2}: {line}\n" for number, line in enumerate(lines))
    slower = labelled.replace("1: Iter #1: 50.0", "1: Iter #1: 49.0")
    (run,) = read("horovod_synthetic", log, slower)
    assert list(run.steps.step_time_s) == [0.32, 32 / 49]
    assert "rank 1, the slowest, is taken; their times differ by 1.4%" in notes(run)
    unlabelled = "".join(f"{line.partition(': ')[2]}\n" for line in slower.splitlines())
    (run,) = read("horovod_synthetic", log, unlabelled)
    assert list(run.steps.step_time_s) == [0.32, 32 / 49]
    assert "the slower of each iteration counts; rates differ by up to 2.0%" in notes(run)


@pytest.mark.parametrize("rate", ["0.0", "nan", "inf"])
def test_a_rate_without_a_time_is_left_out_and_said(log, rate):
    lines = ITERATIONS + f"Iter #2: {rate} img/sec per GPU\n"
    (run,) = read("horovod_synthetic", log, HEADER + lines)
    assert len(run.steps) == 2
    assert f"line 7 left out: a rate of {rate} img/sec" in notes(run)


def test_iterations_that_are_missing_show_in_the_printed_mean(log):
    content = HEADER + "Iter #0: 100.0 img/sec per GPU\n" + TOTAL
    (run,) = read("horovod_synthetic", log, content)
    assert "the mean of the iterations is 100.0, printed 75.0" in notes(run)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER, "line 4: no iteration was printed"),
        (ITERATIONS, "rates are per device, and the number"),
        (HEADER.replace("4", "0") + ITERATIONS, "the number of devices is unknown"),
    ],
)
def test_a_horovod_log_without_a_rate_of_all_devices_is_refused(log, content, reason):
    with pytest.raises(LogError, match=reason):
        read("horovod_synthetic", log, content)


# convnet-benchmarks

DATE = "2016-04-25 13:47:10.252648: "


def summary(numbers, what="Forward", steps=100, more=""):
    """The line of a result, with its mean and standard deviation."""
    return f"{DATE}{what} across {steps} steps, {numbers} sec / batch{more}\n"


def test_the_off_by_one_of_convnet_benchmarks_is_undone(log):
    # n = 5, of which 4 were summed: 1, 2, 3 and 4 s. 10 / 5 = 2 is printed for the mean of 2.5 s,
    # sqrt(30 / 5 - 4) = 1.414 for a sample standard deviation of sqrt(5 / 3) = 1.291 s.
    (run,) = read("convnet_benchmarks", log, summary("2.000 +/- 1.414", steps=5))
    assert run.columns["step_time_mean_s"] == 2.5
    assert run.columns["step_time_sd_s"] == pytest.approx(1.29099, abs=1e-3)
    assert run.columns["steps_measured"] == 4
    assert run.columns["mode"] == "forward"
    assert "undone: 4 durations were divided by 5" in notes(run)


def test_a_published_result_of_convnet_benchmarks_has_no_scatter_that_its_digits_show(log):
    (run,) = read("convnet_benchmarks", log, summary("0.081 +/- 0.008", "Forward-backward"))
    # 100 x 0.081 / 99; the variance would be 0.0066919 - 0.0066942.
    assert run.columns["step_time_mean_s"] == pytest.approx(0.0818182, abs=1e-7)
    assert run.columns["step_time_sd_s"] == 0.0
    assert run.columns["mode"] == "forward_backward"
    # At most: 0.0085 and 0.0805, a variance of 0.0066187 - 0.0066118.
    assert "the printed digits allow a standard deviation from 0 to 0.0026 s" in notes(run)


def test_a_script_that_prints_step_0_has_no_error_to_undo(log):
    steps = f"{DATE}step 0, duration = 0.159\n{DATE}step 10, duration = 0.160\n"
    (run,) = read("convnet_benchmarks", log, steps + summary("0.158 +/- 0.002", steps=20))
    assert run.columns["step_time_mean_s"] == 0.158
    assert run.columns["step_time_sd_s"] == pytest.approx(0.002 * math.sqrt(20 / 19))
    assert run.columns["steps_measured"] == 20
    # After 10 steps of burn-in, counted from 1.
    assert list(run.steps.step) == [11, 21]
    assert list(run.steps.step_time_s) == [0.159, 0.160]
    # Nor one without steps whose variance would be below zero.
    (run,) = read("convnet_benchmarks", log, summary("0.100 +/- 0.001"))
    assert run.columns["step_time_mean_s"] == 0.1
    assert "nothing to undo" in notes(run)


def test_forward_and_forward_backward_are_two_runs_on_the_gpu_that_the_log_names(log):
    content = "name: GeForce GTX TITAN X\n"
    for what in ("Forward", "Forward-backward"):
        content += f"{DATE}step 10, duration = 0.027\n{summary('0.027 +/- 0.003', what)}"
    runs = read("convnet_benchmarks", log, content)
    assert [run.columns["mode"] for run in runs] == ["forward", "forward_backward"]
    assert {run.columns["device_model"] for run in runs} == {"GeForce GTX TITAN X"}
    assert [run.lines for run in runs] == [(1, 3), (4, 5)]


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (summary("0.099 +/- 0.010", more=" (batch size: 64)"), {}),
        (summary("0.099 +/- 0.010").replace("steps,", "steps (batch size: 64),"), {}),
        (summary("0.099 +/- 0.010"), {"global_batch": 64}),
    ],
)
def test_the_rate_of_convnet_benchmarks_is_that_of_the_batch_of_its_log_or_of_the_user(
    log, line, known
):
    (run,) = read("convnet_benchmarks", log, line)
    found = run.columns | known
    run.complete(found)
    assert found["global_batch"] == 64
    assert found["images_per_second"] == pytest.approx(640)  # 64 over 0.099 x 100 / 99 s


def test_a_convnet_log_that_ends_before_its_result_is_a_failed_run(log):
    (run,) = read("convnet_benchmarks", log, f"{DATE}step 10, duration = 0.027\n{DATE}step 2")
    assert (run.status, list(run.steps.step)) == ("failed", [21])


@pytest.mark.parametrize("numbers", ["nan +/- nan", "0.000 +/- 0.000", "inf +/- nan"])
def test_a_convnet_result_that_is_no_measurement_is_refused_with_its_line(log, numbers):
    with pytest.raises(LogError, match=r"line 1: .*no measurement"):
        read("convnet_benchmarks", log, summary(numbers))


def test_a_convnet_result_that_no_durations_can_have_is_refused(log):
    content = f"{DATE}step 10, duration = 0.100\n" + summary("0.100 +/- 0.001")
    with pytest.raises(LogError, match=r"line 2: .*no durations of 99 steps have these"):
        read("convnet_benchmarks", log, content)


# Bagua's synthetic benchmark, a changed copy of Horovod's


def test_iterations_of_bagua_are_rates_of_all_devices(log):
    content = (HEADER + ITERATIONS + TOTAL).replace("img/sec per GPU\n", "img/sec GPU\n")
    content = content.replace("100.0 ", "400.0 ").replace("50.0 ", "200.0 ")
    content = "".join(f"INFO:root:{line}\n" for line in content.splitlines())  # by its logger
    (bagua,) = read("horovod_synthetic", log, content)
    (horovod,) = read("horovod_synthetic", log, HEADER + ITERATIONS + TOTAL)
    assert bagua.columns == horovod.columns | {"strategy": "bagua"}
    assert bagua.steps.step_time_s == horovod.steps.step_time_s
    assert "are some missing" not in notes(bagua)


@pytest.mark.parametrize(("mean", "believed"), [("0.081", True), ("0.011", True), ("0.004", False)])
def test_a_mean_of_few_digits_says_what_they_leave_open_and_gives_no_rate_beyond(
    log, mean, believed
):
    line = summary(f"{mean} +/- 0.001", more=" (batch size: 128)")
    (run,) = read("convnet_benchmarks", log, line)
    run.complete(run.columns)
    assert ("images_per_second" in run.columns) is believed
    open_share = f"{0.0005 / float(mean):.2g}"
    assert f"the mean is printed to 0.001 s, which is +-{open_share} of it" in notes(run)
    assert ("leave over 5% open" in notes(run)) is not believed
