"""Sigmoid cross-entropy of each pixel, and the intersection and union of masks and predictions."""

import jax
import jax.numpy as jnp


def scaled(images: jax.Array) -> jax.Array:
    """Each image with mean 0 and deviation 1: surveys differ in the unit of their light.

    An image of one value keeps a deviation of 1 / sqrt(its values), as with TensorFlow.
    """
    images = images.astype(jnp.float32)
    values = images[0].size
    axes = tuple(range(1, images.ndim))
    mean = jnp.mean(images, axes, keepdims=True)
    deviation = jnp.std(images, axes, keepdims=True)
    return (images - mean) / jnp.maximum(deviation, values**-0.5)


def loss(masks: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.mean(_losses(masks, logits))


def sums(masks: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    target, predicted = masks > 0, logits > 0
    return {
        "items": jnp.asarray(masks.size),
        "loss": jnp.sum(_losses(masks, logits)),
        "both": jnp.sum(target & predicted),
        "either": jnp.sum(target | predicted),
    }


def _losses(masks, logits):
    masks, logits = masks.astype(jnp.float32), logits.astype(jnp.float32)
    return jnp.maximum(logits, 0) - logits * masks + jnp.log1p(jnp.exp(-jnp.abs(logits)))
