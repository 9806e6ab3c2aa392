"""Train models for some steps from given weights: python parity_steps.py FRAMEWORK FOLDER CASE...

The cases are all of float64 or none is, for that sets up the framework. FOLDER has a folder for
each, by its name. There weights.npz has the weights at the start, by the names that Keras gives
them; the framework that comes first, one that has Keras, writes its own there. Losses, learning
rates and the dtypes of all arrays in a checkpoint go to FRAMEWORK.json, the weights at the end to
FRAMEWORK.npz.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer import engine, flags, updates

STEPS = 20
BATCH = 4
RATE = 1 / 128  # the same number in float32 and float64
OPTIMIZERS = ("sgd", "momentum")
NORM, DECAY = 1 / 16, 64.0


class Case(NamedTuple):
    """A model and how it is trained; its name is that of a folder."""

    model: str
    optimizer: str
    learning_rate: float
    precision: str = "float32"
    word: str = ""
    flags: str = ""

    @property
    def name(self):
        parts = (self.model, self.optimizer, self.precision, self.word)
        return "-".join(filter(None, parts))

    def spec(self, framework):
        text = f"--framework {framework} --model {self.model} --optimizer {self.optimizer}"
        text += f" --learning-rate {self.learning_rate} --dataset synthetic --log none"
        text += f" --batch-per-device {BATCH} --steps {STEPS} --warmup-steps 0 {self.flags}"
        return flags.parse(None, text.split())[0]


CASES = {
    case.name: case
    for case in (
        *(Case("lenet5", how, RATE) for how in OPTIMIZERS),
        *(Case("lstm_ptb", how, RATE) for how in OPTIMIZERS),
        *(Case(model, "momentum", RATE) for model in ("gpt_tiny", "vit_tiny")),
        *(Case(model, "momentum", RATE) for model in ("llama_tiny", "mixtral_tiny")),
        # Smaller: its rectifiers make much of the last digit, see test_parity.py.
        Case("resnet20", "momentum", RATE / 32),
        *(Case(model, "momentum", RATE, "float64") for model in ("lenet5", "resnet20")),
        # Whose rates float32 has exactly; those of a cosine it has not.
        Case("lenet5", "sgd", RATE, "float64", "parts", "--accumulate-steps 2 --clip-norm 0.125"),
        Case("lenet5", "adamw", RATE / 8, "float64", "decay", "--weight-decay 0.25"),
        Case("unet", "sgd", RATE),
        # How updates are made.
        Case("lenet5", "sgd", RATE, word="parts", flags="--accumulate-steps 4"),
        Case("lenet5", "sgd", RATE / 8, word="clipped", flags=f"--clip-norm {NORM}"),
        Case("lenet5", "sgd", RATE / 8, word="unclipped", flags="--clip-norm 1e9"),
        # Which has biases that begin with ones.
        Case("lstm_ptb", "adamw", RATE / 8, word="decay", flags=f"--weight-decay {DECAY}"),
        Case(
            "lenet5",
            "adamw",
            RATE / 8,
            "bfloat16",
            "parts",
            "--weight-decay 0.01 --accumulate-steps 2",
        ),
        Case("lstm_ptb", "sgd", 64 * RATE, word="schedule",
             flags="--accumulate-steps 2 --clip-norm 0.125 --learning-rate-warmup-steps 5 "
             "--learning-rate-decay cosine"),
    )
}  # fmt: skip


def main(framework, folder, *names):
    cases = [CASES[name] for name in names]
    spec = cases[0].spec(framework)
    strategy = engine.strategy_of(spec)(spec, "cpu")
    loss = WIDENED[framework]() if cases[0].precision == "float64" else None
    for case in cases:
        place = Path(folder, case.name)
        place.mkdir(exist_ok=True)
        train(framework, case.spec(framework), strategy, loss, place)


def train(framework, spec, strategy, loss, place):
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()  # it numbers the layers of a kind
    made = plugins.load(framework, "engine").Engine(spec, strategy, None)
    if loss:
        made._losses.loss = loss
    made.build()
    variables = {name: places[0] for name, places in made.checkpoint_state().replicated.items()}
    weights = {name: v for name, v in variables.items() if not name.startswith("optimizer/")}
    start = place / "weights.npz"
    if start.exists():
        given = dict(np.load(start))
        if framework == "pytorch":
            weights = named_by_keras(made, weights, given)
        assert set(given) == set(weights)
        for name, variable in weights.items():
            variable.assign(given[name])
    else:
        np.savez(start, **{name: variable.numpy() for name, variable in weights.items()})
    made.begin(0)
    made.trace()
    found = {"losses": [], "rates": []}
    for number in range(1, STEPS + 1):
        found["losses"].append(made.step(number, number))
        found["rates"].append(float(made.learning_rate))
    found["types"] = sorted({str(v.numpy().dtype) for v in variables.values() if len(v.shape)})
    (place / f"{framework}.json").write_text(json.dumps(found))
    end = {name: variable.numpy() for name, variable in weights.items()}
    np.savez(place / f"{framework}.npz", **end)


def named_by_keras(made, weights, given):
    """The weights of a module by Keras's names, each with its axes in Keras's order."""
    from support.trainers.torch_weights import places

    where = places(made._step.model, {name: array.ndim for name, array in given.items()})
    assert sorted(place.name for place in where.values()) == sorted(weights)
    return {name: Turned(weights[place.name], place) for name, place in where.items()}


class Turned:
    """A variable of PyTorch's as Keras has it."""

    def __init__(self, variable, place):
        self._variable, self._place = variable, place

    def numpy(self):
        return self._place.to_keras(self._variable.numpy())

    def assign(self, value):
        self._variable.assign(self._place.to_torch(value))


def widen():
    """Have Adam compute alike: its epsilon, which PyTorch adds elsewhere, with no part in it."""
    updates.BETAS, updates.EPSILON = (7 / 8, 31 / 32), 1e-30


def widen_keras():
    """Have Keras's layers compute in float64, which is no precision of ours. Returns the loss."""
    import keras

    from dlbench.trainer.keras import building

    widen()
    building.MOMENTUM = 7 / 8  # TensorFlow makes it float32 first
    building.set_policy = lambda spec: keras.config.set_dtype_policy("float64")

    def loss(targets, logits):
        each = keras.ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return keras.ops.mean(each)

    return loss


def widen_jax():
    import jax
    from keras.src.backend.common import dtypes

    jax.config.update("jax_enable_x64", True)
    # Else some of its functions narrow float64, as JAX does where it is not enabled.
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
    return widen_keras()


def widen_torch():
    import torch

    from dlbench.trainer.pytorch import building
    from dlbench.trainer.pytorch.step import LOSSES

    widen()
    torch.set_default_dtype(torch.float64)
    building.MOMENTUM = 7 / 8
    losses = LOSSES["classification"]
    losses.scaled = lambda images, scaled=losses.scaled: torch.as_tensor(scaled(images)).double()
    return lambda labels, logits: torch.nn.functional.cross_entropy(logits, labels.long())


WIDENED = {"tensorflow": widen_keras, "jax": widen_jax, "pytorch": widen_torch}


if __name__ == "__main__":
    main(*sys.argv[1:])
