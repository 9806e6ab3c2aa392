"""Train LeNet-5 for some steps with several sets of flags.

    python update_steps.py FRAMEWORK FOLDER FLAGS

FLAGS is JSON: {NAME: further flags of the trainer}. FOLDER gets NAME.npz for each: the losses, the
learning rates, the dtypes of all arrays in a checkpoint, and the weights before and after
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


def main(framework, folder, flags_by_name):
    specs = {
        name: flags.parse(None, f"--framework {framework} {PLAIN} {more}".split())[0]
        for name, more in flags_by_name.items()
    }
    first = next(iter(specs.values()))
    strategy = engine.strategy_of(first)(first, "cpu")
    for name, spec in specs.items():
        if "keras" in sys.modules:
            sys.modules["keras"].utils.clear_session()
        np.savez(Path(folder, f"{name}.npz"), **trained(framework, spec, strategy))


def trained(framework, spec, strategy):
    made = plugins.load(framework, "engine").Engine(spec, strategy, None)
    made.build()
    state = {name: places[0] for name, places in made.checkpoint_state().replicated.items()}
    weights = {name: value for name, value in state.items() if not name.startswith("optimizer/")}
    arrays = {f"before/{name}": weight.numpy().copy() for name, weight in weights.items()}
    made.begin(0)
    made.trace()
    losses, rates = [], []
    for step in range(1, STEPS + 1):
        losses.append(made.step(step, step))
        rates.append(made.learning_rate)
    arrays |= {f"after/{name}": weight.numpy() for name, weight in weights.items()}
    types = sorted({str(value.numpy().dtype) for value in state.values() if len(value.shape)})
    return arrays | {"losses": losses, "rates": rates, "types": types}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
