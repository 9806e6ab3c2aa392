"""The trainer with a source that takes 15 ms for each batch, and a step that takes 10 ms.

A program with the command line of train.py; the variable LONGER multiplies both times. Both sleep
for the rest of their time, which takes no processor, so the times hold on a busy machine, too.
Processes that make batches for the trainer import this file again and get the slow source.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

LONGER = "SLOW_TRAINING_LONGER"
SOURCE_S, STEP_S = (float(os.environ.get(LONGER, 1)) * time_s for time_s in (0.015, 0.010))
_started_s = {}  # the time at which the current step began


def main():
    {"tensorflow": _slow_tensorflow, "jax": _slow_jax, "pytorch": _slow_torch}[_framework()]()
    from dlbench.trainer import train

    train.main(__doc__)


def _framework():
    flags = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    return flags.get("--framework", "tensorflow")


def _until(started_s, lasting_s):
    time.sleep(max(0.0, started_s + lasting_s - time.monotonic()))


def _slow_arrays():
    """The source of JAX and PyTorch, in whichever process it makes batches."""
    from dlbench.trainer.reading import stored

    made = stored.DatasetReader._augmented

    def slow(self, *arguments):
        started_s = time.monotonic()
        batch = made(self, *arguments)
        _until(started_s, SOURCE_S)
        return batch

    stored.DatasetReader._augmented = slow


def _slow_tensorflow():
    from dlbench.trainer.tensorflow import pipelines, step
    from dlbench.trainer.tensorflow.losses import classification

    varied, scaled, loss = pipelines.Data._augmented, classification.scaled, classification.loss

    def slow(self, *arguments):
        images, targets = varied(self, *arguments)
        return images, _through(lambda: time.sleep(SOURCE_S), targets)

    pipelines.Data._augmented = slow
    # A step begins when it is called, with stored items once it has its batch.
    step.Step.__call__ = _recording_start(step.Step.__call__)
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
    _started_s["step"] = time.monotonic()


def _end_step():
    _until(_started_s.get("step", 0.0), STEP_S)


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
    ArrayEngine.window = _recording_start(ArrayEngine.window)  # of one step


def _slow_torch():
    from dlbench.trainer.pytorch import engine

    begin = _recording_start(engine.Engine._launch_step)

    def slow(*arguments):
        loss = begin(*arguments)
        _end_step()
        return loss

    engine.Engine._launch_step = slow


def _recording_start(method):
    """A method that records the time at which a step begins."""

    def recorded(*arguments):
        _begin_step()
        return method(*arguments)

    return recorded


if __name__ in ("__main__", "__mp_main__") and _framework() != "tensorflow":
    _slow_arrays()
if __name__ == "__main__":
    main()
