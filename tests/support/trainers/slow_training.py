"""The trainer with a source that sleeps before each batch, and a step that sleeps on its device.

A program: its words are those of train.py. Sleeping takes no processor, so that what a run waits
for is known on a busy machine, too.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

SOURCE_S, STEP_S = 0.045, 0.030  # long beside what starting them takes


def main():
    words = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    framework = words.get("--framework", "tensorflow")
    _slow_source(framework)
    {"tensorflow": _slow_tensorflow, "jax": _slow_jax, "pytorch": _slow_torch}[framework]()
    from dlbench.trainer import train

    train.main(__doc__)


def _slow_source(framework):
    if framework == "tensorflow":
        from dlbench.trainer.tensorflow import pipelines

        varied = pipelines.Data._varied

        def slow(self, *words):
            images, targets = varied(self, *words)
            return images, _after(SOURCE_S, targets)

        pipelines.Data._varied = slow
    else:
        from dlbench.trainer.reading import stored

        made = stored.Stored._made

        def slow(self, *words):
            time.sleep(SOURCE_S)
            return made(self, *words)

        stored.Stored._made = slow


def _slow_tensorflow():
    from dlbench.trainer.tensorflow.losses import classification

    loss = classification.loss
    classification.loss = lambda targets, logits: _after(STEP_S, loss(targets, logits))


def _after(seconds, tensor):
    """A tensor of TensorFlow's that is there so much later."""
    import tensorflow as tf

    def late(value):
        time.sleep(seconds)
        return value

    return tf.ensure_shape(tf.py_function(late, [tensor], tensor.dtype), tensor.shape)


def _slow_jax():
    import jax

    from dlbench.trainer.jax.losses import classification

    loss = classification.loss

    def late(value):
        time.sleep(STEP_S)
        return value

    def slow(targets, logits):
        value = loss(targets, logits)
        return jax.pure_callback(late, jax.ShapeDtypeStruct(value.shape, value.dtype), value)

    classification.loss = slow


def _slow_torch():
    from dlbench.trainer.pytorch.losses import classification

    loss = classification.loss

    def slow(targets, logits):
        time.sleep(STEP_S)
        return loss(targets, logits)

    classification.loss = slow


if __name__ == "__main__":
    main()
