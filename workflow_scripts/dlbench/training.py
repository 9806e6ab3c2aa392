"""The training loop: one compiled step, timed exactly, logged as it goes.

- A step's time runs from the end of the step before it to its own end, waiting
  for data and writing the log included, evaluations left out. So the times of
  the measured steps add up to the time they took.
- The step ends when its loss has arrived on the host; there is no other
  synchronisation.
- Compiling is timed apart. Warm-up steps are logged and marked.
"""

import collections
import math
import os
import platform
import socket
import sys
from importlib import metadata

import keras
import numpy as np
import tensorflow as tf

from dlbench import Error, plugins
from dlbench.reading import Data

EVALUATION_BATCH = 256
PROGRESS_INTERVAL_S = 1.0
MOMENTUM = 0.9  # as in tf_cnn_benchmarks


def train(spec, strategy, log, data_folder):
    """Train one run and log it, from run_start to the last step.

    Args:
        spec: the run's fields as attributes (see runs.Run).
        strategy: the joined strategy of this process.
        log: an EventLog, not yet started.
        data_folder: folder of the converted dataset, None where it is synthetic.

    Returns:
        The fields of run_end: status, message and the digests of the weights.

    Raises:
        Error: the combination cannot be trained; the message says why.
    """
    seed = spec.seed + spec.repeat - 1
    # Weights and dropout differ by rank, so that the broadcast is seen to matter;
    # TensorFlow's own seed does not, for it orders the data.
    keras.utils.set_random_seed(seed + 1000 * strategy.rank)
    tf.random.set_seed(seed)
    keras.mixed_precision.set_global_policy(
        spec.precision if spec.precision == "float32" else f"mixed_{spec.precision}"
    )
    native = plugins.load("models", spec.model)
    task = plugins.load("tasks", native.TASK)
    with strategy.scope():
        source = _source(spec, strategy, native, task, data_folder, seed)
        model = native.build(source.item_shape, source.classes)
        optimizer = _optimizer(spec)
        optimizer.build(model.trainable_variables)
    weights = [variable.value for variable in model.trainable_variables]
    strategy.broadcast([v.value for v in _state(model)])
    strategy.broadcast([v.value for v in optimizer.variables])

    global_batch = spec.batch_per_device * strategy.devices_per_process * strategy.size
    total = spec.warmup_steps + (spec.steps or 0)
    if spec.epochs:
        total = steps_in(spec.epochs, source.records, global_batch)
    log.start(**_description(spec, strategy, model, source, total))
    step = _Step(spec, strategy, task, model, optimizer, source)
    before = log.now()
    step.compile()
    log.write("compile", compile_s=round(log.now() - before, 6))
    evaluation = _Evaluation(task, model, source) if spec.epochs else None

    finite = _loop(spec, strategy, log, step, source, evaluation, total, global_batch)
    return {
        "status": "ok" if finite else "failed",
        "message": "" if finite else "the loss is not a number",
        "weights_sha256": strategy.weights_sha256(weights),
    }


def _loop(spec, strategy, log, step, source, evaluation, total, global_batch):
    """Run all steps. Returns False as soon as a loss is not finite."""
    progress = _Progress(total, global_batch)

    def evaluate(epoch, step):
        """Rank 0 evaluates, the others wait; returns when training goes on."""
        if strategy.rank == 0:
            scores = evaluation()
            t_s = round(log.now(), 6)
            log.write("eval", epoch=epoch, step=step, t_s=t_s, split="validation", **scores)
        strategy.barrier()
        return log.now()

    # Before training too: there the loss curve begins, and there the evaluation compiles.
    last = evaluate(0, 0) if evaluation else log.now()
    epoch = 1
    for index in range(1, total + 1):
        loss = step()
        now = log.now()
        warm_up = (spec.epochs > 1 and epoch == 1) if spec.epochs else index <= spec.warmup_steps
        log.step(index, now, now - last, loss, spec.learning_rate, warm_up, epoch)
        if not math.isfinite(loss):
            return False
        last = now
        if strategy.rank == 0:
            progress.show(index, now, loss)
        if source.records and index == steps_in(epoch, source.records, global_batch):
            if evaluation:
                last = evaluate(epoch, index)
            epoch += 1
    return True


def steps_in(epochs, records, global_batch):
    """The step in which the last record of an epoch is read; batches go across epochs.

    >>> [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)]
    [3, 5, 8]
    """
    return -(-epochs * records // global_batch)


class _Synthetic:
    """Random items in the model's native shape, the same in every step."""

    def __init__(self, spec, strategy, native, task, seed):
        self.item_shape, self.classes = native.INPUT_SHAPE, native.CLASSES
        self.records = None
        self.content_sha256 = None
        items = task.synthetic(
            np.random.default_rng(seed + strategy.rank),
            spec.batch_per_device,
            self.item_shape,
            self.classes,
        )
        self.constants = strategy.constants(lambda: tuple(tf.constant(part) for part in items))


class _Stored:
    """The items of a converted dataset, in an order fixed by the seed."""

    def __init__(self, spec, strategy, native, folder, seed):
        self.data = Data(folder, native.INPUT_SHAPE, spec.augment, spec.cache)
        self.item_shape = self.data.item_shape
        self.classes = self.data.classes or native.CLASSES
        self.records = self.data.records("train")
        batches = self.data.training_batches(
            spec.batch_per_device * strategy.devices_per_process,
            seed,
            strategy.rank,
            strategy.size,
        )
        self.content_sha256 = [
            shard["sha256"]
            for split in self.data.manifest["splits"].values()
            for shard in split["shards"]
        ]
        self.iterator = iter(strategy.distribute(batches))


def _source(spec, strategy, native, task, data_folder, seed):
    if plugins.load("datasets", spec.dataset).SYNTHETIC:
        return _Synthetic(spec, strategy, native, task, seed)
    if data_folder is None:
        raise Error(f"dataset {spec.dataset} is not synthetic: --data must name its folder")
    stored = _Stored(spec, strategy, native, data_folder, seed)
    kind = stored.data.manifest["kind"]
    if kind != task.KIND:
        raise Error(
            f"model {spec.model} learns {native.TASK} and needs data of the kind {task.KIND}; "
            f"{spec.dataset} is of the kind {kind}"
        )
    return stored


def _optimizer(spec):
    optimizer = {
        "sgd": lambda: keras.optimizers.SGD(spec.learning_rate),
        "momentum": lambda: keras.optimizers.SGD(spec.learning_rate, momentum=MOMENTUM),
        "rmsprop": lambda: keras.optimizers.RMSprop(spec.learning_rate),
        "adam": lambda: keras.optimizers.Adam(spec.learning_rate),
    }[spec.optimizer]()
    if spec.precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _state(model):
    """The model's variables less the counters of its random layers, which differ by rank."""
    return [v for v in model.variables if "seed_generator" not in v.path]


class _Step:
    """One step as a compiled function; calling it returns the mean loss as a float."""

    def __init__(self, spec, strategy, task, model, optimizer, source):
        on_device = _device_step(spec.mode, strategy, task, model, optimizer)

        if isinstance(source, _Synthetic):

            @tf.function
            def step():
                return strategy.mean(strategy.run(on_device, source.constants))

            self._arguments = ()
        else:

            @tf.function
            def step(iterator):
                return strategy.mean(strategy.run(on_device, next(iterator)))

            self._arguments = (source.iterator,)
        self._step = step

    def compile(self):
        self._step.get_concrete_function(*self._arguments)

    def __call__(self):
        return float(self._step(*self._arguments))


def _device_step(mode, strategy, task, model, optimizer):
    """What one device does in a step: (inputs, targets) -> its mean loss."""
    scale = strategy.loss_scale()
    weights = [variable.value for variable in model.trainable_variables]

    def forward(inputs, targets):
        return task.loss(targets, model(task.scaled(inputs), training=False))

    def gradients_of(inputs, targets):
        with tf.GradientTape() as tape:
            loss = task.loss(targets, model(task.scaled(inputs), training=True))
            minimised = optimizer.scale_loss(loss) * scale
        return loss, tape.gradient(minimised, weights)

    def forward_backward(inputs, targets):
        loss, gradients = gradients_of(inputs, targets)
        # Without this the compiler drops the gradients, which nothing else uses.
        with tf.control_dependencies(gradients):
            return tf.identity(loss)

    def train_step(inputs, targets):
        loss, gradients = gradients_of(inputs, targets)
        optimizer.apply(strategy.reduce(gradients), model.trainable_variables)
        return loss

    return {"forward": forward, "forward_backward": forward_backward, "train": train_step}[mode]


class _Evaluation:
    """The task's scores over all held-out items, on one device."""

    def __init__(self, task, model, source):
        self._task = task
        self._batches = source.data.validation_batches(EVALUATION_BATCH)
        self.examples = source.data.records("validation")

        @tf.function(reduce_retracing=True)
        def sums(inputs, targets):
            return task.sums(targets, model(task.scaled(inputs), training=False))

        self._sums = sums

    def __call__(self):
        totals = collections.Counter()
        for inputs, targets in self._batches:
            totals.update({name: float(part) for name, part in self._sums(inputs, targets).items()})
        return {**self._task.scores(totals), "examples": self.examples}


class _Progress:
    """A line on stderr now and then, for those who watch."""

    def __init__(self, total, global_batch):
        self._total, self._global_batch = total, global_batch
        self._shown_s, self._shown_index = 0.0, 0

    def show(self, index, now, loss):
        if now - self._shown_s < PROGRESS_INTERVAL_S and index < self._total:
            return
        rate = (index - self._shown_index) * self._global_batch / (now - self._shown_s)
        self._shown_s, self._shown_index = now, index
        print(
            f"step {index}/{self._total}  {rate:.1f} images/s  loss {loss:.4f}",
            file=sys.stderr,
            flush=True,
        )


def _description(spec, strategy, model, source, total):
    """What run_start says beside the time."""
    return {
        "spec": {k: v for k, v in vars(spec).items() if v is not None},
        "rank": strategy.rank,
        "size": strategy.size,
        "devices": strategy.devices,
        "device_model": _device_model(strategy.devices),
        "cores": strategy.cores,
        "strategy_settings": strategy.settings(),
        "parameters": model.count_params(),
        "records": source.records,
        "total_steps": total,
        "data_sha256": source.content_sha256,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "load_average": os.getloadavg(),
        "platform": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
            **{name: metadata.version(name) for name in strategy.packages},
        },
    }


def _device_model(devices):
    """What the devices are called by their maker: the GPU's name or the CPU's."""
    if "GPU" in devices[0]:
        gpu = tf.config.list_physical_devices("GPU")[0]
        return tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown CPU"
