"""Softmax cross-entropy of each token."""

import jax
import jax.numpy as jnp


def scaled(tokens: jax.Array) -> jax.Array:
    return tokens


def loss(tokens: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.mean(_losses(tokens, logits))


def sums(tokens: jax.Array, logits: jax.Array) -> dict[str, jax.Array]:
    return {"items": jnp.asarray(tokens.size), "loss": jnp.sum(_losses(tokens, logits))}


def _losses(tokens, logits):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, tokens[..., None], axis=-1)[..., 0]
