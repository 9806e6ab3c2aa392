"""Softmax cross-entropy of each masked token; targets elsewhere are -1."""

import jax
import jax.numpy as jnp


def scaled(words: jax.Array) -> jax.Array:
    return words


def loss(words: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.sum(_losses(words, logits)) / jnp.sum(words >= 0)


def sums(words: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    return {"items": jnp.sum(words >= 0), "loss": jnp.sum(_losses(words, logits))}


def _losses(words, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    of_target = jnp.take_along_axis(logs, jnp.maximum(words, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(words >= 0, -of_target, 0.0)
