"""The small LSTM language model, as in trainer/keras/models/recurrent/lstm_ptb.py."""

from torch import nn

from dlbench.trainer.pytorch.layers import initial, recurrent

TASK = "language"
INPUT_SHAPE = (20,)
CLASSES = 10_000
UNITS = 200


def build(input_shape: tuple[int, ...] = INPUT_SHAPE, classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(
        initial.layer(nn.Embedding, classes, UNITS, initializer=_uniform),
        recurrent.LSTM(UNITS, UNITS, layers=2),
        initial.dense(UNITS, classes),
    )


def _uniform(weight):
    nn.init.uniform_(weight, -0.05, 0.05)
