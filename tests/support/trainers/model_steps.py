"""Train each model one step under one strategy: python model_steps.py FOLDER FLAGS...

FLAGS are those of the trainer, but for the model: the processes of one run train one model after
the other, and print `MODEL LOSS` of each. Models have few and small items, classes and blocks, but
layers of all their kinds. FOLDER is for files of the strategy.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins
from dlbench.trainer import engine, flags
from support.trainers.published_models import SMALL_ITEMS

OF_WORDS = ("gpt2_small", "llama31_8b", "mixtral_8x7b")
ITEMS = SMALL_ITEMS | dict.fromkeys(OF_WORDS, (5,)) | {"vit_b16": (32, 48, 3)}
CLASSES = 7
BLOCKS = 2  # of a kind, where a network has many
PLAIN = "--dataset synthetic --optimizer sgd --batch-per-device 2 --steps 1 --log none"


def main(folder, *arguments):
    first = parsed("lenet5", arguments)
    strategy, done = engine.strategy_of(first)(first, "cpu", folder), Path(folder, "done")
    if strategy.serve(done.exists):
        return
    for model in plugins.names(engine.plugin_kind(first.framework, "models")):
        if type(strategy).unsupported(parsed(model, arguments)):
            continue  # as a network without blocks by tensor_parallel
        # In one piece, where another process writes, too.
        sys.stdout.write(f"{model} {trained(parsed(model, arguments), strategy)}\n")
        sys.stdout.flush()
    done.touch()
    strategy.leave()


def parsed(model, arguments):
    return flags.parse(None, [*PLAIN.split(), *arguments, "--model", model])[0]


def trained(spec, strategy):
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    make_small(plugins.load(engine.plugin_kind(spec.framework, "models"), spec.model), spec.model)
    made = plugins.load(spec.framework, "engine").Engine(spec, strategy, None)
    made.build()
    made.begin(0)
    made.trace()
    return made.step(1, 1)


def make_small(native, model):
    """Have a model's file build a network of few items, classes and blocks."""
    native.INPUT_SHAPE = ITEMS[model]
    native.CLASSES = min(CLASSES, native.CLASSES)
    sizes = native.build.keywords["constants"] if hasattr(native, "VARIANTS") else {}
    if "SIZE" in sizes:
        small = {"depth": BLOCKS, "hidden": 64}  # 64 between dense layers, of each expert
        sizes["SIZE"] |= {name: small[name] for name in small if name in sizes["SIZE"]}
    if "N" in sizes:
        sizes["N"] = BLOCKS
    if "BLOCKS_OF_STAGES" in sizes:
        sizes["BLOCKS_OF_STAGES"] = (BLOCKS,) * len(sizes["BLOCKS_OF_STAGES"])


if __name__ == "__main__":
    main(*sys.argv[1:])
