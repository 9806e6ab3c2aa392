"""The trainer with a source that takes 15 ms for each batch, and a step that takes 10 ms.

A program: its words are those of train.py; the variable LONGER multiplies both times. Both sleep
for what is left of their time, and sleeping takes no processor: what a run waits for is known on a
busy machine, too. Processes that make batches for the trainer import this file again, and have the
slow source with it.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

LONGER = "SLOW_TRAINING_LONGER"
SOURCE_S, STEP_S = (float(os.environ.get(LONGER, 1)) * time_s for time_s in (0.015, 0.010))
_begun = {}  # when each of both began


def main():
    {"tensorflow": _slow_tensorflow, "jax": _slow_jax, "pytorch": _slow_torch}[_framework()]()
    from dlbench.trainer import train

    train.main(__doc__)


def _framework():
    words = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    return words.get("--framework", "tensorflow")


def _until(begun_s, lasting_s):
    time.sleep(max(0.0, begun_s + lasting_s - time.monotonic()))


def _slow_arrays():
    """The source of JAX and PyTorch, in whichever process it makes batches."""
    from dlbench.trainer.reading import stored

    made = stored.Stored._made

    def slow(self, *words):
        begun_s = time.monotonic()
        batch = made(self, *words)
        _until(begun_s, SOURCE_S)
        return batch

    stored.Stored._made = slow


def _slow_tensorflow():
    from dlbench.trainer.tensorflow import pipelines, step
    from dlbench.trainer.tensorflow.losses import classification

    varied, scaled, loss = pipelines.Data._augmented, classification.scaled, classification.loss

    def slow(self, *words):
        images, targets = varied(self, *words)
        return images, _through(lambda: time.sleep(SOURCE_S), targets)

    pipelines.Data._augmented = slow
    # A step begins when it is called, with stored items once it has its batch.
    step.Step.__call__ = _begun_by(step.Step.__call__)
    classification.scaled = lambda images: scaled(_through(_begin_step, images))
    classification.loss = lambda targets, logits: _through(_end_step, loss(targets, logits))


def _through(function, tensor):
    """A tensor of TensorFlow's that is there once a function has been called."""
    import tensorflow as tf

    def passed(value):
        function()
        return value

    return tf.ensure_shape(tf.py_function(passed, [tensor], tensor.dtype), tensor.shape)


def _begin_step():
    _begun["step"] = time.monotonic()


def _end_step():
    _until(_begun.get("step", 0.0), STEP_S)


def _slow_jax():
    import jax

    from dlbench.trainer.array_engine import ArrayEngine
    from dlbench.trainer.jax.losses import classification

    loss = classification.loss

    def late(value):
        _end_step()
        return value

    def slow(targets, logits):  # on the device: the trainer goes on meanwhile
        value = loss(targets, logits)
        return jax.pure_callback(late, jax.ShapeDtypeStruct(value.shape, value.dtype), value)

    classification.loss = slow
    ArrayEngine.window = _begun_by(ArrayEngine.window)  # of one step


def _slow_torch():
    from dlbench.trainer.pytorch import engine

    begin = _begun_by(engine.Engine._launch_step)

    def slow(*words):
        loss = begin(*words)
        _end_step()
        return loss

    engine.Engine._launch_step = slow


def _begun_by(method):
    """A method that begins a step."""

    def begun(*words):
        _begin_step()
        return method(*words)

    return begun


if __name__ in ("__main__", "__mp_main__") and _framework() != "tensorflow":
    _slow_arrays()
if __name__ == "__main__":
    main()
