"""Train models for some steps from given weights: python parity_steps.py FRAMEWORK FOLDER CASE...

FOLDER has a folder for each case, by its name. There weights.npz has the weights at the start, by
name; the framework that comes first writes its own there. The losses go to FRAMEWORK.json, the
weights at the end to FRAMEWORK.npz.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer import engine, flags

STEPS = 20
BATCH = 8
OPTIMIZERS = ("sgd", "momentum")


class Case(NamedTuple):
    """A model and how it is trained; its name is that of a folder."""

    model: str
    optimizer: str
    learning_rate: float
    precision: str = "float32"

    @property
    def name(self):
        return f"{self.model}-{self.optimizer}-{self.precision}"

    def spec(self, framework):
        """The fields of the run, as flags give them."""
        words = f"--framework {framework} --model {self.model} --optimizer {self.optimizer}"
        words += f" --learning-rate {self.learning_rate} --dataset synthetic --log none"
        words += f" --batch-per-device {BATCH} --steps {STEPS} --warmup-steps 0"
        return flags.parse(None, words.split())[0]


CASES = {
    case.name: case
    for case in (
        *(Case("lenet5", how, 0.01) for how in OPTIMIZERS),
        *(Case("lstm_ptb", how, 0.01) for how in OPTIMIZERS),
        # Smaller: its rectifiers make much of the last digit, see test_parity.py.
        *(Case("resnet20", how, 0.001) for how in OPTIMIZERS),
        # Last, for it changes the framework for good.
        *(Case(model, "momentum", 0.01, "float64") for model in ("lenet5", "resnet20", "lstm_ptb")),
    )
}


def main(framework, folder, *names):
    strategy = None
    for case in map(CASES.__getitem__, names):
        spec = case.spec(framework)
        strategy = strategy or engine.strategy_of(spec)(spec, "cpu")  # once a process
        place = Path(folder, case.name)
        place.mkdir(exist_ok=True)
        train(framework, spec, strategy, case.precision == "float64", place)


def train(framework, spec, strategy, wide, place):
    losses_in_64_bits = WIDENED[framework]() if wide else None
    made = plugins.load(framework, "engine").Engine(spec, strategy, None)
    if losses_in_64_bits:
        made._losses.loss = losses_in_64_bits
    made.build()
    variables = {name: places[0] for name, places in made.kept().common.items()}
    weights = {name: v for name, v in variables.items() if not name.startswith("optimizer/")}
    start = place / "weights.npz"
    if start.exists():
        given = np.load(start)
        assert set(given.files) == set(weights)
        for name, variable in weights.items():
            variable.assign(given[name])
    else:
        np.savez(start, **{name: variable.numpy() for name, variable in weights.items()})
    made.begin(0)
    made.trace()
    losses = [made.step(number, number) for number in range(1, STEPS + 1)]
    (place / f"{framework}.json").write_text(json.dumps(losses))
    end = {name: variable.numpy() for name, variable in weights.items()}
    np.savez(place / f"{framework}.npz", **end)


def widen_keras():
    """Have Keras's layers compute in float64, which is no precision of ours. Returns the loss."""
    import keras

    from dlbench.trainer.keras import building

    building.set_policy = lambda spec: keras.config.set_dtype_policy("float64")

    def loss(targets, logits):
        each = keras.ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return keras.ops.mean(each)

    return loss


def widen_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    return widen_keras()


WIDENED = {"tensorflow": widen_keras, "jax": widen_jax}


if __name__ == "__main__":
    main(*sys.argv[1:])
