"""The compiled step: its precision, forward and backward pass, update, and the losses of tasks.

- With XLA the forward and the backward pass are one compiled cluster; the exchange
  of gradients and the update are outside of it, under every strategy.
- Gradient accumulation is unrolled in the graph: the parts of a batch are computed in sequence.
- Losses and sums of each task are at the end: see Losses in dlbench/trainer/tasks.py.
"""

import keras
import tensorflow as tf

from dlbench.trainer import engine, updates
from dlbench.trainer.keras import building
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Losses
from dlbench.trainer.tensorflow.pipelines import Source
from dlbench.trainer.tensorflow.strategies import Base


def set_precision(spec: Spec, devices: list[str]) -> None:
    """Set the precision in which the layers of all models that are built later compute.

    The devices are those of this process by TensorFlow's names, which must have it.
    """
    gpu = tf.config.list_physical_devices("GPU")[0] if "GPU" in devices[0] else None
    details = tf.config.experimental.get_device_details(gpu) if gpu else {}
    name = details.get("device_name", "this GPU") if gpu else None
    engine.check_precision(spec.precision, name, details.get("compute_capability"))
    # By default TensorFlow uses TF32 on GPUs that have it; then float32 would not be float32.
    tf.config.experimental.enable_tensor_float_32_execution(spec.precision == "tf32")
    building.set_policy(spec)


class Step:
    """The compiled step, or a window of steps that is one compiled call.

    Calling it does the steps `first` to `last` of a window and returns the mean loss of each over
    the devices of this process; `until` is as for the strategy's `stepper`. The optimizer is built
    for the model's weights, and `begin` of the source of items was called.
    """

    def __init__(
        self,
        spec: Spec,
        strategy: Base,
        losses: Losses,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        source: Source,
    ):
        on_device = _device_step(spec, strategy, losses, model, optimizer, source.scaled)

        @tf.function(autograph=False)
        def step(*arguments):
            return strategy.mean(strategy.run(on_device, source.next(*arguments)))

        self._step, self._arguments = step, source.arguments
        self._spec, self._strategy = spec, strategy
        self._schedule = Schedule(spec, source.records)
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._set_learning_rate(updates.scaled_learning_rate(spec, self._schedule.global_batch))

    def trace(self, several: bool) -> None:
        """Trace the graph of a step, or of a window if windows may have several steps.

        One graph serves windows of any length: so it is compiled once, and a step that is waited
        for does the same work as one that is not.
        """
        if several:
            self._call = self._strategy.windower(self._step, self._arguments, self._assign_rate)
        else:
            step = self._strategy.stepper(self._step, self._arguments)
            self._call = lambda rates, index, until: [step(index, until)]

    def __call__(self, first: int, last: int, until: int) -> list[float]:
        rates = self._schedule.learning_rates(first, last)
        if updates.learning_rate_changes(self._spec, first):
            self._set_learning_rate(rates[0])
        losses = self._call(rates, last, until)
        self.learning_rate = rates[-1]
        return losses

    def _set_learning_rate(self, rate: float) -> None:
        self._optimizer.learning_rate = self.learning_rate = rate

    def _assign_rate(self, rate: tf.Tensor) -> None:
        """Set the learning rate of a step within a window, if it may change from step to step."""
        if updates.learning_rate_changes(self._spec):
            self._optimizer.learning_rate.assign(rate)


def _device_step(spec, strategy, losses, model, optimizer, scaled):
    """The part of a step that each device does: (inputs, targets) -> its mean loss."""
    scale = strategy.loss_scale()
    weights = [variable.value for variable in model.trainable_variables]

    def forward(inputs, targets):
        return losses.loss(targets, model(scaled(inputs), training=False))

    def gradients_of(inputs, targets):
        with tf.GradientTape() as tape:
            loss = losses.loss(targets, model(scaled(inputs), training=True))
            minimised = optimizer.scale_loss(sum(model.losses, loss)) * scale
        return loss, tape.gradient(minimised, weights)

    if spec.xla:
        forward, gradients_of = (
            tf.function(function, autograph=False, jit_compile=True)
            for function in (forward, gradients_of)
        )

    if spec.accumulate_steps > 1:
        gradients_of = _in_parts(gradients_of, spec)

    def forward_backward(inputs, targets):
        loss, gradients = gradients_of(inputs, targets)
        # Without this the compiler removes the gradients, which nothing else uses.
        with tf.control_dependencies(gradients):
            return tf.identity(loss)

    def train_step(inputs, targets):
        loss, gradients = gradients_of(inputs, targets)
        if spec.recompute:
            # No update may come before all gradients are computed: TensorFlow's graph optimizer
            # loses the order of an update and of the reads that recomputation adds.
            gradients = tf.tuple(gradients)
        if spec.clip_norm:  # in IndexedSlices, gradients of one row of an embedding are not summed
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        strategy.apply(optimizer, gradients, model.trainable_variables)
        return loss

    return {"forward": forward, "forward_backward": forward_backward, "train": train_step}[
        spec.mode
    ]


def _in_parts(gradients_of, spec):
    """Mean loss and mean gradients over equal parts of a batch, each a call of `gradients_of`."""
    parts, size = spec.accumulate_steps, spec.batch_per_device // spec.accumulate_steps

    def accumulated(inputs, targets):
        losses, totals = [], []
        for first in range(0, parts * size, size):
            # In parallel the parts would need the memory of the whole batch.
            with tf.control_dependencies(totals):
                part = slice(first, first + size)
                loss, gradients = gradients_of(inputs[part], targets[part])
                # Gradients of embeddings are IndexedSlices.
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
                if totals:
                    gradients = [a + b for a, b in zip(totals, gradients, strict=True)]
                totals = gradients
                losses.append(loss)
        return tf.add_n(losses) / parts, [total / parts for total in totals]

    return accumulated


class _Language:
    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(_cross_entropy(targets, logits))

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        losses = _cross_entropy(targets, logits)
        return {"items": tf.size(targets), "loss": tf.reduce_sum(losses)}


class _MaskedLanguage(_Language):
    """Softmax cross-entropy of each masked token; targets elsewhere are -1."""

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        sums = self.sums(targets, logits)
        return sums["loss"] / tf.cast(sums["items"], tf.float32)

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        losses = _cross_entropy(tf.maximum(targets, 0), logits)
        return {
            "items": tf.math.count_nonzero(targets >= 0),
            "loss": tf.reduce_sum(tf.where(targets >= 0, losses, 0.0)),
        }


class _Classification(_Language):
    """Softmax cross-entropy of each image, how often its class is among the first one or five."""

    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        """uint8 pixels to the range -1 .. 1."""
        return tf.cast(inputs, tf.float32) * (2 / 255) - 1.0

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.cast(logits, tf.float32)
        return super().sums(targets, logits) | {
            "top1": tf.math.count_nonzero(tf.math.in_top_k(targets, logits, 1)),
            "top5": tf.math.count_nonzero(tf.math.in_top_k(targets, logits, 5)),
        }


class _Segmentation:
    """Sigmoid cross-entropy of each pixel; intersection and union of masks and predictions."""

    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        """Each image with mean 0 and deviation 1: surveys differ in the unit of their light."""
        return tf.image.per_image_standardization(tf.cast(inputs, tf.float32))

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(self._losses(targets, logits))

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        target, predicted = targets > 0, logits > 0
        return {
            "items": tf.size(targets),
            "loss": tf.reduce_sum(self._losses(targets, logits)),
            "both": tf.math.count_nonzero(target & predicted),
            "either": tf.math.count_nonzero(target | predicted),
        }

    def _losses(self, masks, logits):
        return tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(masks, tf.float32), tf.cast(logits, tf.float32)
        )


def _cross_entropy(targets, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, tf.cast(logits, tf.float32))


LOSSES: dict[str, Losses] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
