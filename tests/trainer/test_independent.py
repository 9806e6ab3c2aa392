"""What the trainer computes, beside short programs that share no layer, loss or optimizer with it.

They take the initial weights and the items of a run, and compute in float64 with TensorFlow's
plain operations what the publications say. The trainer's float32 losses agree to about 1e-6.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from dlbench.common import plugins
from support.trainers.training_runs import events, train

SEED, STEPS, RATE, MOMENTUM = 3, 6, 0.05, 0.9
SETTINGS = {
    "seed": SEED, "steps": STEPS - 1, "warmup_steps": 1, "optimizer": "momentum",
    "learning_rate": RATE,
}  # fmt: skip


def trained(log, **fields):
    finished = train(log, flags=["--sample-every-s", "0"], **SETTINGS | fields)
    assert finished.returncode == 0, finished.stderr
    return [step["loss"] for step in events(log, "step")]


def computed(model, forward, batches):
    """Losses of steps of stochastic gradient descent with momentum, from a model's first weights.

    Args:
        forward: (list of weights, in the model's order, inputs, targets) -> the mean loss.
        batches: (inputs, targets) of each step.
    """
    keras.utils.set_random_seed(SEED)
    native = plugins.load("keras/models", model)
    built = native.build(native.INPUT_SHAPE, native.CLASSES)
    weights = [tf.constant(w, tf.float64) for w in built.weights]
    velocities = [tf.zeros_like(weight) for weight in weights]
    losses = []
    for inputs, targets in batches:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = forward(weights, inputs, targets)
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
        velocities = [MOMENTUM * v - RATE * g for v, g in zip(velocities, gradients, strict=True)]
        weights = [w + v for w, v in zip(weights, velocities, strict=True)]
        losses.append(float(loss))
    return losses


def of_classes(logits, labels):
    chosen = tf.gather(logits, labels, batch_dims=len(labels.shape))
    return tf.reduce_mean(tf.reduce_logsumexp(logits, axis=-1) - chosen)


def lstm(weights, words, following):
    """Zaremba et al. 2014, section 3.1; gates in the order i, f, g, o."""
    embedding, *layers, out, bias = weights
    sequence = tf.unstack(tf.gather(embedding, words), axis=1)
    for kernel, recurrent, offset in (layers[:3], layers[3:]):
        h = c = tf.zeros((len(words), recurrent.shape[0]), tf.float64)
        outputs = []
        for x in sequence:
            i, f, g, o = tf.split(x @ kernel + h @ recurrent + offset, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            outputs.append(h)
        sequence = outputs
    return of_classes(tf.stack(sequence, axis=1) @ out + bias, following)


@pytest.mark.ci
def test_an_lstm_trains_as_an_independent_program_does(tmp_path):
    words = np.random.default_rng(SEED).integers(0, 10_000, (4, 21), np.int32)
    losses = trained(tmp_path / "log", model="lstm_ptb", batch_per_device=4)
    wanted = computed("lstm_ptb", lstm, [(words[:, :-1], words[:, 1:])] * STEPS)
    assert losses == pytest.approx(wanted, rel=1e-5)
