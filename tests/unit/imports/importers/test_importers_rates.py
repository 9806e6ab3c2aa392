"""Importers of logs with times of steps or rates: Horovod's benchmark, convnet-benchmarks, DLBS."""

import gzip
import math

import pytest

from dlbench.imports.log_file import LogError
from support.logs import log_samples
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


def test_horovods_header_is_of_one_device_and_the_total_of_all(log):
    (run,) = read("horovod_synthetic", log, HEADER + ITERATIONS)
    assert run.columns == {
        "model": "resnet50",
        "dataset": "synthetic",
        "mode": "train",
        "strategy": "horovod",
        "devices": 4,
        "device_kind": "gpu",
        "batch_per_device": 32,
        "global_batch": 128,
        "item_shape": "224x224x3",
    }
    assert (run.status, run.message) == ("failed", "its log ends after iteration 1")


def test_without_a_batch_size_horovods_rate_is_the_harmonic_mean_over_all_devices(log):
    (run,) = read("horovod_synthetic", log, "Number of CPUs: 4\n" + ITERATIONS + TOTAL)
    # 4 x 2 / (1/100 + 1/50)
    assert run.columns["images_per_second"] == pytest.approx(800 / 3)
    assert len(run.steps) == 0


def test_horovods_total_alone_is_taken_as_it_is(log):
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
    assert (
        "2 ranks printed this run: rank 1, the slowest, is taken; their times differ by 1.4%"
        in (notes(run))
    )
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


def test_the_off_by_one_of_convnet_benchmarks_is_undone(log):
    # n = 5, of which 4 were summed: 1, 2, 3 and 4 s. 10 / 5 = 2 is printed for the mean of 2.5 s,
    # sqrt(30 / 5 - 4) = 1.414 for a sample standard deviation of sqrt(5 / 3) = 1.291 s.
    (run,) = read(
        "convnet_benchmarks", log, f"{DATE}Forward across 5 steps, 2.000 +/- 1.414 sec / batch\n"
    )
    assert run.columns["step_time_mean_s"] == 2.5
    assert run.columns["step_time_sd_s"] == pytest.approx(1.29099, abs=1e-3)
    assert run.columns["steps_measured"] == 4
    assert run.columns["mode"] == "forward"
    assert "undone: 4 durations were divided by 5" in notes(run)


def test_a_published_result_of_convnet_benchmarks_has_no_scatter_that_its_digits_show(log):
    (run,) = read(
        "convnet_benchmarks",
        log,
        f"{DATE}Forward-backward across 100 steps, 0.081 +/- 0.008 sec / batch\n",
    )
    # 100 x 0.081 / 99; the variance would be 0.0066919 - 0.0066942.
    assert run.columns["step_time_mean_s"] == pytest.approx(0.0818182, abs=1e-7)
    assert run.columns["step_time_sd_s"] == 0.0
    assert run.columns["mode"] == "forward_backward"
    # At most: 0.0085 and 0.0805, a variance of 0.0066187 - 0.0066118.
    assert "the printed digits allow a standard deviation from 0 to 0.0026 s" in notes(run)


@pytest.mark.parametrize("step_time_s", log_samples.STEP_TIMES_S)
@pytest.mark.parametrize("steps", [20, 100, 1000])
def test_equal_steps_of_convnet_benchmarks_have_no_scatter_at_all(log, step_time_s, steps):
    content = log_samples.convnet_benchmarks(step_time_s, steps)
    (run,) = read("convnet_benchmarks", log, content)
    assert run.columns["step_time_sd_s"] == 0.0
    # A half of the last printed digit, times n / (n - 1).
    assert run.columns["step_time_mean_s"] == pytest.approx(step_time_s, abs=0.00053)


def test_a_script_that_prints_step_0_has_no_error_to_undo(log):
    (run,) = read(
        "convnet_benchmarks",
        log,
        f"{DATE}step 0, duration = 0.159\n{DATE}step 10, duration = 0.160\n"
        f"{DATE}Forward across 20 steps, 0.158 +/- 0.002 sec / batch\n",
    )
    assert run.columns["step_time_mean_s"] == 0.158
    assert run.columns["step_time_sd_s"] == pytest.approx(0.002 * math.sqrt(20 / 19))
    assert run.columns["steps_measured"] == 20
    # After 10 steps of burn-in, counted from 1.
    assert list(run.steps.step) == [11, 21]
    assert list(run.steps.step_time_s) == [0.159, 0.160]


def test_without_steps_a_variance_below_zero_says_that_there_is_no_error(log):
    (run,) = read(
        "convnet_benchmarks", log, f"{DATE}Forward across 100 steps, 0.100 +/- 0.001 sec / batch\n"
    )
    assert run.columns["step_time_mean_s"] == 0.1
    assert "nothing to undo" in notes(run)


def test_forward_and_forward_backward_are_two_runs_on_the_gpu_that_the_log_names(log):
    content = "name: GeForce GTX TITAN X\n"
    for what in ("Forward", "Forward-backward"):
        content += f"{DATE}step 10, duration = 0.027\n"
        content += f"{DATE}{what} across 100 steps, 0.027 +/- 0.003 sec / batch\n"
    runs = read("convnet_benchmarks", log, content)
    assert [run.columns["mode"] for run in runs] == ["forward", "forward_backward"]
    assert {run.columns["device_model"] for run in runs} == {"GeForce GTX TITAN X"}
    assert [run.lines for run in runs] == [(1, 3), (4, 5)]


@pytest.mark.parametrize(
    "where", ["steps (batch size: 64), {} sec / batch", "steps, {} sec / batch (batch size: 64)"]
)
def test_the_batch_size_is_taken_where_a_log_of_convnet_benchmarks_has_it(log, where):
    (run,) = read(
        "convnet_benchmarks", log, f"{DATE}Forward across 100 {where.format('0.099 +/- 0.010')}\n"
    )
    known = dict(run.columns)
    run.complete(known)
    assert known["global_batch"] == 64
    assert known["images_per_second"] == pytest.approx(640)  # 64 over 0.099 x 100 / 99 s


def test_the_rate_of_convnet_benchmarks_follows_from_a_batch_that_the_user_gives(log):
    content = f"{DATE}Forward across 100 steps, 0.099 +/- 0.010 sec / batch\n"
    (run,) = read("convnet_benchmarks", log, content)
    known = {**run.columns, "global_batch": 128}
    run.complete(known)
    assert known["images_per_second"] == pytest.approx(1280)


def test_a_convnet_log_that_ends_before_its_result_is_a_failed_run(log):
    (run,) = read("convnet_benchmarks", log, f"{DATE}step 10, duration = 0.027\n{DATE}step 2")
    assert (run.status, list(run.steps.step)) == ("failed", [21])


@pytest.mark.parametrize("numbers", ["nan +/- nan", "0.000 +/- 0.000", "inf +/- nan"])
def test_a_convnet_result_that_is_no_measurement_is_refused_with_its_line(log, numbers):
    with pytest.raises(LogError, match=r"line 1: .*no measurement"):
        read("convnet_benchmarks", log, f"{DATE}Forward across 100 steps, {numbers} sec / batch\n")


def test_a_convnet_result_that_no_durations_can_have_is_refused(log):
    content = f"{DATE}step 10, duration = 0.1\n".replace("0.1", "0.100")
    content += f"{DATE}Forward across 100 steps, 0.100 +/- 0.001 sec / batch\n"
    with pytest.raises(LogError, match=r"line 2: .*no durations of 99 steps have these"):
        read("convnet_benchmarks", log, content)


# DLBS

DLBS = """__exp.id__="a"
__exp.framework__="mxnet"
__exp.framework_ver__="1.3.0"
__exp.model__="resnet50"
__exp.phase__="inference"
__exp.dtype__="float"
__exp.device_type__="gpu"
__exp.device_title__="Tesla P100"
__exp.replica_batch__=16
__exp.effective_batch__= 64
__exp.num_warmup_batches__=2
__exp.docker__=true
"""
RESULTS = """__results.time__= 93.75
__results.throughput__=682
__results.time_data__=[62.5, 125.0]
"""


def test_batch_times_of_dlbs_become_steps_in_seconds(log):
    (run,) = read("dlbs", log, DLBS + RESULTS)
    assert list(run.steps.step_time_s) == [0.0625, 0.125]
    assert list(run.steps.step) == [3, 4]  # after the warm-up
    run.complete(run.columns)
    # 64 items over 93.75 ms are 682.67 items/s, which DLBS cut to 682.
    assert "images_per_second" not in run.columns


def test_what_dlbs_ran_is_said_in_the_names_of_our_columns(log):
    (run,) = read("dlbs", log, DLBS + RESULTS)
    assert run.columns == {
        "framework": "mxnet",
        "framework_version": "1.3.0",
        "model": "resnet50",
        "mode": "forward",
        "precision": "float32",
        "device_kind": "gpu",
        "device_model": "Tesla P100",
        "devices": 4,
        "batch_per_device": 16,
        "global_batch": 64,
        "warmup_steps": 2,
    }
    assert "keys left out: exp.docker" in notes(run)


def test_the_mean_time_of_dlbs_gives_the_rate_where_there_are_no_batch_times(log):
    (run,) = read("dlbs", log, DLBS + "__results.time__= 80\n__results.throughput__=800\n")
    run.complete(run.columns)
    assert run.columns["step_time_mean_s"] == 0.08
    assert run.columns["images_per_second"] == 800


def test_the_throughput_of_dlbs_is_taken_where_the_batch_is_not_known(log):
    (run,) = read("dlbs", log, "__results.time__=93.75\n__results.throughput__=682\n")
    run.complete(run.columns)
    assert run.columns["images_per_second"] == 682
    assert "perhaps cut to a whole number" in notes(run)


def test_a_run_of_dlbs_without_a_time_failed(log):
    (run,) = read("dlbs", log, DLBS + '__results.status__="failure"\n')
    assert run.status == "failed"
    assert "failure" in run.message


def test_another_id_of_dlbs_is_another_run_and_the_last_value_counts(log):
    content = DLBS + "__results.time__=1\n__results.time__=2\n" + DLBS.replace('"a"', '"b"')
    first, second = read("dlbs", log, content)
    assert first.columns["step_time_mean_s"] == 0.002
    assert (first.status, second.status) == ("ok", "failed")


@pytest.mark.parametrize("value", ["nan", "[1, ", "{" * 5000, "9" * 5000])
def test_a_value_of_dlbs_that_is_no_json_is_left_out_with_its_line(log, value):
    (run,) = read("dlbs", log, f"{DLBS}__results.time__={value}\n{RESULTS}")
    assert "line 13 left out: a value that is no JSON" in notes(run)
    assert len(run.steps) == 2


@pytest.mark.parametrize("times", ["[62.5, NaN]", "[62.5, -1]", "[62.5, 0]", '[1, "x"]', "{}"])
def test_batch_times_of_dlbs_that_are_none_give_way_to_the_mean(log, times):
    (run,) = read("dlbs", log, f"{DLBS}__results.time__=80\n__results.time_data__={times}\n")
    assert len(run.steps) == 0
    assert run.columns["step_time_mean_s"] == 0.08


def test_a_mean_of_dlbs_that_its_batch_times_do_not_have_is_said(log):
    (run,) = read("dlbs", log, DLBS + RESULTS.replace("93.75", "50"))
    assert "results.time is 50 ms, the mean of results.time_data 93.75 ms" in notes(run)


@pytest.mark.parametrize("kind", ["horovod_synthetic", "convnet_benchmarks", "dlbs"])
def test_logs_that_are_gzipped_or_not_utf_8_are_read_as_well(log, kind):
    content = log_samples.KINDS[kind](0.5, 100).encode()
    (plain,) = read(kind, log, content)
    (packed,) = read(kind, log, gzip.compress(content))
    (odd,) = read(kind, log, content + b"\xff\xfe no text\n")
    assert plain.steps.step_time_s == packed.steps.step_time_s == odd.steps.step_time_s
    assert plain.columns == packed.columns == odd.columns


# Bagua's synthetic benchmark, a changed copy of Horovod's


def test_iterations_of_bagua_are_rates_of_all_devices(log):
    content = (HEADER + ITERATIONS + TOTAL).replace("img/sec per GPU\n", "img/sec GPU\n")
    (bagua,) = read(
        "horovod_synthetic", log, content.replace("100.0 ", "400.0 ").replace("50.0 ", "200.0 ")
    )
    (horovod,) = read("horovod_synthetic", log, HEADER + ITERATIONS + TOTAL)
    assert bagua.columns == horovod.columns | {"strategy": "bagua"}
    assert bagua.steps.step_time_s == horovod.steps.step_time_s
    assert "are some missing" not in notes(bagua)


def test_bagua_by_its_logger_is_read_too(log):
    lines = (HEADER + ITERATIONS + TOTAL).replace("img/sec per GPU\n", "img/sec GPU\n")
    (run,) = read("horovod_synthetic", log, "".join(f"INFO:root:{x}\n" for x in lines.splitlines()))
    assert (run.columns["model"], run.columns["devices"]) == ("resnet50", 4)
    assert run.steps.step_time_s[0] == pytest.approx(32 / 25)


@pytest.mark.parametrize(("mean", "believed"), [("0.081", True), ("0.011", True), ("0.004", False)])
def test_a_mean_of_few_digits_says_what_they_leave_open_and_gives_no_rate_beyond(
    log, mean, believed
):
    line = f"{DATE}Forward across 100 steps, {mean} +/- 0.001 sec / batch (batch size: 128)\n"
    (run,) = read("convnet_benchmarks", log, line)
    run.complete(run.columns)
    assert ("images_per_second" in run.columns) is believed
    assert f"the mean is printed to 0.001 s, which is +-{0.0005 / float(mean):.2g} of it" in notes(
        run
    )
    assert ("leave over 5% open" in notes(run)) is not believed
