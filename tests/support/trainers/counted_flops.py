"""What a framework counts of models: python counted_flops.py FRAMEWORK MODEL[:recompute]...

It prints, as JSON, for each model FLOPs and values of one item by our rules, and of PyTorch
`theirs`: FLOPs by its own counter.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins


def main(framework, *names):
    counted = {"tensorflow": by_keras, "pytorch": by_pytorch}[framework]
    print(json.dumps({name: counted(name) for name in names}))


def by_keras(name):
    from dlbench.trainer.keras import flops
    from support.trainers.unmade_weights import built

    return flops.count(*built(name))._asdict()


def by_pytorch(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from dlbench.trainer.pytorch import flops

    name, _, recompute = name.partition(":")
    native = plugins.load("pytorch/models", name)
    with torch.device("meta"):  # weights would take gigabytes
        model = native.build(
            native.INPUT_SHAPE, native.CLASSES, **{"recompute": True} if recompute else {}
        )
        counted = flops.count(model, native.INPUT_SHAPE)
        height, *channels = native.INPUT_SHAPE
        shape = (1, channels[-1], height, *channels[:-1]) if channels else (1, height)
        item = torch.zeros(shape, dtype=torch.float32 if channels else torch.long)
        # Each row has one of the matrices; PyTorch's counter does not know this product.
        grouped = {torch.ops.aten._grouped_mm: lambda a, b, *_, **__: 2 * math.prod(a) * b[-1]}
        with FlopCounterMode(display=False, custom_mapping=grouped) as counter:
            model.eval()(item)
    return {**counted._asdict(), "theirs": counter.get_total_flops()}


if __name__ == "__main__":
    main(*sys.argv[1:])
