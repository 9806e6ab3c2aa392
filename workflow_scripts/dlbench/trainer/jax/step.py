"""The compiled step: forward and backward pass, exchange of gradients and update are one program.

- The step takes the state and returns the next one. It donates the state's buffers, so that weights
  are updated in place.
- Gradient accumulation (accumulate_steps) is a loop within the program, jax.lax.scan.
- A step of mode forward_backward returns its gradients; otherwise XLA would not compute them.
- Losses and sums of each task are at the end: see Losses in dlbench/trainer/tasks.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras

from dlbench.trainer import engine
from dlbench.trainer.jax.strategies import Base
from dlbench.trainer.keras import building
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Losses


class State(NamedTuple):
    """All variables of a run, as arrays in the order of Keras's lists."""

    trained: list[jax.Array]
    others: list[jax.Array]  # moving statistics, counters of random numbers
    optimizer: list[jax.Array]


def set_precision(spec: Spec, strategy: Base) -> None:
    """Set the precision in which the layers compute; the device must have it."""
    gpu = strategy.local[0] if strategy.on_gpus else None
    # AMD's devices have a name there instead of a version.
    version = str(getattr(gpu, "compute_capability", "")).split(".")
    known = all(number.isdecimal() for number in version)
    engine.check_precision(
        spec.precision,
        gpu.device_kind if gpu else None,
        [int(number) for number in version] if known else None,
    )
    # By default JAX uses TF32 on GPUs that have it; then float32 would not be float32.
    precision = "tensorfloat32" if spec.precision == "tf32" else "float32"
    jax.config.update("jax_default_matmul_precision", precision)
    building.set_policy(spec)


def make_step(
    spec: Spec,
    strategy: Base,
    losses: Losses,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    scaled: Callable[[jax.Array], jax.Array],
) -> Any:
    """The step of a run, jitted: (state, inputs, targets) -> (state, loss, gradients).

    `scaled` makes the model's inputs from those of a batch.
    """

    def loss_of(trained, state, inputs, targets, training):
        logits, others, added = model.stateless_call(
            trained, state.others, scaled(inputs), training=training, return_losses=True
        )
        return losses.loss(targets, logits), others, added

    def minimised(trained, state, inputs, targets):
        loss, others, added = loss_of(trained, state, inputs, targets, training=True)
        variables = zip(optimizer.variables, state.optimizer, strict=True)
        with keras.StatelessScope(state_mapping=list(variables)):
            return optimizer.scale_loss(sum(added, loss)), (loss, others)

    def forward(state, inputs, targets):
        loss, *_ = loss_of(state.trained, state, inputs, targets, training=False)
        return state, strategy.mean(loss), []

    def gradients_of(state, inputs, targets):
        gradients, (loss, others) = jax.grad(minimised, has_aux=True)(
            state.trained, state, inputs, targets
        )
        return others, loss, gradients

    if spec.accumulate_steps > 1:
        gradients_of = _in_parts(gradients_of, spec.accumulate_steps)

    def forward_backward(state, inputs, targets):
        others, loss, gradients = gradients_of(state, inputs, targets)
        return state._replace(others=strategy.mean(others)), strategy.mean(loss), gradients

    def train(state, inputs, targets):
        state, loss, gradients = forward_backward(state, inputs, targets)
        trained, variables = optimizer.stateless_apply(
            state.optimizer, strategy.mean(gradients), state.trained
        )
        return State(trained, state.others, variables), loss, []

    functions = {"forward": forward, "forward_backward": forward_backward, "train": train}
    return jax.jit(strategy.parallelize(functions[spec.mode]), donate_argnums=0)


def _in_parts(gradients_of, parts):
    """As `gradients_of`, but computes a batch in equal parts and returns the means over them."""

    def accumulated(state, *batch):
        def add_part(carried, part):
            others, *sums = carried
            others, *of_part = gradients_of(state._replace(others=others), *part)
            return (others, *jax.tree.map(jnp.add, sums, of_part)), None

        zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.trained)
        split = [array.reshape(parts, -1, *array.shape[1:]) for array in batch]
        (others, *sums), _ = jax.lax.scan(add_part, (state.others, *zeros), split)
        return others, *jax.tree.map(lambda total: total / parts, sums)

    return accumulated


def make_sums(
    losses: Losses, model: keras.Model
) -> Callable[[State, jax.Array, jax.Array], dict[str, jax.Array]]:
    """A compiled function of state, inputs and targets: the task's sums over a batch."""

    @jax.jit
    def sums(state, inputs, targets):
        logits, _ = model.stateless_call(
            state.trained, state.others, losses.scaled(inputs), training=False
        )
        return losses.sums(targets, logits)

    return sums


class _Language:
    def scaled(self, inputs: jax.Array) -> jax.Array:
        return inputs

    def loss(self, targets: jax.Array, logits: jax.Array) -> jax.Array:
        return jnp.mean(_cross_entropy(targets, logits))

    def sums(self, targets: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
        losses = _cross_entropy(targets, logits)
        return {"items": jnp.asarray(targets.size), "loss": jnp.sum(losses)}


class _MaskedLanguage(_Language):
    """Softmax cross-entropy of each masked token; targets elsewhere are -1."""

    def loss(self, targets: jax.Array, logits: jax.Array) -> jax.Array:
        sums = self.sums(targets, logits)
        return sums["loss"] / sums["items"]

    def sums(self, targets: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
        losses = _cross_entropy(jnp.maximum(targets, 0), logits)
        return {
            "items": jnp.sum(targets >= 0),
            "loss": jnp.sum(jnp.where(targets >= 0, losses, 0.0)),
        }


class _Classification(_Language):
    """Softmax cross-entropy of each image, how often its class is among the first one or five."""

    def scaled(self, inputs: jax.Array) -> jax.Array:
        """uint8 pixels to the range -1 .. 1."""
        return inputs.astype(jnp.float32) * (2 / 255) - 1.0

    def sums(self, targets: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
        logits = logits.astype(jnp.float32)
        of_label = jnp.take_along_axis(logits, targets[:, None], axis=-1)
        higher = jnp.sum(logits > of_label, axis=-1)
        finite = jnp.isfinite(of_label[:, 0])
        return super().sums(targets, logits) | {
            "top1": jnp.sum((higher < 1) & finite),
            "top5": jnp.sum((higher < 5) & finite),
        }


class _Segmentation:
    """Sigmoid cross-entropy of each pixel; intersection and union of masks and predictions."""

    def scaled(self, inputs: jax.Array) -> jax.Array:
        """Each image with mean 0 and deviation 1: surveys differ in the unit of their light.

        An image of one value keeps a deviation of 1 / sqrt(its values), as with TensorFlow.
        """
        images = inputs.astype(jnp.float32)
        values = images[0].size
        axes = tuple(range(1, images.ndim))
        mean = jnp.mean(images, axes, keepdims=True)
        deviation = jnp.std(images, axes, keepdims=True)
        return (images - mean) / jnp.maximum(deviation, values**-0.5)

    def loss(self, targets: jax.Array, logits: jax.Array) -> jax.Array:
        return jnp.mean(self._losses(targets, logits))

    def sums(self, targets: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
        target, predicted = targets > 0, logits > 0
        return {
            "items": jnp.asarray(targets.size),
            "loss": jnp.sum(self._losses(targets, logits)),
            "both": jnp.sum(target & predicted),
            "either": jnp.sum(target | predicted),
        }

    def _losses(self, masks, logits):
        masks, logits = masks.astype(jnp.float32), logits.astype(jnp.float32)
        return jnp.maximum(logits, 0) - logits * masks + jnp.log1p(jnp.exp(-jnp.abs(logits)))


def _cross_entropy(targets, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]


LOSSES: dict[str, Losses] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
