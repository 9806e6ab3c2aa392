"""Our training step beside its peers on the same model, batch and core, in interleaved pairs.

    uv run python workflow_scripts/make_environment.py envs/train
    envs/train/.venv/bin/python tests/performance/training_step.py

Prints, for each model, the ratios of images per second (ours / theirs) over the
pairs, all on one core. The targets are 0.98 against the bare compiled step and 1
against fit and Horovod's synthetic benchmark. That one waits for no step, so it
can be ahead by what a wait costs: tens of microseconds of a step. Last, what windows of ten
steps gain (docs/methodology.md).
"""

import functools
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import bench

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.trainer import copies

# Model, batch, steps in one half of a pair: some two seconds each on one core.
CASES = (("lenet5", 64, 500), ("resnet56", 32, 10), ("lstm_ptb", 20, 20))


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--case", type=case, action="append", help="as in resnet50:8:3")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with tempfile.TemporaryDirectory() as folder:
        for model, batch, steps in args.case or CASES:
            for name, (theirs, target) in PEERS.items():
                ours = Ours(model, batch, steps, Path(folder) / f"{model}-{theirs.__name__}.jsonl")
                ratios = paired(ours, theirs(model, batch, steps, ours), args.pairs)
                figures.add(f"{model}, batch {batch}, over {name}", ratios, at_least=target)
            single, windows = (
                Ours(model, batch, steps, Path(folder) / f"{model}-{length}.jsonl", length)
                for length in (1, 10)
            )
            ratios = paired(windows, single, args.pairs)
            figures.add(f"{model}, batch {batch}, windows of ten steps over single steps", ratios)


def paired(ours, theirs, pairs):
    """Ratios of speed, ours over theirs, of pairs that are run in turns."""
    calls = {"ours": ours, "theirs": theirs}
    for call in calls.values():
        call()  # the first time it compiles
    timed = {name: functools.partial(seconds, call) for name, call in calls.items()}
    taken_s = bench.in_turns(pairs, timed)
    return bench.ratios(taken_s["theirs"], taken_s["ours"])


def case(text):
    model, batch, steps = text.split(":")
    return model, int(batch), int(steps)


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


class Ours:
    """The trainer's own loop, its event log included, on synthetic items."""

    def __init__(self, model, batch, steps, log, steps_per_sync=1):
        from dlbench.trainer import loop
        from dlbench.trainer.schedule import Schedule
        from dlbench.trainer.tensorflow.engine import Engine

        words = f"--model {model} --dataset synthetic --batch-per-device {batch} --steps {steps}"
        words += f" --warmup-steps 0 --steps-per-sync {steps_per_sync}"
        spec = _parse([*words.split(), "--log", str(log)])
        engine = Engine(spec, _single(), None)
        engine.build()
        engine.begin(0)
        engine.trace()
        self.source = engine._source
        self.images, self.labels = self.source.next()
        native = plugins.load("models", model)
        self.build = lambda: native.build(self.source.item_shape, self.source.classes)
        own_log = event_log.EventLog(log)
        only = copies.Copy(0, 1, log)
        schedule = Schedule(spec, engine.records)
        self.train = lambda: loop._do_steps(schedule, engine, only, own_log, 0, None)

    def __call__(self):
        self.train()


@functools.cache
def _single():
    """The strategy; TensorFlow is set up once a process."""
    words = "--model lenet5 --dataset synthetic --batch-per-device 1 --steps 1 --log unused"
    return plugins.load("tensorflow/strategies", "single").Strategy(_parse(words.split()), "cpu")


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


def _parse(words):
    from dlbench.trainer import flags

    return flags.parse(None, words)[0]


if __name__ == "__main__":
    main()
