"""The small LSTM language model of the Penn Treebank.

- W. Zaremba, I. Sutskever and O. Vinyals (2014). Recurrent neural network
  regularization. arXiv:1409.2329, section 4.1: two layers of 200 units, windows
  of 20 words, 10 000 words, no dropout.
- Each window begins from a zero state; in the paper the state goes on from the
  window before.
- 4 651 600 parameters: 2 000 000 of the embedding, 320 800 of each LSTM layer
  (one bias a gate), 2 010 000 of the output.
"""

import keras
from keras import layers

TASK = "language"
INPUT_SHAPE = (20,)
CLASSES = 10_000
UNITS = 200


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="int32"),
            layers.Embedding(classes, UNITS, name="words"),
            layers.LSTM(UNITS, return_sequences=True, name="lstm1"),
            layers.LSTM(UNITS, return_sequences=True, name="lstm2"),
            layers.Dense(classes, name="logits"),
        ],
        name="lstm_ptb",
    )
