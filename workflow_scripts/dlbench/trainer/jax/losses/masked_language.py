"""Softmax cross-entropy of each masked token; targets elsewhere are -1."""

import jax
import jax.numpy as jnp


def scaled(tokens: jax.Array) -> jax.Array:
    return tokens


def loss(tokens: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.sum(_losses(tokens, logits)) / jnp.sum(tokens >= 0)


def sums(tokens: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    return {"items": jnp.sum(tokens >= 0), "loss": jnp.sum(_losses(tokens, logits))}


def _losses(tokens, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    of_target = jnp.take_along_axis(logs, jnp.maximum(tokens, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(tokens >= 0, -of_target, 0.0)
