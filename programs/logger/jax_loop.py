"""A loop of one's own in JAX; lines that end with `# log` are those about the logger.

python jax_loop.py --steps 60 --batch 64
"""

import argparse

import dlbench_log  # log
import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()


def wait():  # log
    jax.block_until_ready(weights)  # log


log = dlbench_log.Log(  # log
    synchronize=wait, rank=jax.process_index(), total_steps=args.steps, global_batch=args.batch
)  # log
log.window(10 if jax.default_backend() == "gpu" else 1)  # log

keys = jax.random.split(jax.random.key(1), 4)
weights = (jax.random.normal(keys[0], (64, 128)) / 8, jax.random.normal(keys[1], (128, 10)) / 11)
inputs = jax.random.normal(keys[2], (args.batch, 64))
labels = jax.random.randint(keys[3], (args.batch,), 0, 10)


def loss_of(weights, inputs, labels):
    scores = jax.nn.relu(inputs @ weights[0]) @ weights[1]
    picked = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1)
    return -picked.mean()


@jax.jit
def train_step(weights, inputs, labels):
    loss, slopes = jax.value_and_grad(loss_of)(weights, inputs, labels)
    return [w - 0.1 * slope for w, slope in zip(weights, slopes, strict=True)], loss


for _ in range(args.steps):
    with log.step():  # log
        weights, loss = train_step(weights, inputs, labels)
        log.loss(loss, learning_rate=0.1)  # log
log.evaluation(split="train", loss=loss_of(weights, inputs, labels))  # log
