"""Our two-device runs beside bare programs in the same layout, and efficiency from one to two.

A round runs, one after another, for each layout our trainer and a bare program: the same model,
optimizer and batch in the shortest step with that strategy's exchange of gradients, no log, no wait
but for the last step. Measured are
- ours over the bare program, of images per second; the target is 0.95;
- under TensorFlow, efficiency: images per second on two devices over twice those on one; the target
  is 0.85 for ours with Horovod.
Of two processes the one that took longest counts, on both sides.
"""

import argparse
import functools
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.records import step_times
from dlbench.records.parse_run import RankLog
from dlbench.study.runs import Run
from dlbench.trainer import engine

from . import REPOSITORY, measuring

WARMUP_STEPS = 5
MODELS = {"tensorflow": "resnet56", "pytorch": "resnet20", "jax": "resnet20"}
# Fields of a run, by the name of its layout.
LAYOUTS = {
    "tensorflow": {
        "single": {"strategy": "single", "devices_per_node": 1},
        "mirrored": {"strategy": "mirrored"},
        "multiworker": {"strategy": "multiworker", "launcher": "local"},
        "horovod": {"strategy": "horovod", "launcher": "horovodrun"},
    },
    "pytorch": {"ddp": {"strategy": "ddp", "launcher": "torchrun"}},
    "jax": {
        "a process for each node": {
            "strategy": "sharded", "strategy_options": "processes=node",
        },
        "a process for each device": {
            "strategy": "sharded", "strategy_options": "processes=device", "launcher": "local",
        },
    },
}  # fmt: skip


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--framework", required=True, choices=LAYOUTS)
    parser.add_argument("--model", help=f"without: {MODELS}")
    parser.add_argument("--batch", type=int, default=32, help="per device")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layout", action="append", help="one alone")
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.model = args.model or MODELS[args.framework]
    names = args.layout or LAYOUTS[args.framework]
    runs = {name: run_of(args, LAYOUTS[args.framework][name]) for name in names}
    if args.bare:  # this process is one of the bare program's
        name, result = args.bare
        bare(runs[name], Path(result))
    else:
        compare(measuring.Figures(args.json), runs, args)


def run_of(args, layout):
    fields = {"devices_per_node": 2, "launcher": "none"} | layout
    return Run(
        model=args.model,
        dataset="synthetic",
        batch_per_device=args.batch,
        steps=args.steps,
        warmup_steps=WARMUP_STEPS,
        framework=args.framework,
        environment=engine.environment(args.framework),
        **fields,
    )


def compare(figures, runs, args):
    words = ["--framework", args.framework, "--model", args.model, "--batch", args.batch]
    words += ["--steps", args.steps]
    calls = {}
    for name, run in runs.items():
        calls[name, "ours"] = functools.partial(images_per_second, run)
        calls[name, "bare"] = functools.partial(bare_images_per_second, run, *words, "--bare", name)
    rates = measuring.in_turns(args.rounds, calls)
    for name in runs:
        of = f"{args.model}, batch {args.batch}, {name}"
        figures.add(f"{of}, throughput", rates[name, "ours"], "images/s")
        over = measuring.ratios(rates[name, "ours"], rates[name, "bare"])
        figures.add(f"{of}, over the bare program", over, at_least=0.95)
        if "single" not in runs or name == "single":
            continue
        for whose in ("ours", "bare"):
            halves = measuring.ratios(rates[name, whose], rates["single", whose])
            target = 0.85 if (name, whose) == ("horovod", "ours") else None
            what = f"{of}, efficiency from one to two, {whose}"
            figures.add(what, [half / 2 for half in halves], at_least=target)


def images_per_second(run: Run) -> float:
    """Throughput of our trainer over the steps after the warm-up, of the slowest process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.jsonl"
        _start(run, "workflow_scripts/train.py", *run.flags(), "--log", log)
        logs = [RankLog(path) for path in event_log.rank_paths(log)]
    measured = step_times.slowest(step_times.of_all_ranks(logs)[run.warmup_steps :])
    return step_times.images_per_second(measured, run.global_batch)


def bare_images_per_second(run, *words):
    """The same of the bare program, whose process r writes its seconds to the file `RESULTr`."""
    with tempfile.TemporaryDirectory() as folder:
        _start(run, "-m", "benchmarks.two_processes", *words, Path(folder) / "result")
        seconds = max(float(path.read_text()) for path in Path(folder).iterdir())
    return run.global_batch * run.steps / seconds


def _start(run, *arguments):
    """Run the Python of a run's environment with arguments, started by the run's launcher."""
    python = measuring.python_of(run.framework)
    command = plugins.load("launchers", run.launcher).command(
        run, [str(python), *map(str, arguments)], python.parents[1]
    )
    measuring.run(command, cwd=REPOSITORY, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"})


# ---- Bare programs ------------------------------------------------------------------------------


def bare(run, result):
    """The shortest program that trains on two devices."""
    # Our strategy sets up devices and processes, which is no part of what is timed.
    strategy = engine.strategy_of(run)(run, "cpu")
    train = BARE[run.framework](run, strategy)
    train(run.warmup_steps)
    before = time.perf_counter()
    train(run.steps)
    seconds = time.perf_counter() - before
    result.with_name(f"{result.name}{strategy.rank}").write_text(str(seconds))
    strategy.leave()


def synthetic(native, rank, items):
    """Inputs and labels of a process."""
    random = np.random.default_rng(rank)
    images = random.uniform(-1, 1, (items, *native.INPUT_SHAPE)).astype(np.float32)
    return images, random.integers(0, native.CLASSES, items).astype(np.int32)


def tensorflow(run, strategy):
    import keras
    import tensorflow as tf

    native = plugins.load("keras/models", run.model)
    with strategy.scope():
        model, optimizer = (
            native.build(native.INPUT_SHAPE, native.CLASSES),
            keras.optimizers.SGD(0.01),
        )
        optimizer.build(model.trainable_variables)
    weights = [variable.value for variable in model.trainable_variables]
    images, labels = map(tf.constant, synthetic(native, strategy.rank, run.batch_per_device))

    def on_device():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses) * strategy.loss_scale()
        gradients = tape.gradient(loss, weights)
        if run.strategy == "horovod":
            import horovod.tensorflow as hvd

            flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
            sizes = [weight.shape.num_elements() for weight in weights]
            parts = tf.split(hvd.allreduce(flat), sizes)
            gradients = [tf.reshape(p, w.shape) for p, w in zip(parts, weights, strict=True)]
        optimizer.apply(gradients, model.trainable_variables)

    step = tf.function(lambda: strategy.run(on_device, ())).get_concrete_function()

    def train(steps):
        for _ in range(steps):
            step()
        model.trainable_variables[0].numpy()

    return train


def pytorch(run, strategy):
    import torch
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    native = plugins.load("pytorch/models", run.model)
    module = DistributedDataParallel(
        native.build(native.INPUT_SHAPE, native.CLASSES).to(memory_format=torch.channels_last),
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    images, labels = synthetic(native, strategy.rank, run.batch_per_device)
    images, labels = strategy.to_devices(images), strategy.to_devices(labels.astype(np.int64))

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(module(images), labels).backward()
            optimizer.step()

    return train


def jax(run, strategy):
    """One jax.jit over a mesh of both devices, which one process drives, or two."""
    import jax
    import keras
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    native = plugins.load("keras/models", run.model)
    keras.utils.set_random_seed(1)
    network, optimizer = (
        native.build(native.INPUT_SHAPE, native.CLASSES),
        keras.optimizers.SGD(0.01),
    )
    optimizer.build(network.trainable_variables)
    each, parts = PartitionSpec(), PartitionSpec("devices")
    mesh = Mesh(np.asarray(jax.devices()), ("devices",))
    make = jax.make_array_from_process_local_data
    local = synthetic(native, strategy.rank, run.batch_per_device * strategy.devices_per_process)
    batch = [make(NamedSharding(mesh, parts), values) for values in local]
    on_all, variables = NamedSharding(mesh, each), (
        network.trainable_variables, network.non_trainable_variables, optimizer.variables
    )  # fmt: skip
    state = [[make(on_all, np.asarray(v), v.shape) for v in part] for part in variables]

    def loss_of(trained, others, images, labels):
        logits, others = network.stateless_call(trained, others, images, training=True)
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
        return -chosen.mean(), others

    def on_device(state, images, labels):
        trained, others, variables = state
        gradients, others = jax.grad(loss_of, has_aux=True)(trained, others, images, labels)
        gradients, others = jax.tree.map(
            lambda value: jax.lax.pmean(value, "devices"), (gradients, others)
        )
        trained, variables = optimizer.stateless_apply(variables, gradients, trained)
        return [trained, others, variables]

    mapped = jax.shard_map(
        on_device, mesh=mesh, in_specs=(each, parts, parts), out_specs=each, check_vma=False
    )
    step = jax.jit(mapped, donate_argnums=0).lower(state, *batch).compile()

    def train(steps):
        nonlocal state
        for _ in range(steps):
            state = step(state, *batch)
        jax.block_until_ready(state)

    return train


BARE = {"tensorflow": tensorflow, "pytorch": pytorch, "jax": jax}

if __name__ == "__main__":
    main()
