"""Train LeNet-5 for some steps in several ways: python update_steps.py FRAMEWORK FOLDER WAYS

WAYS is JSON: further flags of the trainer, by a name. FOLDER gets NAME.npz of each: the losses, the
learning rates, the type of each number that a checkpoint keeps, and the weights before and after
(`before/PATH`, `after/PATH`).
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer import engine, flags

STEPS, BATCH = 6, 8
PLAIN = f"--model lenet5 --dataset synthetic --batch-per-device {BATCH} --steps {STEPS} --log none"
PLAIN += " --warmup-steps 0"


def main(framework, folder, ways):
    ways = {name: f"--framework {framework} {PLAIN} {more}" for name, more in ways.items()}
    specs = {name: flags.parse(None, words.split())[0] for name, words in ways.items()}
    first = next(iter(specs.values()))
    strategy = engine.strategy_of(first)(first, "cpu")
    for name, spec in specs.items():
        if "keras" in sys.modules:
            sys.modules["keras"].utils.clear_session()
        np.savez(Path(folder, f"{name}.npz"), **trained(framework, spec, strategy))


def trained(framework, spec, strategy):
    made = plugins.load(framework, "engine").Engine(spec, strategy, None)
    made.build()
    kept = {name: places[0] for name, places in made.checkpoint_state().replicated.items()}
    weights = {name: value for name, value in kept.items() if not name.startswith("optimizer/")}
    found = {f"before/{name}": weight.numpy().copy() for name, weight in weights.items()}
    made.begin(0)
    made.trace()
    losses, rates = [], []
    for step in range(1, STEPS + 1):
        losses.append(made.step(step, step))
        rates.append(made.learning_rate)
    found |= {f"after/{name}": weight.numpy() for name, weight in weights.items()}
    types = sorted({str(value.numpy().dtype) for value in kept.values() if len(value.shape)})
    return found | {"losses": losses, "rates": rates, "types": types}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
