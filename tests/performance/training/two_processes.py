"""Our two-device runs beside bare programs in the same layout, and efficiency from one to two.

    uv run python -m tests            # once: builds Horovod
    envs/train/.venv/bin/python -m tests.performance.training.two_processes

A round runs, one after another, one process on one core, and for
each strategy our trainer and a bare program: the same model, optimizer and
settings in the shortest compiled step with that strategy's exchange of gradients,
no log, no wait but for the last step. Prints

    ours / bare     images per second; the target is 0.95
    efficiency      images per second on two devices over twice those on one;
                    the target is 0.85 for ours with Horovod

Of two processes the one that took longest from the last step of the warm-up to the last of all
counts, on both sides.
"""

import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from dlbench.common import plugins
from dlbench.machine.binding import set_affinity

from .. import bench
from ..bench import launched

LAYOUTS = {
    "single": {"strategy": "single", "launcher": "none"},
    "mirrored": {"strategy": "mirrored", "launcher": "none"},
    "multiworker": {"strategy": "multiworker", "launcher": "local"},
    "horovod": {"strategy": "horovod", "launcher": "horovodrun"},
}


def main():
    parser = launched.parser(__doc__, "resnet56")
    parser.add_argument("--strategies", nargs="+", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--options", default="", help="of Horovod, as --strategy-options")
    args = parser.parse_args()
    if args.bare:
        bare(*args.bare, args)
        return
    names = ["single", *(name for name in args.strategies if name != "single")]
    runs, figures = {name: run_of(name, args) for name in names}, bench.Figures(args.json)
    rates = launched.beside_bare(figures, __spec__.name, runs, args, f"--options={args.options}")
    for name in names[1:]:
        for whose, of in (("ours", ""), ("bare", " of the bare programs")):
            on_two, on_one = rates[name, whose], rates["single", whose]
            efficiencies = [ratio / 2 for ratio in bench.ratios(on_two, on_one)]
            target = 0.85 if (name, whose) == ("horovod", "ours") else None
            words = f"{args.model}, batch {args.batch}, {name}, efficiency from one to two{of}"
            figures.add(words, efficiencies, at_least=target)


def run_of(name, args):
    return launched.run_of(
        args,
        devices_per_node=1 if name == "single" else 2,
        strategy_options=args.options if name == "horovod" else "",
        **LAYOUTS[name],
    )


def bare(name, result, args):
    """The shortest program that trains with a strategy; rank r writes seconds to `result`r."""
    import keras
    import tensorflow as tf

    rank, cores = 0, 1
    if name == "horovod":
        settings = plugins.load("tensorflow/strategies", "horovod").Strategy.parse_options(
            run_of(name, args)
        )
        os.environ["HOROVOD_CYCLE_TIME"] = str(settings["cycle_time_ms"])
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
    elif name == "multiworker":
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    elif name == "mirrored":
        cores = 2
    allowed = sorted(os.sched_getaffinity(0))
    set_affinity(allowed[rank * cores : (rank + 1) * cores])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(cores)
    if name == "mirrored":
        host = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            host, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    strategy = {
        "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        "multiworker": tf.distribute.MultiWorkerMirroredStrategy,
    }.get(name, tf.distribute.get_strategy)()
    module = plugins.load("keras/models", args.model)
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model = module.build()
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    weights = [v.value for v in model.trainable_variables]
    images = tf.random.uniform([args.batch, *module.INPUT_SHAPE], -1, 1)
    labels = tf.random.uniform([args.batch], 0, module.CLASSES, tf.int32)

    def on_device():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses) / replicas
        gradients = tape.gradient(loss, weights)
        if name == "horovod":
            flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
            parts = tf.split(
                hvd.allreduce(flat), [weight.shape.num_elements() for weight in weights]
            )
            gradients = [tf.reshape(p, w.shape) for p, w in zip(parts, weights, strict=True)]
        optimizer.apply(gradients, model.trainable_variables)

    step = tf.function(lambda: strategy.run(on_device)).get_concrete_function()
    for _ in range(launched.WARMUP_STEPS):
        step()
    model.trainable_variables[0].numpy()
    before = time.perf_counter()
    for _ in range(args.steps):
        step()
    model.trainable_variables[0].numpy()
    seconds = time.perf_counter() - before
    Path(f"{result}{rank}").write_text(str(seconds))


if __name__ == "__main__":
    main()
