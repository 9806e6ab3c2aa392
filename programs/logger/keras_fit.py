"""Keras' `fit` with the callback for dlbench; lines about it end with `# log`.

python keras_fit.py --steps 60 --batch 64
"""

import argparse

import keras
import numpy as np
from dlbench_keras import DlbenchLog  # log

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

keras.utils.set_random_seed(1)
inputs = np.random.default_rng(1).normal(size=(args.batch * args.steps // 2, 64))
labels = (inputs[:, 0] > 0).astype("int32")
model = keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, metrics=["accuracy"])
model.fit(
    inputs,
    labels,
    batch_size=args.batch,
    epochs=2,
    validation_data=(inputs[:64], labels[:64]),
    callbacks=[DlbenchLog()],  # log
    verbose=0,
)
