"""mode: [train, input]: what reading yields by itself, beside what training waits for it."""

import re

import pytest

PIPELINES = "workflow_scripts/dlbench/trainer/tensorflow/pipelines.py"
SOURCE_S = 0.05
# A step of the first takes milliseconds, one of the second much longer than the source.
WAITING, COMPUTING = {"lenet5": 8}, {"cnn12": 64}
BLOCK = {"dataset": "digits", "mode": ["train", "input"], "warmup_steps": 4, "steps": 12}


def slow_down(folder):
    """Have the source sleep before each batch."""
    line = "        batches = batches.prefetch("
    sleep = f"tf.py_function(lambda v: (__import__('time').sleep({SOURCE_S}), v)[1], [t], t.dtype)"
    path = folder / PIPELINES
    text = path.read_text()
    assert text.count(line) == 1
    slow = f"        batches = batches.map(lambda i, t: (i, tf.ensure_shape({sleep}, t.shape)))\n"
    path.write_text(text.replace(line, slow + line))


def test_reading_alone_and_training_with_it_stand_side_by_side(fresh):
    slow_down(fresh.folder)
    fresh.configure(
        matrix=[
            BLOCK | {"name": model, "model": model, "batch_per_device": batch, "explain": True}
            for model, batch in (WAITING | COMPUTING).items()
        ],
        figures=[],
    )
    planned = fresh.scheduled()["train"]
    assert len([run_id for run_id in planned if "-probe-" not in run_id]) == len(set(planned)) - 8
    fresh.succeed("report")

    runs = {(row["model"], row["mode"]): row for row in fresh.typed_rows("runs")}
    assert len({row["run_id"] for row in runs.values()}) == 4
    assert {key for key in runs} == {
        (model, mode) for model in WAITING | COMPUTING for mode in BLOCK["mode"]
    }
    for model, batch in (WAITING | COMPUTING).items():
        alone = runs[model, "input"]
        # Sleeping cannot be shorter; a busy machine may add to it.
        assert 0.2 * batch / SOURCE_S < alone["images_per_second"] < 1.05 * batch / SOURCE_S
        assert alone["parameters"] is None and runs[model, "train"]["parameters"]

    waits = {
        row["combination"].split()[0]: row["share"]
        for row in fresh.typed_rows("explanations")
        if row["part"] == "input"
    }
    assert waits["lenet5"] > 0.5 and waits["lenet5"] > waits["cnn12"]
    for model, room in (("lenet5", 1.3), ("cnn12", 1.0)):
        limit = runs[model, "input"]["images_per_second"]
        assert runs[model, "train"]["images_per_second"] < room * limit

    page = (fresh.folder / "results/report.html").read_text()
    message = re.findall(r"Reading alone yields (\S+) items/s, with the model it is (\S+) it", page)
    assert len(message) == 2
    rates = {tuple(float(word) for word in pair) for pair in message}
    expected = {
        tuple(runs[model, mode]["images_per_second"] for mode in ("input", "train"))
        for model in WAITING | COMPUTING
    }
    assert sorted(rates) == [pytest.approx(pair, rel=1e-3) for pair in sorted(expected)]

    # Nothing is trained again, nor where a mode is taken out and put back.
    assert fresh.scheduled() == {}
    fresh.configure(matrix=[BLOCK | {"name": "lenet5", "model": "lenet5", "batch_per_device": 8}])
    assert "train" not in fresh.scheduled()
