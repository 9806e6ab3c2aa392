"""Warm-up in logs: which lines it has, and whether our rate is the printed one."""

import json

import pytest

from dlbench.imports import import_logs
from support.logs.event_files import event, event_file, scalar
from support.logs.log_samples import GLOBAL_BATCH, tf_cnn_banner, tf_cnn_metric_log
from support.logs.reading_logs import notes, read
from support.logs.trainer_samples import composer_block

HEADER = "Model: resnet50\nBatch size: 32\nNumber of GPUs: 4\nRunning warmup...\n"
TIMES_S = (8.0, *[0.5] * 39)  # of steps


def row(log, content):
    log.write_bytes(content.encode() if isinstance(content, str) else content)
    (found,) = import_logs.import_paths([log], {"global_batch": GLOBAL_BATCH}).rows
    return found


# Horovod's synthetic benchmark


def warm_up_and_rest(rates, mean, devices=4):
    lines = "".join(f"Iter #{n}: {rate:.1f} img/sec per GPU\n" for n, rate in enumerate(rates))
    total = f"Total img/sec on {devices} GPU(s): {devices * mean:.1f} +-9.0\n"
    return f"{HEADER}{lines}Img/sec per GPU: {mean:.1f} +-2.2\n{total}"


def test_an_iteration_0_that_the_printed_mean_leaves_out_is_warm_up(log):
    # Horovod's examples for Keras compile in their first epoch, and leave it out of the mean.
    content = warm_up_and_rest([80.0, 740.0, 745.0, 747.0], 744.0)
    (run,) = read("horovod_synthetic", log, content)
    assert list(run.steps.warm_up) == [1, 0, 0, 0]
    assert "iteration 0 is taken as warm-up: the printed mean leaves it out" in notes(run)
    assert "are some missing" not in notes(run)
    (row,) = import_logs.import_paths([log]).rows
    assert row["images_per_second"] == pytest.approx(4 * 744, rel=1e-4)
    assert (row["steps_measured"], row["burn_in_steps"]) == (30, 10)
    # Without a printed mean it is left out and noted.
    (run,) = read("horovod_synthetic", log, content.partition("Img/sec per")[0])
    assert list(run.steps.warm_up) == [1, 0, 0, 0]
    assert "no mean shows what it is" in notes(run) and run.status == "failed"
    # One that the printed mean has counts.
    (run,) = read("horovod_synthetic", log, warm_up_and_rest([80.0, 740.0, 745.0, 747.0], 578.0))
    assert list(run.steps.warm_up) == [0, 0, 0, 0]
    assert "the warm-up is not in the log" in notes(run)


# Other programs, of which the first step took sixteen times as long as the others


def means():
    """The mean time of the steps so far, of each step."""
    return [sum(TIMES_S[:n]) / n for n in range(1, len(TIMES_S) + 1)]


def tf_cnn_benchmarks():
    lines = "".join(
        f"{n}\timages/sec: {GLOBAL_BATCH / mean:.1f} +/- 0.0 (jitter = 0.0)\t7.0\n"
        for n, mean in enumerate(means(), 1)
    )
    total = GLOBAL_BATCH / means()[-1]
    return f"{tf_cnn_banner()}{lines}{'-' * 64}\ntotal images/sec: {total:.2f}\n"


def metric_log():
    lines = [json.loads(line) for line in tf_cnn_metric_log(0.5, len(TIMES_S)).splitlines()]
    rates = [GLOBAL_BATCH / mean for mean in (*means(), means()[-1])]
    changed = [{**line, "value": rate} for line, rate in zip(lines, rates, strict=True)]
    return "".join(f"{json.dumps(line)}\n" for line in changed)


@pytest.mark.parametrize("content", [tf_cnn_benchmarks, metric_log])
def test_where_the_warm_up_is_not_printed_the_first_step_counts_as_in_the_printed_rate(
    log, content
):
    found = row(log, content())
    assert found["images_per_second"] == pytest.approx(GLOBAL_BATCH / means()[-1], rel=0.001)
    assert found["step_time_mean_s"] == pytest.approx(means()[-1], rel=0.001)
    assert found["steps_measured"] == len(TIMES_S)


def mxnet():
    return "".join(
        f"INFO:root:Epoch[0] Batch [{n}]\tSpeed: {GLOBAL_BATCH / time_s:.2f} samples/sec\n"
        for n, time_s in enumerate(TIMES_S, 1)
    )


def composer():
    lines = []
    for n in range(1, len(TIMES_S) + 1):  # rolling means of one batch, from the second on
        metrics = [("time/batch", n - 1), ("time/sample", (n - 1) * GLOBAL_BATCH)]
        if n > 1:
            metrics.append(("throughput/samples_per_sec", GLOBAL_BATCH / TIMES_S[n - 1]))
        lines += composer_block(n, len(TIMES_S), *metrics, ("loss/train/total", 7.0))
    return "".join(lines)


def tensorboard():
    """As Keras writes it."""
    rates = (scalar("batch_steps_per_second", 1 / time_s) for time_s in TIMES_S)
    loss = scalar("batch_loss", 7.0)
    return event_file(*(event(5.0 + n, n, loss, rate) for n, rate in enumerate(rates)))


@pytest.mark.parametrize("content", [mxnet, composer, tensorboard])
def test_where_the_first_step_is_printed_and_compiles_it_is_warm_up(log, content):
    found = row(log, content())
    assert found["images_per_second"] == pytest.approx(GLOBAL_BATCH / 0.5, rel=0.002)
    assert found.get("step_time_mean_s", 0.5) == pytest.approx(0.5, rel=0.002)
    assert found["steps_measured"] >= len(TIMES_S) - 2
