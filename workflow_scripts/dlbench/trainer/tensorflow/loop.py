"""The training loop: one compiled step, timed exactly, logged as it goes.

- A step's time runs from the end of the step before it to its own end, waiting
  for data and writing the log included; evaluations, and what all ranks do together
  for a checkpoint, are left out. So the times of a rank's measured steps add up to
  the time they took.
- The step ends when its loss has arrived on the host; there is no other
  synchronisation.
- The graph of the step is made, and timed, before the first step, which compiles it.
  Warm-up steps are logged and marked; so are as many after a run was resumed.
"""

import collections
import contextlib
import json
import math
import sys

import keras
import numpy as np
import tensorflow as tf

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer import checkpoints, sampling
from dlbench.trainer.tensorflow import building, description, items
from dlbench.trainer.tensorflow.step import Step, make_optimizer, set_precision

KERAS_AT_LEAST = 3
EVALUATION_BATCH = 256
PROGRESS_INTERVAL_S = 1.0
SPEC_BYTES = 4096  # of a run's fields as text, when ranks compare them


def train(
    spec, strategy, copy, log, data_folder, checkpointing=None, sample_every_s=1.0, packages=None
):
    """Train one run and log it, from run_start to the last step.

    Args:
        spec: the run's fields as attributes (see runs.Run).
        strategy: the joined strategy of this process.
        copy: which Copy of the run this process is.
        log: an EventLog, not yet started.
        data_folder: folder of the converted dataset, None where it is synthetic.
        checkpointing: {"folder", "every_s", "asked"} as for checkpoints.Keeper, or None.
        sample_every_s: seconds between two samples of what the machine does; 0: none.
        packages: folder where the list of installed packages is kept; None: nowhere.

    Returns:
        The fields of run_end: status, message, when the work was done (t_s), digests of the
        weights, energy and so on.

    Raises:
        Error: the combination cannot be trained; the message says why.
        checkpoints.Stopped: a checkpoint was written because the run was asked to stop.
    """
    if int(keras.__version__.partition(".")[0]) < KERAS_AT_LEAST:
        raise Error(f"needs Keras {KERAS_AT_LEAST} or newer, found {keras.__version__}")
    seed = spec.seed + spec.repeat - 1
    # Weights and dropout differ by rank, so that the broadcast is seen to matter;
    # TensorFlow's own seed does not, for it orders the data.
    keras.utils.set_random_seed(seed + 1000 * strategy.rank)
    tf.random.set_seed(seed)
    set_precision(spec, strategy.devices)
    if "GPU" in strategy.devices[0]:
        copy.check_gpus(len(tf.config.list_physical_devices("GPU")), spec.devices_per_node)
    if spec.deterministic:
        tf.config.experimental.enable_op_determinism()
    native = plugins.load("models", spec.model)
    task = plugins.load("tasks", native.TASK)
    with strategy.scope():
        source = items.find(spec, strategy, native, task, data_folder, seed)
        identity = _agreed(spec, strategy, source)
        model = building.built(spec, native, task, source)
        optimizer = make_optimizer(spec)
        optimizer.build(model.trainable_variables)
    strategy.broadcast([v.value for v in _state(model)])
    strategy.broadcast([v.value for v in optimizer.variables])
    keeper = None
    if checkpointing:
        keeper = checkpoints.Keeper(
            strategy=strategy, log=log, run=identity, **_kept(model, optimizer), **checkpointing
        )

    global_batch = spec.batch_per_device * spec.devices_per_node * spec.nodes
    total = spec.warmup_steps + (spec.steps or 0)
    if spec.epochs:
        total = steps_in(spec.epochs, source.records, global_batch)
    facts = description.gather(strategy, packages)  # before the clock starts
    first = keeper.resume(**description.describe(strategy)) if keeper else 0
    if not first:
        log.start(**_description(spec, strategy, copy, model, source, total))
    log.write("machine", **facts)
    source.begin(first)
    step = Step(spec, strategy, task, model, optimizer, source, global_batch)
    with _sampled(log, strategy, copy, sample_every_s) as used:
        before = log.now()
        step.trace()
        log.write("compile", trace_s=round(log.now() - before, 6))
        evaluation = _Evaluation(task, model, source) if _evaluates(spec, source) else None
        finite = _loop(
            spec, strategy, copy, log, step, source, evaluation, total, global_batch, first, keeper
        )
        done_s = log.now()  # what is left open is closed later, which may take seconds
    if keeper:
        keeper.finish()
    weights = [variable.value for variable in model.trainable_variables]
    return {
        "status": "ok" if finite else "failed",
        "message": "" if finite else "the loss is not a number",
        "t_s": round(done_s, 6),
        "weights_sha256": strategy.weights_sha256(weights),
        **used,
    }


def _loop(
    spec, strategy, copy, log, step, source, evaluation, total, global_batch, first=0, keeper=None
):
    """Run all steps after `first`. Returns False as soon as a loss is not finite."""
    progress = _Progress(total, global_batch)

    def evaluate(epoch, step):
        """Rank 0 evaluates, the others wait; returns when training goes on."""
        if strategy.rank == 0:
            scores = evaluation()
            t_s = round(log.now(), 6)
            log.write("eval", epoch=epoch, step=step, t_s=t_s, split="validation", **scores)
        strategy.gather([0.0])
        return log.now()

    # Before training too: there the loss curve begins, and there the evaluation compiles.
    if evaluation and not first:
        evaluate(0, 0)
    copy.meet(log)
    last = log.now()
    epoch = 1
    while source.records and steps_in(epoch, source.records, global_batch) <= first:
        epoch += 1
    until = first
    for index in range(first + 1, total + 1):
        if index > until:
            epoch_end = steps_in(epoch, source.records, global_batch) if source.records else total
            until = min(total, epoch_end, keeper.meet_at if keeper else total)
        loss = step(index, until)
        now = log.now()
        warm_up = (spec.epochs > 1 and epoch == 1) if spec.epochs else index <= spec.warmup_steps
        warm_up = warm_up or 0 < first >= index - spec.warmup_steps
        log.step(index, now, now - last, loss, step.learning_rate, warm_up, epoch)
        if not math.isfinite(loss):
            return False
        step_time_s, last = now - last, now
        if strategy.rank == 0:
            progress.show(index, now, loss)
        if index < until:
            continue
        if evaluation and index in (epoch_end, total):
            last = evaluate(epoch, index)
        epoch += index == epoch_end
        if keeper and index == keeper.meet_at:
            asked = keeper.meet(index, step_time_s)
            if asked and index < total:
                raise checkpoints.Stopped(
                    f"stopped by {asked} with a checkpoint after step {index}"
                )
            last = log.now()
    return True


def steps_in(epochs, records, global_batch):
    """The step in which the last record of an epoch is read; batches go across epochs.

    >>> [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)]
    [3, 5, 8]
    """
    return -(-epochs * records // global_batch)


def _agreed(spec, strategy, source):
    """What says which run this is, seen to be the same on all ranks.

    Raises:
        Error: ranks were started for different runs, or see different data.
    """
    mine = {
        "spec": _plain(spec),
        "size": strategy.size,
        "data_sha256": source.content_sha256,
    }
    text = json.dumps(mine, sort_keys=True).encode().ljust(SPEC_BYTES)
    rows = strategy.gather(np.frombuffer(text, np.uint8).astype(np.float64))
    others = [json.loads(bytes(row.astype(np.uint8))) for row in rows]
    for rank, other in enumerate(others):
        if other != others[0]:
            different = checkpoints.differences_of_runs(others[0], other)
            raise Error(
                f"ranks 0 and {rank} were not started for the same run on the same data: "
                + "; ".join(f"{key}: {first!r} and {second!r}" for key, first, second in different)
            )
    return mine


def _plain(spec):
    return {key: value for key, value in vars(spec).items() if value is not None}


def _evaluates(spec, source):
    """Whether the run is scored on held-out items."""
    if spec.mode != "train" or not source.records:
        return False
    return spec.evaluate == "yes" or (spec.evaluate == "auto" and spec.epochs is not None)


def _state(model):
    """The model's variables less the counters of its random layers, which differ by rank."""
    return [v for v in model.variables if "seed_generator" not in v.path]


def _kept(model, optimizer):
    """What a checkpoint holds: variables that are equal on all ranks, and those that differ."""
    trained = {v.path: v.value for v in model.trainable_variables}
    optimized = {f"optimizer/{v.path}": v.value for v in optimizer.variables}
    own = {v.path: v.value for v in model.variables if v.path not in trained}
    if len(trained) + len(own) != len(model.variables):
        raise Error("two variables of the model have one name: it cannot be checkpointed")
    return {"common": trained | optimized, "own": own}


@contextlib.contextmanager
def _sampled(log, strategy, copy, every_s):
    """Sample what this process uses; yields a dictionary that has the totals afterwards."""
    totals = {}
    if not every_s:
        yield totals
        return
    first_of_node = strategy.local_rank == 0 and copy.number == 0
    sampler = sampling.Sampler(log, every_s, strategy.gpus(), node=first_of_node)
    log.write("sampling", **sampler.start())
    try:
        yield totals
    finally:
        totals.update(sampler.stop())


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


def _description(spec, strategy, copy, model, source, total):
    """What run_start says beside the time."""
    return {
        "spec": _plain(spec),
        "rank": strategy.rank,
        "size": strategy.size,
        "copy": copy.number,
        "strategy_settings": strategy.settings(),
        "parameters": model.count_params(),
        "records": source.records,
        "total_steps": total,
        "data_sha256": source.content_sha256,
        "item_shape": list(source.item_shape),
        **description.describe(strategy),
    }
