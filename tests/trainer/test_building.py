"""building: a model that does not fit its task is an error when it is built, which says why."""

import types

import keras
import pytest
from keras import layers

from dlbench import Error
from dlbench.study.runs import Run
from dlbench.trainer.keras import building
from dlbench.trainer.keras.models import transformers
from dlbench.trainer.tasks import TASKS
from support.trainers.training_runs import events, train

DIGITS = types.SimpleNamespace(item_shape=(32, 32, 1), classes=10)
SPEC = Run(model="mine", dataset="digits", batch_per_device=8, steps=1)


pytestmark = pytest.mark.ci


def built(build, task="classification", source=DIGITS):
    native = types.SimpleNamespace(build=build, TASK=task, INPUT_SHAPE=source.item_shape)
    return building.build_model(SPEC, native, TASKS[task], source)


def dense(shape, *units):
    inputs = keras.Input(shape)
    flat = layers.Flatten()(inputs)
    return keras.Model(inputs, [layers.Dense(n)(flat) for n in units])


def two_inputs(shape, classes):
    inputs = [keras.Input(shape), keras.Input(shape)]
    return keras.Model(inputs, layers.Dense(classes)(layers.Flatten()(layers.Add()(inputs))))


class Own(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.flat, self.dense = layers.Flatten(), layers.Dense(classes)

    def call(self, inputs):
        return self.dense(self.flat(inputs))


OUTPUT = r"expected a model with one output of shape \(10,\), the logits of classification in 10 "


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda shape, classes: None, "expected it to return a keras.Model, found nothing; is its"),
        (lambda shape, classes: (1, 2), "expected it to return a keras.Model, found tuple"),
        (two_inputs, r"one input of shape \(32, 32, 1\), an item of digits; found 2 of shape \(32"),
        (lambda shape, classes: dense((28, 28, 1), classes), r"found 1 of shape \(28, 28, 1\)"),
        (lambda shape, classes: dense(shape, 7), OUTPUT + r"classes; found 1 of shape \(7,\)"),
        (lambda shape, classes: dense(shape, 10, 10), OUTPUT + r"classes; found 2 of shape"),
        (lambda shape, classes: keras.Sequential([keras.Input(shape), layers.Dense(classes)]),
         OUTPUT + r"classes; found 1 of shape \(32, 32, 10\)"),
        (lambda shape, classes: Own(7), OUTPUT + r"classes; found 1 of shape \(7,\)"),
    ],
)  # fmt: skip
def test_a_model_of_another_form_is_refused_with_what_is_expected(build, message):
    with pytest.raises(Error, match=rf"^models/mine\.py: build: .*{message}"):
        built(build)


def test_a_model_may_be_of_a_class_of_its_own_or_leave_sizes_open():
    assert built(lambda shape, classes: Own(classes)).trainable_variables

    def open_sizes(shape, classes):
        inputs = keras.Input((None, None, 1))
        pooled = layers.GlobalAveragePooling2D()(inputs)
        return keras.Model(inputs, layers.Dense(classes)(pooled))

    assert built(open_sizes)


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match="the heads must divide the width: 128 in 3 parts"):
        transformers.Attention(128, 3, causal=True)


def test_what_is_wrong_with_a_model_is_the_runs_message_shortened_and_plain(tmp_path):
    (tmp_path / "mine.py").write_text(
        'TASK, INPUT_SHAPE, CLASSES = "classification", (8, 8, 1), 4\n\n'
        "def build(input_shape, classes):\n"
        "    raise RuntimeError('first ' + 900 * 'x' + '\\x1b[1m the reason\\x1b[0m')\n"
    )
    log = tmp_path / "train.jsonl"
    finished = train(log, flags=["--model-folder", str(tmp_path)], model="mine", steps=1)
    assert finished.returncode != 0
    (end,) = events(log, "run_end")
    assert end["status"] == "failed"
    assert "RuntimeError: first x" in end["message"]
    assert end["message"].endswith("xx the reason")
    assert len(end["message"]) < 600
