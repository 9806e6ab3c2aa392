"""The trainer for real: one process, two devices, two Horovod processes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shards import dataset

from dlbench import eventlog, plugins
from dlbench.runs import Run

REPOSITORY = Path(__file__).parents[2]
TRAIN = REPOSITORY / "workflow_scripts" / "train.py"


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The converted digits, made in the workflow's environment."""
    folder = tmp_path_factory.mktemp("digits")
    python = REPOSITORY / ".venv" / "bin" / "python"
    for program, *flags in (
        ("fetch_dataset.py", "--folder", folder / "source"),
        ("convert_dataset.py", "--source", folder / "source", "--output", folder),
    ):
        script = REPOSITORY / "workflow_scripts" / program
        subprocess.run([python, script, "digits", *flags], check=True)
    return folder


def train(log, data=None, **fields):
    """Train with the run's own launcher. Returns the finished process."""
    run = Run(**{"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, **fields})
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    trainer += ["--data", str(data)] if data else []
    command = plugins.load("launchers", run.launcher).command(run, trainer, sys.executable)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def events(log, kind):
    return [event for event in eventlog.read(log) if event["event"] == kind]


LEARNING = {"dataset": "digits", "optimizer": "momentum", "learning_rate": 0.02, "epochs": 1}
TWO_DEVICES = [
    {"strategy": "mirrored"},
    {"strategy": "horovod", "launcher": "horovodrun"},
    {"strategy": "horovod", "launcher": "mpirun"},
]


@pytest.fixture(scope="session")
def one_process(digits, tmp_path_factory):
    log = tmp_path_factory.mktemp("single") / "train.jsonl"
    finished = train(log, digits, batch_per_device=64, **LEARNING)
    assert finished.returncode == 0, finished.stderr
    return log


@pytest.mark.parametrize("how", TWO_DEVICES, ids=lambda how: "-".join(how.values()))
def test_two_devices_train_as_one_process_with_twice_the_batch(how, one_process, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, batch_per_device=32, devices_per_node=2, **how, **LEARNING)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = eventlog.rank_paths(log)
    assert len(logs) == (1 if how["strategy"] == "mirrored" else 2)
    digests = [d for path in logs for d in events(path, "run_end")[0]["weights_sha256"]]
    assert len(digests) == 2
    assert digests[0] == digests[1]
    losses = np.mean([[s["loss"] for s in events(path, "step")] for path in logs], axis=0)
    np.testing.assert_allclose(
        losses, [s["loss"] for s in events(one_process, "step")], rtol=2e-5, atol=2e-5
    )
    ours, theirs = events(log, "eval")[-1], events(one_process, "eval")[-1]
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    assert ours["top1"] == pytest.approx(theirs["top1"], abs=1 / 360)


def test_horovod_ranks_see_different_data(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    assert train(log, digits, **how, **LEARNING).returncode == 0
    first, second = ([s["loss"] for s in events(p, "step")] for p in eventlog.rank_paths(log))
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 0.95 * len(first)


def test_the_same_seed_gives_the_same_run_and_another_repeat_another(digits, tmp_path):
    short = {"dataset": "digits", "steps": 8, "warmup_steps": 0}
    for name, repeat in (("a", 1), ("b", 1), ("c", 2)):
        assert train(tmp_path / name, digits, repeat=repeat, **short).returncode == 0
    a, b, c = ([s["loss"] for s in events(tmp_path / n, "step")] for n in "abc")
    assert a == b
    assert a != c


def test_tensorflows_own_reader_reads_our_shards(digits):
    import tensorflow as tf

    labels = []
    for shard in sorted(digits.glob("train-*")):
        for record in tf.data.TFRecordDataset(str(shard)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            assert len(features["image/encoded"].bytes_list.value[0]) == 32 * 32
            labels += features["image/class/label"].int64_list.value
    assert len(labels) == 1437
    assert set(labels) == set(range(10))


@pytest.mark.parametrize("mode", ["forward", "forward_backward"])
def test_modes_without_update_leave_the_loss_as_it_is(mode, tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, mode=mode, steps=4, warmup_steps=1).returncode == 0
    assert len({s["loss"] for s in events(log, "step")}) == 1
    assert [s["warm_up"] for s in events(log, "step")] == [True] + [False] * 4


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains(precision, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, precision=precision, steps=4, learning_rate=0.1)
    assert finished.returncode == 0, finished.stderr
    losses = [s["loss"] for s in events(log, "step")]
    assert losses[-1] < losses[0]


def test_step_times_add_up_to_the_time_they_took(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=50, warmup_steps=0).returncode == 0
    steps = events(log, "step")
    total = sum(s["step_time_s"] for s in steps[1:])
    assert total == pytest.approx(steps[-1]["t_s"] - steps[0]["t_s"], abs=1e-5)


def test_a_loss_that_is_not_a_number_ends_the_run_as_failed(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, steps=200, learning_rate=1e39)  # infinite in float32
    assert finished.returncode != 0
    end = events(log, "run_end")[0]
    assert end["status"] == "failed"
    assert "not a number" in end["message"]
    assert len(events(log, "step")) < 210


def test_a_run_in_the_wrong_place_is_refused(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, steps=1, dataset="digits", data=tmp_path / "nowhere")
    assert finished.returncode == 1
    end = events(log, "run_end")[0]
    assert end["status"] == "failed"
    assert "manifest.json cannot be read" in end["message"]


def test_a_log_that_holds_a_run_is_never_overwritten(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=1).returncode == 0
    before = log.read_bytes()
    finished = train(log, steps=1)
    assert finished.returncode != 0
    assert "holds a run already" in finished.stderr
    assert log.read_bytes() == before


def test_the_log_is_json_line_by_line(one_process):
    for line in one_process.read_text().splitlines():
        json.loads(line)


def words(index):
    """Sentences in which each word is followed by the next number."""
    return {"tokens": [(index + place) % 50 for place in range(21)]}


def blobs(index):
    mask = np.zeros((32, 32, 1), np.uint8)
    mask[index % 16 : index % 16 + 12, 4:20] = 1
    image = mask + np.random.default_rng(index).normal(0, 0.1, mask.shape)
    return {"image/encoded": image.astype(np.float32).tobytes(), "image/mask": mask.tobytes()}


@pytest.mark.parametrize(
    ("model", "kind", "reader", "features", "score", "better"),
    [
        ("lstm_ptb", "text", {"encoding": "tokens", "shape": [20], "classes": 50}, words,
         "perplexity", lambda before, after: after < 0.5 * before),
        ("unet", "mask", {"encoding": "raw", "dtype": "float32", "shape": [32, 32, 1],
                          "mask": [32, 32, 1]}, blobs,
         "iou", lambda before, after: after > 0.8 > before),
    ],
)  # fmt: skip
def test_words_and_masks_are_learned(model, kind, reader, features, score, better, tmp_path):
    folder = dataset(tmp_path / "data", 64, 2, reader, features, kind)
    name = {"text": "ptb", "mask": "blends"}[kind]
    log = tmp_path / "train.jsonl"
    finished = train(log, folder, model=model, dataset=name, batch_per_device=8, epochs=6,
                     optimizer="adam", learning_rate=0.01, steps=None)  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    scores = [event[score] for event in events(log, "eval")]
    assert len(scores) == 7
    assert better(scores[0], scores[-1]), scores


def test_a_model_refuses_data_of_another_kind(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, model="unet", dataset="digits", steps=1)
    assert finished.returncode == 1
    assert "needs data of the kind mask; digits is of the kind image" in finished.stderr
