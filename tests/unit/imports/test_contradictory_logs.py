"""Rows of logs with contradictory numbers are marked, for every kind of log."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlbench import Error
from dlbench.imports import import_logs
from dlbench.study.contradictions import MAX_DIFFERENCE
from support.logs.event_files import event, event_file, scalar, text
from support.logs.log_samples import KINDS, NO_STEP_TIMES
from support.logs.trainer_samples import GLOBAL_BATCH, titan_lines, titan_step

STEPS, STEP_TIME_S = 12, 0.125
FIELDS = {"global_batch": GLOBAL_BATCH}
TEXTS = sorted(set(KINDS) - NO_STEP_TIMES - {"tensorboard"})  # its numbers have checksums
NUMBER = re.compile(r"\d+(?:\.\d+)?")
FACTORS = (0.001, 0.1, 0.5, 0.9, 1.1, 2, 3, 8, 72, 2048)


def rows(path, content, fields=None):
    """The rows of a log; none where it is refused."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        return import_logs.import_paths([path], fields).rows
    except Error:
        return []


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_of_a_log_contradicts_itself(tmp_path, kind):
    for row in rows(tmp_path / "log", KINDS[kind](STEP_TIME_S, STEPS), FIELDS):
        assert row.get("contradicts") is None


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", TEXTS)
@settings(max_examples=60, deadline=5000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_falsified_number_never_has_a_rate_that_is_not_its_batch_over_its_time(
    tmp_path_factory, kind, data
):
    content = KINDS[kind](STEP_TIME_S, STEPS)
    number = data.draw(st.sampled_from(list(NUMBER.finditer(content))))
    value = float(number[0]) * data.draw(st.sampled_from(FACTORS))
    decimals = len(number[0].partition(".")[2])
    falsified = f"{content[: number.start()]}{value:.{decimals}f}{content[number.end() :]}"
    for row in rows(tmp_path_factory.mktemp("logs") / "log", falsified, FIELDS):
        known = [row.get(n) for n in ("images_per_second", "step_time_mean_s", "global_batch")]
        if None not in known and not row.get("contradicts"):
            rate, time_s, batch = known
            allowed = MAX_DIFFERENCE + row.get("rate_uncertainty", 0)
            assert rate * time_s / batch == pytest.approx(1, rel=allowed + 1e-6), number


TOTAL, AVERAGE = "total images/sec: {:.2f}", '"average_examples_per_sec", "value": {}'
LAST_TIME = "768 | elapsed time per iteration (ms): {:.4f}"
FIRST_BATCH, LAST_BATCH = "[ 1/12]\tTime {:6.3f}", "[12/12]\tTime {:6.3f}"
MEGATRON = "global batch size: {:5d} | lm loss: 7.994"


@pytest.mark.parametrize(
    ("kind", "number", "true", "false", "message"),
    [
        ("tf_cnn_benchmarks", TOTAL, 512.0, 4096.0, "8 times"),  # of 8 workers, and steps of one
        ("tf_cnn_benchmarks", TOTAL, 512.0, 480.0, "6.67 %"),
        ("tf_cnn_metric_log", AVERAGE, 512.0, 64.0, "8 times"),
        ("hf_trainer", '"train_runtime": {}', 1.5, 12.0, "not 12"),
        ("hf_trainer", '"train_samples_per_second": {}', 512.0, 64.0, "8 times"),
        ("hf_trainer", '"train_steps_per_second": {}', 8.0, 1.0, "1.5 steps"),
        ("megatron", "consumed samples: {:12d}", 768, 6144, "consumed 6080 samples"),
        ("megatron", LAST_TIME, 125.0, 1250.0, "of iteration 12 are 10 times those of others"),
        ("maxtext", "step: 11, seconds: {:.3f}", 0.125, 1.25, "8.192e+04 tokens, in others 8192"),
        ("pytorch_imagenet", FIRST_BATCH, 0.125, 12.5, "in epoch 1 contradict one another"),
        ("pytorch_imagenet", LAST_BATCH, 0.125, 12.5, "in epoch 1 contradict"),
        ("megatron", MEGATRON, 64, 512, "global batches are 1152 samples"),
    ],
)
def test_numbers_that_a_log_has_twice_are_compared(tmp_path, kind, number, true, false, message):
    content, printed = KINDS[kind](STEP_TIME_S, STEPS), number.format(true)
    assert content.count(printed) == 1
    fields = None if kind == "megatron" else FIELDS
    (row,) = rows(tmp_path / "log", content.replace(printed, number.format(false)), fields)
    assert message in row["contradicts"]
    assert row["status"] == "ok"


def test_a_step_of_torchtitan_takes_as_long_by_its_rate_as_by_its_dates(tmp_path):
    def log(devices):
        head = titan_lines(
            f"Building 1-D device mesh with ['dp_shard'], [{devices}]",
            "Trainer is initialized with local batch size 8, global batch size 64, gradient "
            "accumulation steps 1, sequence length 2048, total steps 3 (warmup 2)",
            "Training starts at step 1",
        )
        # 64 x 2048 tokens on 8 devices in 2 s.
        steps = [titan_lines(titan_step(step, 8192)) for step in (1, 2, 3)]
        return head + "".join(
            line.replace("19:45:01,441", f"19:45:{2 * number + 10:02},441")
            for number, line in enumerate(steps)
        )

    (true,) = rows(tmp_path / "log", log(8))
    (false,) = rows(tmp_path / "log", log(4))
    assert true["step_time_mean_s"] == 2.0
    assert true.get("contradicts") is None
    assert "4 s by tps" in false["contradicts"]
    assert "2 s by the dates of lines" in false["contradicts"]


def test_the_batch_of_an_event_file_is_compared_with_its_rates(tmp_path):
    def events(batch):
        settings = f"| | |\n| --- | --- |\n| global_batch | {batch} |\n"
        rates = (scalar("train/step_time_s", 0.5), scalar("train/items_per_second", 128.0))
        steps = [event(1e9 + step, step, *rates) for step in range(1, 4)]
        return event_file(event(1e9, 0, text("run", settings)), *steps)

    (true,) = rows(tmp_path / "log", events(64))
    (false,) = rows(tmp_path / "log", events(8))
    assert true["images_per_second"] == 128
    assert "global_batch is 8, a step time x items per second is 64" in false["contradicts"]


def test_the_summary_of_an_import_counts_runs_that_contradict_themselves(tmp_path):
    for name, total in (("true", "512.00"), ("false", "64.00")):
        content = KINDS["tf_cnn_benchmarks"](STEP_TIME_S, STEPS)
        (tmp_path / name).write_text(content.replace("sec: 512.00", f"sec: {total}"))
    found = import_logs.import_paths([tmp_path])
    assert "2 runs of 2 files; numbers of 1 run contradict one another" in found.summary()
    # What the user says of a log is compared, too.
    (row,) = rows(
        tmp_path / "log", KINDS["torchtitan"](STEP_TIME_S, STEPS), {"images_per_second": 64.0}
    )
    assert "8 times as much" in row["contradicts"]


def test_short_last_batches_and_printed_digits_are_no_contradiction(tmp_path):
    # 750 items in 12 batches of 64, the last one of 46.
    content = KINDS["hf_trainer"](STEP_TIME_S, STEPS)
    content = content.replace('per_second": 512.0', 'per_second": 500.0')
    (row,) = rows(tmp_path / "log", content, FIELDS)
    assert row.get("contradicts") is None
    assert row["rate_uncertainty"] == pytest.approx(1 / 12, rel=1e-4)
