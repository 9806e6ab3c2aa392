"""Importers of tf_cnn_benchmarks' logs."""

import json
import math

import pytest

from dlbench.imports import import_logs, kinds
from dlbench.imports.importers import Steps
from dlbench.imports.importers import tf_cnn_benchmarks as importers_tf_cnn_benchmarks
from dlbench.imports.log_file import LogError, LogFile
from support.logs.log_samples import date, tf_cnn_banner, tf_cnn_benchmark_log, tf_cnn_benchmarks
from support.logs.log_samples import tf_cnn_metric_log as metric_log

LINES = """1\timages/sec: 40.0 +/- 0.0 (jitter = 0.0)\t8.000
10\timages/sec: 80.0 +/- 0.5 (jitter = 1.1)\t7.500
20\timages/sec: 100.0 +/- 2.0 (jitter = 1.1)\t7.250
"""
END = f"{'-' * 64}\ntotal images/sec: 99.50\n{'-' * 64}\n"
WHOLE = tf_cnn_banner(steps=20) + LINES + END
TWO = ("horovod/gpu:0", "horovod/gpu:1")


def read(tmp_path, text, importer=importers_tf_cnn_benchmarks):
    (tmp_path / "log").write_text(text)
    assert importer.recognise(LogFile(tmp_path / "log"))
    return list(importer.read(LogFile(tmp_path / "log")))


def row(tmp_path, text, fields=None):
    (tmp_path / "log").write_text(text)
    (found,) = import_logs.import_paths([tmp_path / "log"], fields).rows
    return found


def windows(run, **known):
    run.complete({**run.columns, **known})
    return list(zip(run.steps.step, run.steps.window_steps, run.steps.step_time_s, strict=True))


def test_rates_are_cumulative_means_and_become_times_of_windows(tmp_path):
    (run,) = read(tmp_path, WHOLE)
    # 64 items: 1.6 s, then 8 s after ten steps, then 12.8 s after twenty.
    expected = [(1, 1, 1.6), (10, 9, pytest.approx(6.4 / 9)), (20, 10, pytest.approx(0.48))]
    assert windows(run) == expected
    assert list(run.steps.loss) == [8.0, 7.5, 7.25]


def test_a_window_cannot_take_no_time(tmp_path):
    (run,) = read(tmp_path, tf_cnn_banner(steps=20) + LINES.replace("100.0", "160.0") + END)
    # By the last line the steps from 11 on took nothing, so it is joined with those before.
    assert windows(run)[-1] == (20, 19, pytest.approx(6.4 / 19))
    assert sum(window for _, window, _ in windows(run)) == 20


def test_the_total_is_the_throughput_and_the_banner_says_what_was_run(tmp_path):
    found = row(tmp_path, WHOLE)
    assert found["images_per_second"] == 99.5
    assert found["timing_source"] == "tf_cnn_benchmarks"
    expected = {
        "model": "resnet50", "dataset": "synthetic", "mode": "train", "global_batch": 64,
        "batch_per_device": 64, "devices": 1, "nodes": 1, "steps": 20, "optimizer": "sgd",
        "strategy": "parameter_server", "framework_version": "1.10", "device_kind": "gpu",
        "status": "ok", "final_loss": 7.25, "steps_measured": 20,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "step_time_sd_s" not in found
    # The standard error and the jitter are told as what they are.
    assert f"standard deviation {2 * math.sqrt(20):.3g} items/s" in found["notes"]
    assert "1.4826 x median absolute deviation 1.1" in found["notes"]


def test_forward_passes_alone_have_no_loss(tmp_path):
    found = row(tmp_path, WHOLE.replace("training", "forward-only"))
    assert (found["mode"], found["images_per_second"]) == ("forward", 99.5)
    assert "final_loss" not in found


def test_a_setting_with_control_characters_is_left_out_and_said(tmp_path):
    found = row(tmp_path, WHOLE.replace("resnet50", "\0\0 resnet50"))
    assert found["model"] is None
    assert r"model is left out: '\x00\x00 resnet50'" in found["notes"]


def test_a_batch_is_of_all_devices_and_the_visible_ones_are_not_used(tmp_path):
    found = row(tmp_path, tf_cnn_banner(batch=128, devices=("/gpu:0", "/gpu:1"), steps=20) + LINES)
    assert (found["global_batch"], found["batch_per_device"], found["devices"]) == (128, 64, 2)


@pytest.mark.parametrize("tags", [("", ""), ("[1,0]<stdout>:", "[1,1]<stdout>:"), ("0: ", "1: ")])
def test_ranks_of_horovod_that_print_into_one_log_are_one_run_of_the_slowest(tmp_path, tags):
    banner = tf_cnn_banner(batch=128, devices=TWO, per=64, variables="horovod", steps=20)
    slower = banner + LINES.replace("80.0", "78.0").replace("7.500", "8.500")
    ranks = (banner + LINES + END, slower + END.replace("99.50", "99.40"))
    pairs = zip(*(text.splitlines() for text in ranks), strict=True)
    text = "".join(f"{tags[0]}{one}\n{tags[1]}{other}\n" for one, other in pairs)
    found = row(tmp_path, text)
    assert found["images_per_second"] == 99.4  # of both, not twice that
    assert (found["devices"], found["global_batch"], found["batch_per_device"]) == (2, 128, 64)
    assert "2 processes printed" in found["notes"]
    (run,) = read(tmp_path, text)
    assert list(run.steps.loss) == [8.0, 8.0, 7.25]
    assert windows(run)[1] == (10, 9, pytest.approx((640 / 78 - 1.6) / 9))


def test_the_rate_of_a_rank_of_horovod_is_of_its_own_batch(tmp_path):
    banner = tf_cnn_banner(batch=128, devices=TWO, per=64, variables="horovod", steps=20)
    found = row(tmp_path, banner + LINES)  # of rank 0 alone, and cut short
    assert found["step_time_mean_s"] == 64 / 100
    assert found["images_per_second"] == 200


def test_an_evaluation_is_part_of_the_training_before_it_and_its_total_is_none(tmp_path):
    evaluation = (
        tf_cnn_banner("evaluation", steps=100)
        + "10\t512.1 examples/sec\nAccuracy @ 1 = 0.5300 Accuracy @ 5 = 0.7800 [6400 examples]\n"
        + END.replace("99.50", "527.89")
    )
    found = row(tmp_path, WHOLE + evaluation)
    assert found["images_per_second"] == 99.5
    assert (found["top1"], found["top5"]) == (0.53, 0.78)
    alone = row(tmp_path, evaluation)
    assert alone.get("images_per_second") is None
    assert alone["top1"] == 0.53


def test_training_with_evaluations_has_no_total_and_its_throughput_is_that_of_its_steps(tmp_path):
    text = tf_cnn_banner("training + evaluation", steps=20) + LINES
    text += "Running final evaluation at global_step 30\n"
    text += "Accuracy @ 1 = 0.5300 Accuracy @ 5 = 0.7800 [6400 examples]\n"
    found = row(tmp_path, text + "Done with training\n")
    assert found["status"] == "ok"
    assert found["images_per_second"] == 100
    assert row(tmp_path, text)["status"] == "failed"


def test_a_loss_that_is_no_number_is_said_and_leaves_the_times(tmp_path):
    found = row(tmp_path, tf_cnn_banner(steps=20) + LINES.replace("7.250", "nan") + END)
    assert "final_loss" not in found
    assert "the loss is nan at step 20" in found["notes"]
    assert found["steps_measured"] == 20


def test_a_log_that_another_run_was_appended_to_has_two(tmp_path):
    second = WHOLE.replace("99.50", "150.00")
    first, second = read(tmp_path, tf_cnn_banner(steps=20) + LINES + second)
    assert (first.status, first.message) == ("failed", "its log ends after step 20 of 20")
    assert second.columns["images_per_second"] == 150
    assert first.lines[1] + 1 == second.lines[0]


def test_steps_that_go_back_without_a_reason_are_refused(tmp_path):
    later = "30\timages/sec: 1.0 +/- 0.0 (jitter = 0.0)\t1.0\n"
    with pytest.raises(LogError, match="steps go back"):
        read(tmp_path, tf_cnn_banner(steps=50) + LINES + later + LINES + END)


def test_a_run_out_of_memory_is_that_and_damaged_lines_are_counted(tmp_path):
    text = tf_cnn_banner(steps=20) + LINES[:70] + "\nResourceExhaustedError: OOM when allocating\n"
    found = row(tmp_path, text)
    assert found["status"] == "oom"
    assert "left out 1 damaged lines" in found["notes"]


@pytest.mark.parametrize(
    ("rate", "error", "loss"),
    [("80.0", "1.5.0", "7.5"), ("80", "1.5", "7.5"), ("80.0", "1.5", "x")],
)
def test_a_line_whose_numbers_are_none_is_left_out_and_said(tmp_path, rate, error, loss):
    banner, line = tf_cnn_banner(steps=20), f"10\timages/sec: {rate} +/- {error} (jitter = 1.1)"
    found = row(tmp_path, f"{banner}{LINES}{line}\t{loss}\n{END}")
    assert found["steps_measured"] == 20
    assert f"left out 1 damaged lines: {banner.count(chr(10)) + 4}" in found["notes"]


def test_one_decimal_says_little_of_a_window_late_in_a_run():
    steps = Steps()
    rates = [47.3] * 200
    steps.step.extend(range(10, 2001, 10))
    importers_tf_cnn_benchmarks.without_times(steps)
    joined = importers_tf_cnn_benchmarks.add_times(steps, rates, 64, half_digit=0.05)
    ends = {n: w for n, w in enumerate(steps.window_steps) if w}
    windows = list(ends.values())
    assert joined == 200 - len(ends) > 100
    assert windows[0] == 10 < windows[-1] and sum(windows) == 2000
    assert {steps.step_time_s[n] for n in ends} == {64 / 47.3}


def events(*values):
    """Lines of a metric log, a second apart, of (name, step, value)."""
    rest = {"unit": None, "extras": [{"name": "loss", "value": "nan"}]}
    return "".join(
        json.dumps(
            {"name": name, "value": value, "timestamp": date(at), "global_step": step} | rest
        )
        + "\n"
        for at, (name, step, value) in enumerate(values)
    )


RATE, TOTAL = "current_examples_per_sec", "average_examples_per_sec"


def test_a_metric_log_is_cut_where_steps_begin_anew(tmp_path):
    text = events((RATE, 1, 40), (RATE, 10, 80), (RATE, 1, 40), (RATE, 10, 64), (TOTAL, 10, 63))
    first, second = read(tmp_path, text, kinds.load("tf_cnn_metric_log"))
    assert first.status == "failed"
    assert list(first.steps.step) == list(second.steps.step) == [1, 10]
    assert second.columns["images_per_second"] == 63
    assert windows(second, global_batch=64) == [(1, 1, 1.6), (10, 9, pytest.approx(8.4 / 9))]
    assert (first.lines, second.lines) == ((1, 2), (3, 5))


def test_a_metric_log_without_a_batch_has_a_throughput_and_no_times(tmp_path):
    found = row(tmp_path, events((RATE, 1, 40), (TOTAL, 1, 39.5)))
    assert found["images_per_second"] == 39.5
    assert "step_time_mean_s" not in found
    assert "no batch size is known" in found["notes"]
    given = row(tmp_path, events((RATE, 1, 40), (TOTAL, 1, 39.5)), {"global_batch": 64})
    assert given["step_time_mean_s"] == 1.6


def test_logs_of_one_folder_are_one_run_with_the_most_exact_numbers(tmp_path):
    (tmp_path / "out.txt").write_text(WHOLE)
    (tmp_path / "benchmark.log").write_text(tf_cnn_benchmark_log(1, 20))
    lines = [(RATE, 1, 40), (RATE, 10, 80), (RATE, 20, 110.5), (TOTAL, 20, 99.4976)]
    text = events(*lines, ("eval_top_1_accuracy", 30, 0.5))
    (tmp_path / "metric.log").write_text(text)
    (found,) = import_logs.import_paths([tmp_path]).rows
    assert found["images_per_second"] == 99.4976
    assert found["framework_version"] == "1.10.0"
    assert found["timing_source"] == "tf_cnn_metric_log"
    assert found["device_model"] == "Tesla K80"
    assert found["duration_s"] == 3
    assert found["source"] == "benchmark.log:1 + out.txt:1-26 + metric.log:1-5"
    assert found["step_time_mean_s"] == pytest.approx(64 / 110.5)


def test_what_two_logs_of_a_run_say_differently_is_told(tmp_path):
    (tmp_path / "out.txt").write_text(tf_cnn_banner(steps=30) + LINES + END)
    (tmp_path / "benchmark.log").write_text(tf_cnn_benchmark_log(1, 20))
    (found,) = import_logs.import_paths([tmp_path]).rows
    assert found["steps"] == 20
    assert "steps is 20 by benchmark.log:1 and 30 by out.txt:1-26" in found["notes"]


def test_a_list_of_parameters_alone_is_no_result(tmp_path):
    (tmp_path / "benchmark.log").write_text(tf_cnn_benchmark_log(1, 20))
    made = import_logs.import_paths([tmp_path])
    assert made.rows == []
    assert "no log" in made.left_out[0][1]


@pytest.mark.parametrize("spaces", [" ", "      "])
def test_a_table_whose_tabs_became_spaces_is_read(tmp_path, spaces):
    content = WHOLE
    assert "\t" in content
    whole = row(tmp_path, content)
    copied = row(tmp_path, content.replace("\t", spaces))
    for name in ("images_per_second", "step_time_mean_s", "final_loss", "steps_measured"):
        assert copied[name] == whole[name]


def test_a_rate_of_a_hundred_digits_is_a_damaged_line(tmp_path):
    lines = tf_cnn_benchmarks(0.125, 4).splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith("2\t"))
    lines[at] = lines[at].replace("512.0", f"{'5' * 100}.0", 1)
    (run,) = read(tmp_path, "".join(lines))
    assert list(run.steps.step) == [1, 3, 4]
    assert f"left out 1 damaged lines: {at + 1}" in run.notes


def test_many_steps_are_parsed_as_one_by_one(tmp_path):
    texts = ["0.1", "-7.000", "nan", "inf", "-inf", "00123.4567890123456789", "99999999.9"]
    lines = "".join(
        f"{step}\timages/sec: {texts[step % 7]} +/- 0.0 (jitter = 0.0)\t{texts[step % 5]}\n"
        for step in range(1, 20_001)
    )
    (run,) = read(tmp_path, lines)
    assert list(run.steps.step) == list(range(1, 20_001))
    expected = [float(texts[step % 5]) for step in range(1, 20_001)]
    assert list(map(repr, run.steps.loss)) == list(map(repr, expected))


# Several processes: workers of one training, or separate programs


def worker(total="48.05", batch="32 global", sync="True", devices="['/job:worker/task:4/cpu:0']"):
    banner = tf_cnn_banner(batch=32, per=32, steps=100).replace("32 global", batch)
    banner = banner.replace("['/gpu:0']", devices)
    banner = banner.replace("=====\n", f"=====\nSync:        {sync}\n")
    lines = "".join(
        f"{step}\timages/sec: {rate} +/- 0.0 (jitter = 0.3)\t7.000\n"
        for step, rate in ((1, 5.9), (10, 6.0), (50, 5.9), (100, 6.0))
    )
    return f"{banner}{lines}{END.replace('99.50', total)}"


@pytest.mark.parametrize("batch", ["32 global", "256 global"])  # as versions before 1.8 and later
def test_a_worker_prints_its_own_rates_and_the_total_of_all_workers(tmp_path, batch):
    found = row(tmp_path, worker(batch=batch))
    assert (found["devices"], found["global_batch"], found["batch_per_device"]) == (8, 256, 32)
    assert found["images_per_second"] == 48.05
    assert found["step_time_mean_s"] == pytest.approx(32 / 6)
    assert found["global_batch"] / found["step_time_mean_s"] == pytest.approx(48.05, rel=0.002)
    assert "nodes" not in found
    assert "8.008 times the rate of this worker: 8 workers" in found["notes"]


def test_a_worker_of_two_devices_is_a_share_of_as_many(tmp_path):
    devices = "['/job:worker/task:0/gpu:0', '/job:worker/task:0/gpu:1']"
    found = row(tmp_path, worker(total="24.10", devices=devices))
    assert (found["devices"], found["global_batch"]) == (8, 256)
    assert found["step_time_mean_s"] == pytest.approx(64 / 6)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sync": "False"}, "Sync: False"),
        ({"total": "45.05"}, "7.51 times the worker's rate, no whole number of workers"),
        ({"total": "480.50"}, "78 to 82 workers"),
        ({"batch": "512 global"}, "16 workers by the batch, 8.01 by the total"),
    ],
)
def test_where_the_number_of_workers_does_not_follow_it_is_unknown(tmp_path, changed, why):
    found = row(tmp_path, worker(**changed))
    assert found["images_per_second"] == float(changed.get("total", "48.05"))
    assert found["step_time_mean_s"] == pytest.approx(32 / 6)
    assert {found.get("devices"), found.get("global_batch")} == {None}
    assert "devices and global_batch are unknown" in found["notes"]
    assert why in found["notes"]


def test_a_worker_whose_log_ends_early_has_no_rate_of_all(tmp_path):
    found = row(tmp_path, worker().partition("-----")[0])
    assert found["status"] == "failed"
    assert {found.get("devices"), found.get("images_per_second")} == {None}


def test_workers_that_print_into_one_log_are_one_run_of_the_slowest(tmp_path):
    lines = [worker().replace("task:4", f"task:{task}").splitlines() for task in range(2)]
    text = "".join(f"{one}\n{other}\n" for one, other in zip(*lines, strict=True))
    found = row(tmp_path, text)
    assert (found["devices"], found["images_per_second"]) == (8, 48.05)
    assert "2 processes printed into this log" in found["notes"]


def test_a_list_of_all_workers_devices_is_of_all_workers(tmp_path):
    devices = str([f"job:worker/replica:0/task{n}/gpu:0" for n in range(8)])
    text = worker(batch="256 global", devices=devices)
    found = row(tmp_path, text.replace("SingleSess:  False", "SingleSess:  True"))
    assert (found["devices"], found["global_batch"], found["batch_per_device"]) == (8, 256, 32)
    assert "nodes" not in found
    assert found["step_time_mean_s"] == pytest.approx(256 / 6)


def test_a_benchmark_log_of_a_worker_does_not_know_the_devices_of_all(tmp_path):
    content = tf_cnn_benchmark_log(1, 20).replace("['/gpu:0']", "['/job:worker/task:4/gpu:0']")
    (tmp_path / "benchmark.log").write_text(content)
    (tmp_path / "metric.log").write_text(metric_log(0.5, 20))
    (found,) = import_logs.import_paths([tmp_path]).rows
    assert found["images_per_second"] == 128
    assert {found.get("devices"), found.get("global_batch")} == {None}
    assert "settings of one worker" in found["notes"]


@pytest.mark.parametrize("cut", [False, True])
def test_programs_that_know_nothing_of_one_another_are_not_one_run(tmp_path, cut):
    one = tf_cnn_banner(steps=20) + LINES + END * (not cut)
    other = tf_cnn_banner(steps=20) + LINES.replace("7.500", "7.400") + END.replace("99", "25")
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    with pytest.raises(LogError, match="2 programs printed into this log"):
        read(tmp_path, "".join(f"{a}\n{b}\n" for a, b in pairs))


def test_ranks_of_horovod_that_are_more_than_its_devices_are_programs_of_their_own(tmp_path):
    text = tf_cnn_banner(devices=("horovod/gpu:0",), per=64, variables="horovod") + LINES + END
    twice = "".join(line * 2 for line in text.splitlines(keepends=True))
    with pytest.raises(LogError, match="2 programs"):
        read(tmp_path, twice)


def test_totals_of_runs_without_a_banner_are_of_the_steps_before_them(tmp_path):
    header = "Step\tImg/sec\ttotal_loss\n"
    runs = read(tmp_path, WHOLE + header + LINES + END.replace("99.50", "120.00"))
    assert [run.columns["images_per_second"] for run in runs] == [99.5, 120]
    assert [run.status for run in runs] == ["ok", "ok"]


def test_a_batch_that_python_3_prints_with_a_point_is_a_batch(tmp_path):
    found = row(tmp_path, WHOLE.replace("64 per", "64.0 per"))
    assert found["batch_per_device"] == 64
