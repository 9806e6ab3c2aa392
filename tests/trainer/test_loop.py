"""A real trainer of one process: what it learns, measures, refuses and writes."""

import numpy as np
import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer.tensorflow import engine
from support.trainers.shards import dataset
from support.trainers.training_runs import LEARNING, events, train

pytestmark = pytest.mark.quick


def losses(log):
    return [step["loss"] for step in events(log, "step")]


def test_digits_are_learned_evaluated_and_timed(one_process):
    before, after = (event["top1"] for event in events(one_process, "eval"))
    assert before < 0.3 < 0.6 < after
    steps, (end,) = events(one_process, "step"), events(one_process, "run_end")
    total = sum(step["step_time_s"] for step in steps[1:])
    assert total == pytest.approx(steps[-1]["t_s"] - steps[0]["t_s"], abs=1e-5)
    # The last sample is taken once the work is done, before anything is closed.
    sample = events(one_process, "sample")[-1]
    assert events(one_process, "eval")[-1]["t_s"] <= end["t_s"] <= sample["t_s"]
    assert 0 < sample["memory_bytes"] <= end["peak_memory_bytes"]
    assert 0 < end["cpu_time_s"] < 60


def test_the_same_seed_gives_the_same_run_and_another_repeat_another(one_process, digits, tmp_path):
    # Of two Pythons that hash in their own ways.
    for name, how in (("same", {"new_python": True}), ("other", {"repeat": 2})):
        finished = train(tmp_path / name, digits, batch_per_device=64, **LEARNING, **how)
        assert finished.returncode == 0, finished.stderr
    assert losses(tmp_path / "same") == losses(one_process) != losses(tmp_path / "other")


@pytest.mark.parametrize(
    ("fields", "change"),
    [({"mode": "forward"}, 0), ({"mode": "forward_backward"}, 0), ({"precision": "bfloat16"}, -1),
     ({"precision": "float16"}, -1)],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)  # fmt: skip
def test_a_step_learns_in_mixed_precision_and_not_without_an_update(fields, change, tmp_path):
    log, flags = tmp_path / "train.jsonl", ["--sample-every-s", "0"]
    finished = train(log, flags=flags, steps=4, warmup_steps=1, learning_rate=0.1, **fields)
    assert finished.returncode == 0, finished.stderr
    first, *others = losses(log)
    assert np.sign(others[-1] - first) == change
    assert len({first, *others}) == (5 if change else 1)
    assert [step["warm_up"] for step in events(log, "step")] == [True] + [False] * 4
    assert not events(log, "sample")


def test_the_rate_of_two_devices_grows_with_their_batch_after_a_warm_up(tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"learning_rate": 0.1, "learning_rate_scaling": "linear", "learning_rate_batch": 8}
    how |= {"strategy": "mirrored", "devices_per_node": 2, "learning_rate_warmup_steps": 4}
    finished = train(log, steps=3, warmup_steps=2, **how)
    assert finished.returncode == 0, finished.stderr
    rates = [step["learning_rate"] for step in events(log, "step")]
    assert rates == pytest.approx([0.125, 0.15, 0.175, 0.2, 0.2])


def test_xla_compiles_the_step_and_computes_the_same(tmp_path):
    for xla in (False, True):
        finished = train(tmp_path / str(xla), xla=xla, steps=3, warmup_steps=1)
        assert finished.returncode == 0, finished.stderr
        assert ("Compiled cluster using XLA" in finished.stderr) == xla
    np.testing.assert_allclose(losses(tmp_path / "True"), losses(tmp_path / "False"), rtol=1e-3)
    assert events(tmp_path / "True", "compile")[0]["trace_s"] > 0


def test_a_model_of_ones_own_is_a_file_and_what_was_imported_stays_uncollected(tmp_path):
    """Garbage collection at the exit of Python took a second of each run."""
    source = plugins.path("keras/models", "lenet5").read_text().replace("16, 5", "4, 5")
    line = "    print(len(gc.get_objects()), gc.get_freeze_count())\n    return keras"
    (tmp_path / "mine.py").write_text("import gc\n" + source.replace("    return keras", line))
    log, flags = tmp_path / "train.jsonl", ["--model-folder", str(tmp_path)]
    finished = train(log, flags=flags, model="mine", steps=1, new_python=True)
    assert finished.returncode == 0, finished.stderr
    assert events(log, "run_start")[0]["parameters"] < 61_706
    looked_through, frozen = map(int, finished.stdout.split())
    assert frozen > 100_000 > looked_through


ON_DIGITS = {"dataset": "digits"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strategy": "multiworker"}, "neither TF_CONFIG nor Slurm's variables are set"),
        ({"strategy": "horovod"}, "strategy horovod needs a launcher"),
        ({"strategy": "mirrored", "devices_per_node": 500}, "rank 0 needs 500 cores"),
        ({"strategy_options": "cycle=1"}, "strategy single has no option 'cycle'"),
        ({"precision": "tf32"}, "precision tf32 is one of NVIDIA's GPUs; this device is a CPU"),
        ({"model": "mine"}, "no file models/mine.py"),
        (ON_DIGITS | {"model": "alexnet"}, "of digits; it was designed for (224, 224, 3)"),
        (ON_DIGITS | {"model": "unet"}, "needs data of the kind mask; digits is of the kind image"),
        (ON_DIGITS, "manifest.json cannot be read"),
        ({"learning_rate": 1e39, "steps": 200}, "the loss is not a number"),  # infinite in float32
        ({"batch_per_device": 10**9}, "out of memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_trained_ends_with_the_reason(fields, message, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    data = digits if "model" in fields else tmp_path if "dataset" in fields else None
    finished = train(log, data, **{"devices_per_node": 1, "launcher": "none", "steps": 1} | fields)
    assert finished.returncode == 1
    (end,) = events(log, "run_end")
    assert end["status"] == ("oom" if message == "out of memory" else "failed")
    assert message in end["message"]
    assert end["message"] in finished.stderr
    assert len(events(log, "step")) < 200


def test_a_log_that_holds_a_run_is_never_overwritten(one_process, digits):
    before = one_process.read_bytes()
    finished = train(one_process, digits, **LEARNING)
    assert finished.returncode == 1
    assert "already contains a run" in finished.stderr
    assert one_process.read_bytes() == before


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
    ("model", "name", "kind", "reader", "features", "score", "better"),
    [
        ("lstm_ptb", "ptb", "text", {"encoding": "stream", "dtype": "<u2", "classes": 50}, words,
         "perplexity", lambda before, after: after < 0.5 * before),
        ("unet", "blends", "mask", {"encoding": "raw", "dtype": "float32", "shape": [32, 32, 1],
                                    "mask": [32, 32, 1]}, blobs,
         "iou", lambda before, after: after > 0.8 > before),
    ],
    ids=["words", "masks"],
)  # fmt: skip
def test_words_and_masks_are_learned(model, name, kind, reader, features, score, better, tmp_path):
    folder, log = dataset(tmp_path / "data", 64, 2, reader, features, kind), tmp_path / "log"
    how = {"batch_per_device": 8, "epochs": 6, "optimizer": "adam", "learning_rate": 0.01}
    finished = train(log, folder, model=model, dataset=name, **how)
    assert finished.returncode == 0, finished.stderr
    scores = [event[score] for event in events(log, "eval")]
    assert len(scores) == 7
    assert better(scores[0], scores[-1]), scores


def test_an_older_keras_is_named_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(engine.keras, "__version__", "2.15.0")
    with pytest.raises(Error, match=r"needs Keras 3 or newer, found 2\.15\.0"):
        engine.Engine(None, None, None)
