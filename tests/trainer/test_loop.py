"""A real trainer: what it learns, measures, refuses and writes."""

import json

import numpy as np
import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer.tensorflow import engine
from support.trainers.shards import dataset
from support.trainers.training_runs import events, train


def test_the_same_seed_gives_the_same_run_and_another_repeat_another(digits, tmp_path):
    short = {"dataset": "digits", "steps": 8, "warmup_steps": 0}
    for name, repeat in (("a", 1), ("b", 1), ("c", 2)):
        # Of two Pythons that hash in their own ways.
        finished = train(tmp_path / name, digits, repeat=repeat, new_python=name == "b", **short)
        assert finished.returncode == 0, finished.stderr
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


def test_tf32_is_refused_on_a_cpu(tmp_path):
    finished = train(tmp_path / "train.jsonl", precision="tf32", steps=1)
    assert finished.returncode == 1
    assert "precision tf32 is one of NVIDIA's GPUs; this device is a CPU" in finished.stderr


@pytest.mark.one_in(2)
@pytest.mark.parametrize("strategy", ["single", "mirrored"])
def test_xla_computes_the_same_and_its_compiling_is_apart(strategy, tmp_path):
    how = {"model": "resnet20", "batch_per_device": 4, "steps": 3, "warmup_steps": 1,
           "strategy": strategy, "devices_per_node": 1 if strategy == "single" else 2}  # fmt: skip
    for xla in (False, True):
        assert train(tmp_path / str(xla), xla=xla, **how).returncode == 0
    plain, compiled = ([s["loss"] for s in events(tmp_path / x, "step")] for x in ("False", "True"))
    np.testing.assert_allclose(plain, compiled, rtol=1e-3)
    times = [step["step_time_s"] for step in events(tmp_path / "True", "step")]
    assert times[0] > 3 * max(times[1:])
    assert events(tmp_path / "True", "compile")[0]["trace_s"] > 0


def test_the_learning_rate_is_scaled_with_the_global_batch_after_a_warm_up(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(
        log,
        strategy="mirrored",
        devices_per_node=2,
        steps=3,
        warmup_steps=2,
        learning_rate=0.1,
        learning_rate_scaling="linear",
        learning_rate_batch=8,
        learning_rate_warmup_steps=4,
    )
    assert finished.returncode == 0, finished.stderr
    rates = [step["learning_rate"] for step in events(log, "step")]
    assert rates == pytest.approx([0.125, 0.15, 0.175, 0.2, 0.2])


def test_a_run_of_steps_is_evaluated_on_demand(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(
        log, digits, dataset="digits", batch_per_device=256, steps=7, warmup_steps=0, evaluate="yes"
    )
    assert finished.returncode == 0, finished.stderr
    assert [e["step"] for e in events(log, "eval")] == [0, 6, 7]


def test_a_model_of_the_users_own_is_one_file_in_a_folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    source = plugins.path("keras/models", "lenet5").read_text()
    (folder / "mine.py").write_text(source.replace("16, 5", "4, 5"))
    log = tmp_path / "train.jsonl"
    finished = train(log, model="mine", steps=1, flags=["--model-folder", str(folder)])
    assert finished.returncode == 0, finished.stderr
    assert events(log, "run_start")[0]["parameters"] < 61_706
    finished = train(tmp_path / "other.jsonl", model="mine", steps=1)
    assert finished.returncode == 1
    assert "no file models/mine.py" in finished.stderr


def test_what_was_imported_is_looked_through_by_no_collection_of_garbage(tmp_path):
    """Garbage collection at the exit of Python took a second of each run."""
    folder = tmp_path / "models"
    folder.mkdir()
    source = plugins.path("keras/models", "lenet5").read_text()
    line = "    print(len(gc.get_objects()), gc.get_freeze_count())\n    return keras"
    (folder / "mine.py").write_text("import gc\n" + source.replace("    return keras", line))
    flags = ["--model-folder", str(folder)]
    finished = train(tmp_path / "train.jsonl", model="mine", steps=1, flags=flags, new_python=True)
    assert finished.returncode == 0, finished.stderr
    looked_through, frozen = map(int, finished.stdout.split())
    assert frozen > 100_000 > looked_through


def test_a_model_that_does_not_fit_the_items_is_named(digits, tmp_path):
    finished = train(tmp_path / "train.jsonl", digits, model="alexnet", dataset="digits", steps=1)
    assert finished.returncode == 1
    assert "model alexnet cannot be built for items of shape (32, 32, 1)" in finished.stderr
    assert "it was designed for (224, 224, 3)" in finished.stderr


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"strategy": "multiworker"}, "neither TF_CONFIG nor Slurm's variables are set"),
        ({"strategy": "horovod"}, "strategy horovod needs a launcher"),
        ({"strategy": "mirrored", "devices_per_node": 500}, "rank 0 needs 500 cores"),
        ({"strategy_options": "cycle=1"}, "strategy single has no option 'cycle'"),
    ],
)
def test_what_cannot_be_started_so_is_refused_with_the_reason(how, message, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, **{"devices_per_node": 2, "launcher": "none", "steps": 1, **how})
    assert finished.returncode == 1
    assert message in finished.stderr
    assert message in events(log, "run_end")[0]["message"]


def test_what_the_process_uses_is_sampled(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=300, flags=["--sample-every-s", "0.1"]).returncode == 0
    samples, (end,) = events(log, "sample"), events(log, "run_end")
    assert len(samples) > 5
    assert 20 < max(sample["cpu_percent"] for sample in samples[1:]) < 250
    assert samples[-1]["memory_bytes"] <= end["peak_memory_bytes"]
    assert 0 < end["cpu_time_s"] < 60
    assert train(tmp_path / "none", steps=1, flags=["--sample-every-s", "0"]).returncode == 0
    assert not events(tmp_path / "none", "sample")


def test_a_run_lasts_until_its_last_evaluation_and_not_until_all_is_closed(one_process):
    """The last sample is taken once the work is done, before anything is closed."""
    last, (end,) = events(one_process, "eval")[-1], events(one_process, "run_end")
    assert last["t_s"] <= end["t_s"] <= events(one_process, "sample")[-1]["t_s"]


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


def test_more_items_than_memory_holds_end_the_run_as_oom(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, batch_per_device=10**9, steps=1)
    assert finished.returncode != 0
    (end,) = events(log, "run_end")
    assert end["status"] == "oom"
    assert "out of memory" in end["message"]


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
    assert "already contains a run" in finished.stderr
    assert log.read_bytes() == before


def test_the_log_is_json_line_by_line(one_process):
    for line in one_process.read_text().splitlines():
        json.loads(line)


def words(index):
    """Pieces of a text in which each word is followed by the next number."""
    tokens = [(index * 20 + place) % 50 for place in range(20)]
    return {"number": index, "tokens": np.asarray(tokens, "<u2").tobytes()}


def blobs(index):
    mask = np.zeros((32, 32, 1), np.uint8)
    mask[index % 16 : index % 16 + 12, 4:20] = 1
    image = mask + np.random.default_rng(index).normal(0, 0.1, mask.shape)
    return {"image/encoded": image.astype(np.float32).tobytes(), "image/mask": mask.tobytes()}


@pytest.mark.parametrize(
    ("model", "kind", "reader", "features", "score", "better"),
    [
        ("lstm_ptb", "text", {"encoding": "stream", "dtype": "<u2", "classes": 50}, words,
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
    finished = train(
        log,
        folder,
        model=model,
        dataset=name,
        batch_per_device=8,
        epochs=6,
        optimizer="adam",
        learning_rate=0.01,
        steps=None,
    )
    assert finished.returncode == 0, finished.stderr
    scores = [event[score] for event in events(log, "eval")]
    assert len(scores) == 7
    assert better(scores[0], scores[-1]), scores


def test_a_model_refuses_data_of_another_kind(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, model="unet", dataset="digits", steps=1)
    assert finished.returncode == 1
    assert "needs data of the kind mask; digits is of the kind image" in finished.stderr


def test_an_older_keras_is_named_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(engine.keras, "__version__", "2.15.0")
    with pytest.raises(Error, match=r"needs Keras 3 or newer, found 2\.15\.0"):
        engine.Engine(None, None, None)
