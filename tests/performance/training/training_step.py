"""Our training step beside its peers on the same model, batch and core, in interleaved pairs.

    uv run dlbench environment envs/train
    envs/train/.venv/bin/python -m tests.performance.training.training_step

Prints, for each model, the ratios of images per second (ours / theirs) over the
pairs, all on one core. The targets are 0.98 against the bare compiled step and 1
against fit and Horovod's synthetic benchmark. That one waits for no step, so it
can be ahead by what a wait costs: tens of microseconds of a step. Transformers are beside the
bare step alone; their target is 0.97. Last, what windows of ten steps gain (docs/methodology.md).
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from dlbench.common import plugins

from .. import bench
from ..bench import steps as step_pairs

# Model, batch, steps in one half of a pair: some two seconds each on one core.
CASES = (
    *(("lenet5", 64, 500), ("resnet56", 32, 10), ("lstm_ptb", 20, 20)),
    *(("gpt_tiny", 8, 12), ("vit_tiny", 32, 20)),
)
TRANSFORMERS = ("gpt_tiny", "vit_tiny")


def main():
    args = step_pairs.parser(__doc__).parse_args()
    figures = bench.Figures(args.json)
    step_pairs.keep_to_one_core(args)
    with tempfile.TemporaryDirectory() as folder:
        for model, batch, steps in args.case or CASES:
            peers = OF_TRANSFORMERS if model in TRANSFORMERS else PEERS
            for name, (theirs, target) in peers.items():
                ours = Ours(model, batch, steps, Path(folder) / f"{model}-{theirs.__name__}.jsonl")
                ratios = step_pairs.paired(ours, theirs(model, batch, steps, ours), args.pairs)
                figures.add(f"{model}, batch {batch}, over {name}", ratios, at_least=target)
            single, windows = (
                Ours(model, batch, steps, Path(folder) / f"{model}-{length}.jsonl", length)
                for length in (1, 10)
            )
            ratios = step_pairs.paired(windows, single, args.pairs)
            figures.add(f"{model}, batch {batch}, windows of ten steps over single steps", ratios)


class Ours:
    """The trainer's own loop, its event log included, on synthetic items."""

    def __init__(self, model, batch, steps, log, steps_per_sync=1):
        spec = step_pairs.spec_of((model, batch, steps), "--steps-per-sync", str(steps_per_sync))
        engine = step_pairs.our_engine(spec)
        source = engine._source
        self.images, self.labels = source.next()
        native = plugins.load("keras/models", model)
        self.build = lambda: native.build(source.item_shape, source.classes)
        self._loop = step_pairs.our_loop(spec, engine, log)

    def __call__(self):
        self._loop()


class Bare:
    """The same model and optimizer in the shortest compiled step there is."""

    def __init__(self, model, batch, steps, ours):
        import keras
        import tensorflow as tf

        network, self.steps = ours.build(), steps
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(network.trainable_variables)
        images, labels = ours.images, ours.labels

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                logits = network(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply(gradients, network.trainable_variables)
            return loss

        self.step = step

    def __call__(self):
        for _ in range(self.steps):
            loss = self.step()
        return float(loss)


class Fit:
    """`Model.fit` on the same items, without callbacks or progress bar."""

    def __init__(self, model, batch, steps, ours):
        import keras
        import tensorflow as tf

        self.network, self.steps = ours.build(), steps
        self.network.compile(
            optimizer=keras.optimizers.SGD(0.01),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        self.items = tf.data.Dataset.from_tensors((ours.images, ours.labels)).cache().repeat()

    def __call__(self):
        self.network.fit(self.items, steps_per_epoch=self.steps, shuffle=False, verbose=0)


class HorovodSynthetic:
    """Horovod's tensorflow2_synthetic_benchmark on one process and our items, for Keras 3."""

    def __init__(self, model, batch, steps, ours):
        import keras
        import tensorflow as tf

        network, self.steps = ours.build(), steps
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(network.trainable_variables)
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = crossentropy(ours.labels, network(ours.images, training=True))
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply(gradients, network.trainable_variables)

        self.step = step
        self.weight = network.trainable_variables[0].value

    def __call__(self):
        for _ in range(self.steps):
            self.step()
        self.weight.numpy()  # the last step has ended


PEERS = {
    "the bare compiled step": (Bare, 0.98),
    "Keras' fit": (Fit, 1),
    "Horovod's synthetic benchmark": (HorovodSynthetic, 1),
}
OF_TRANSFORMERS = {"the bare compiled step": (Bare, 0.97)}


if __name__ == "__main__":
    main()
