"""Softmax cross-entropy of each image, and how often its class is among the first one or five."""

import jax
import jax.numpy as jnp


def scaled(images: jax.Array) -> jax.Array:
    """uint8 pixels to the range -1 .. 1."""
    return images.astype(jnp.float32) * (2 / 255) - 1.0


def loss(labels: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.mean(_losses(labels, logits))


def sums(labels: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    logits = logits.astype(jnp.float32)
    of_label = jnp.take_along_axis(logits, labels[:, None], axis=-1)
    higher = jnp.sum(logits > of_label, axis=-1)
    finite = jnp.isfinite(of_label[:, 0])
    return {
        "items": jnp.asarray(labels.shape[0]),
        "loss": jnp.sum(_losses(labels, logits)),
        "top1": jnp.sum((higher < 1) & finite),
        "top5": jnp.sum((higher < 5) & finite),
    }


def _losses(labels, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]
