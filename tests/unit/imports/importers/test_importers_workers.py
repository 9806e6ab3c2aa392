"""tf_cnn_benchmarks with several processes: workers of one training, or separate programs."""

import pytest

from dlbench.imports import import_logs
from dlbench.imports.log_file import LogError
from support.logs.log_samples import tf_cnn_banner, tf_cnn_benchmark_log, tf_cnn_metric_log
from support.logs.reading_logs import read as read_kind

LINES = """1\timages/sec: 40.0 +/- 0.0 (jitter = 0.0)\t8.000
10\timages/sec: 80.0 +/- 0.5 (jitter = 1.1)\t7.500
20\timages/sec: 100.0 +/- 2.0 (jitter = 1.1)\t7.250
"""
END = f"{'-' * 64}\ntotal images/sec: 99.50\n{'-' * 64}\n"


def read(tmp_path, text):
    return read_kind("tf_cnn_benchmarks", tmp_path / "log", text)


def row(tmp_path, text):
    """The one row of the runs table of a log."""
    (tmp_path / "log").write_text(text)
    (found,) = import_logs.import_paths([tmp_path / "log"]).rows
    return found


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
    (tmp_path / "metric.log").write_text(tf_cnn_metric_log(0.5, 20))
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
    first = tf_cnn_banner(steps=20) + LINES + END
    runs = read(tmp_path, first + header + LINES + END.replace("99.50", "120.00"))
    assert [run.columns["images_per_second"] for run in runs] == [99.5, 120]
    assert [run.status for run in runs] == ["ok", "ok"]


def test_a_batch_that_python_3_prints_with_a_point_is_a_batch(tmp_path):
    found = row(tmp_path, (tf_cnn_banner(steps=20) + LINES + END).replace("64 per", "64.0 per"))
    assert found["batch_per_device"] == 64
