"""Train a model for some steps from given weights: python parity_steps.py FRAMEWORK MODEL FOLDER.

FOLDER/weights.npz has the weights by name; who comes first writes its own there. The losses go to
FOLDER/FRAMEWORK.json, the weights at the end to FOLDER/FRAMEWORK.npz.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer import engine, flags

STEPS = 20


def main(framework, model, folder, optimizer):
    words = f"--framework {framework} --model {model} --dataset synthetic --batch-per-device 16"
    words += f" --optimizer {optimizer} --learning-rate 0.01 --steps {STEPS} --warmup-steps 0"
    spec, _ = flags.parse(None, [*words.split(), "--log", "none"])
    strategy = engine.strategy_of(spec)(spec, "cpu")
    made = plugins.load(framework, "engine").Engine(spec, strategy, None)
    made.build()
    variables = {name: places[0] for name, places in made.kept().common.items()}
    weights = {name: v for name, v in variables.items() if not name.startswith("optimizer/")}
    start = Path(folder, "weights.npz")
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
    Path(folder, f"{framework}.json").write_text(json.dumps(losses))
    end = {name: variable.numpy() for name, variable in weights.items()}
    np.savez(Path(folder, f"{framework}.npz"), **end)


if __name__ == "__main__":
    main(*sys.argv[1:])
