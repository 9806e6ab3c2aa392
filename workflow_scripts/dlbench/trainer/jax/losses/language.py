"""Softmax cross-entropy of each word."""

import jax
import jax.numpy as jnp


def scaled(words: jax.Array) -> jax.Array:
    return words


def loss(words: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.mean(_losses(words, logits))


def sums(words: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    return {"items": jnp.asarray(words.size), "loss": jnp.sum(_losses(words, logits))}


def _losses(words, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, words[..., None], axis=-1)[..., 0]
