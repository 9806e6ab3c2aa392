"""Our training step beside the shortest one of its framework, on the same model, batch and core.

Each side does some steps, in turns, and waits for the last. Measured are ratios of images per
second, ours over theirs. The peers:
- the bare step: the same model and optimizer in a loop of a few lines or the shortest compiled
  step, without log and bookkeeping. The target is 0.97;
- the bare step, compiled (PyTorch): the same where both sides are compiled;
- Keras' fit (TensorFlow), without callbacks or progress bar. The target is 1;
- Horovod's synthetic benchmark (TensorFlow) on one process, for Keras 3. It waits for no step, so
  it can be ahead by what a wait costs: tens of microseconds of a step. The target is 1.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.trainer import copies, engine, flags, loop
from dlbench.trainer.engine import Engine
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import BaseStrategy, Spec

from . import measuring

# Model, batch, steps of a side: some 0.4 seconds on one core. If the machine's speed changes within
# seconds, many short pairs measure a ratio more precisely than few long ones.
PAIRS = 45
CASES = {
    "tensorflow": ("lenet5:64:100", "resnet56:32:2", "lstm_ptb:20:4", "gpt_tiny:8:3"),
    "pytorch": ("lenet5:64:40", "resnet20:32:3", "gpt_tiny:8:3", "vit_tiny:32:4"),
    "jax": ("lenet5:64:40", "resnet20:32:2", "gpt_tiny:8:3", "vit_tiny:32:4"),
}


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--framework", required=True, choices=PEERS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--case", action="append", help="as in resnet50:8:3")
    parser.add_argument("--peer", action="append", help="one of those above; without, all")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--precision", default="float32", help="of both sides")
    args = parser.parse_args()
    figures, peers = measuring.Figures(args.json), PEERS[args.framework]
    if args.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    for case in args.case or CASES[args.framework]:
        for name in args.peer or peers:
            beside(figures, case, name, peers[name], args)


def beside(figures, case, name, peer, args):
    """Add the speed of our loop over a peer's."""
    how = ("--framework", args.framework, "--device", args.device, "--precision", args.precision)
    spec, where = parsed(case, *how, *peer.flags)
    made = our_engine(spec, where.device)
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "ours": our_loop(spec, made, Path(folder) / "train.jsonl"),
            "theirs": peer.make(spec, made),
        }
        for side in sides.values():
            side()  # the first time it compiles
        timed = {side: functools.partial(seconds, call) for side, call in sides.items()}
        taken_s = measuring.in_turns(args.pairs, timed)
    ratios = measuring.ratios(taken_s["theirs"], taken_s["ours"])
    what = f"{spec.model}, batch {spec.batch_per_device}, over {name}"
    figures.add(what, ratios, at_least=peer.target)


def parsed(case: str, *further: str) -> tuple[Spec, argparse.Namespace]:
    """The spec of a case on synthetic items, without warm-up, parsed like train.py's flags."""
    model, batch, steps = case.split(":")
    words = f"--model {model} --dataset synthetic --batch-per-device {batch} --steps {steps}"
    words += " --warmup-steps 0 --log unused"
    return flags.parse(None, [*words.split(), *further])


@functools.cache
def single(framework: str, device: str) -> BaseStrategy:
    """The strategy for one device; a framework is initialised once in a process."""
    spec, _ = parsed("lenet5:1:1", "--framework", framework)
    return engine.strategy_of(spec)(spec, device)


def our_engine(spec: Spec, device: str) -> Engine:
    """The trainer's engine for a run, ready for its first step."""
    strategy = single(spec.framework, device)  # first, since it configures the framework's import
    made = plugins.load(spec.framework, "engine").Engine(spec, strategy, None)
    made.build()
    made.begin(0)
    made.trace()
    return made


def our_loop(spec: Spec, made: Engine, log: Path) -> Callable[[], Any]:
    """A function that runs and logs all steps of a run, like the trainer."""
    own_log, only = event_log.EventLog(log), copies.Copy(0, 1, log)
    schedule = Schedule(spec, made.records)
    return lambda: loop._do_steps(schedule, made, only, own_log, 0, None)


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


# ---- Peers: each takes spec and engine of our side, and returns a function that does all steps --


def tensorflow_bare(spec, made):
    import keras
    import tensorflow as tf

    network, (images, labels) = keras_model(spec, made), made._source.next()
    optimizer = keras.optimizers.SGD(spec.learning_rate)
    optimizer.build(network.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            logits = network(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply(gradients, network.trainable_variables)
        return loss

    def steps():
        for _ in range(spec.steps):
            loss = step()
        return float(loss)

    return steps


def tensorflow_fit(spec, made):
    import keras
    import tensorflow as tf

    network = keras_model(spec, made)
    network.compile(
        optimizer=keras.optimizers.SGD(spec.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    items = tf.data.Dataset.from_tensors(made._source.next()).cache().repeat()
    return lambda: network.fit(items, steps_per_epoch=spec.steps, shuffle=False, verbose=0)


def tensorflow_horovod(spec, made):
    import keras
    import tensorflow as tf

    network, (images, labels) = keras_model(spec, made), made._source.next()
    optimizer = keras.optimizers.SGD(spec.learning_rate)
    optimizer.build(network.trainable_variables)
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = crossentropy(labels, network(images, training=True))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply(gradients, network.trainable_variables)

    def steps():
        for _ in range(spec.steps):
            step()
        network.trainable_variables[0].numpy()  # the last step has ended

    return steps


def keras_model(spec, made):
    native = plugins.load("keras/models", spec.model)
    return native.build(made._source.item_shape, made._source.classes)


def pytorch_bare(spec, made):
    import torch
    from torch.nn import functional

    items, labels = made._batch
    device, numbers = items.device.type, getattr(torch, spec.precision, None)
    halves = numbers in (torch.bfloat16, torch.float16)
    native = plugins.load("pytorch/models", spec.model)
    module = native.build(native.INPUT_SHAPE, native.CLASSES)
    module = module.to(device, memory_format=torch.channels_last)
    fused = device == "cuda" or None
    optimizer = torch.optim.SGD(module.parameters(), spec.learning_rate, fused=fused)
    if spec.compile:
        module = torch.compile(module)

    def steps():
        for _ in range(spec.steps):
            optimizer.zero_grad()
            with torch.autocast(device, numbers, enabled=halves):
                logits = module(items).flatten(0, -2)  # of all places of a text
            loss = functional.cross_entropy(logits, labels.flatten())
            loss.backward()
            optimizer.step()
        return float(loss)

    return steps


def jax_bare(spec, made):
    """Keras's stateless model and optimizer in one jax.jit with donated buffers.

    The batch is an argument, as in any training: of a batch that is a constant of the program XLA
    computes parts beforehand (392 operations instead of 461 with LeNet-5).
    """
    import jax
    import keras

    native, batch = plugins.load("keras/models", spec.model), made._batch
    network = native.build(native.INPUT_SHAPE, native.CLASSES)
    optimizer = keras.optimizers.SGD(spec.learning_rate)
    optimizer.build(network.trainable_variables)
    parts = network.trainable_variables, network.non_trainable_variables, optimizer.variables
    state = [[variable.value for variable in part] for part in parts]

    def loss_of(trained, others, images, labels):
        logits, others = network.stateless_call(trained, others, images, training=True)
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
        return -chosen.mean(), others

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, images, labels):
        trained, others, variables = state
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            trained, others, images, labels
        )
        trained, variables = optimizer.stateless_apply(variables, gradients, trained)
        return [trained, others, variables], loss

    def steps():
        nonlocal state
        for _ in range(spec.steps):
            state, loss = step(state, *batch)
        return float(loss)

    return steps


class Peer(NamedTuple):
    """What makes a peer, the target of our speed over its, and flags of both sides."""

    make: Callable[[Spec, Any], Callable[[], Any]]
    target: float
    flags: tuple[str, ...] = ()


PEERS = {
    "tensorflow": {
        "the bare step": Peer(tensorflow_bare, 0.97),
        "Keras' fit": Peer(tensorflow_fit, 1),
        "Horovod's synthetic benchmark": Peer(tensorflow_horovod, 1),
    },
    "pytorch": {
        "the bare step": Peer(pytorch_bare, 0.97),
        "the bare step, compiled": Peer(pytorch_bare, 0.97, ("--compile", "True")),
    },
    "jax": {"the bare step": Peer(jax_bare, 0.97)},
}


if __name__ == "__main__":
    main()
