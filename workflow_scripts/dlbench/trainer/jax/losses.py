"""Losses and sums of each task under JAX: see Losses in dlbench/trainer/tasks.py."""

import jax
import jax.numpy as jnp

from dlbench.trainer.tasks import Losses


class _Language:
    """Softmax cross-entropy of each token."""

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
