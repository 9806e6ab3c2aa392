"""What a framework counts of models: python counted_flops.py FRAMEWORK MODEL[:recompute]...

It prints, as JSON, for each model FLOPs and values of one item by our rules, the seconds that this
took, and `theirs`: FLOPs by the framework's own counter, of JAX for LITTLE_PADDED only.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins

# XLA leaves out what multiplies zeros of padding, which we count (8 % of AlexNet), takes one turn
# of a loop for all (LSTM), and adds what goes one by one.
LITTLE_PADDED = ("lenet5", "cnn12", "vgg16", "resnet50_v1_5", "resnet152", "inception_v3", "unet")


def main(framework, *names):
    counted = {"tensorflow": by_keras, "jax": by_jax, "pytorch": by_pytorch}[framework]
    print(json.dumps({name: counted(name) for name in names}))


def by_keras(name):
    from dlbench.trainer.keras import flops
    from support.trainers.unmade_weights import unmade_weights

    name, _, recompute = name.partition(":")
    native = plugins.load("keras/models", name)
    with unmade_weights():
        model = native.build(**{"recompute": True} if recompute else {})
    return timed(flops.count, model, native.INPUT_SHAPE)


def by_jax(name):
    import jax

    from support.trainers.unmade_weights import unmade_weights

    counted = by_keras(name)
    if name not in LITTLE_PADDED:
        return counted
    native = plugins.load("keras/models", name)
    with unmade_weights():
        model = native.build()
    weights = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in model.trainable_variables]
    others = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in model.non_trainable_variables]
    item = jax.ShapeDtypeStruct((1, *native.INPUT_SHAPE), model.inputs[0].dtype)
    call = jax.jit(lambda w, o, x: model.stateless_call(w, o, x, training=False)[0])
    analysis = call.lower(weights, others, item).cost_analysis()
    return {**counted, "theirs": analysis["flops"]}


def by_pytorch(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from dlbench.trainer.pytorch import flops

    name, _, recompute = name.partition(":")
    native = plugins.load("pytorch/models", name)
    with torch.device("meta"):  # weights would take gigabytes
        model = native.build(**{"recompute": True} if recompute else {})
        counted = timed(flops.count, model, native.INPUT_SHAPE)
        height, *channels = native.INPUT_SHAPE
        shape = (1, channels[-1], height, *channels[:-1]) if channels else (1, height)
        item = torch.zeros(shape, dtype=torch.float32 if channels else torch.long)
        with FlopCounterMode(display=False) as counter:
            model.eval()(item)
    return {**counted, "theirs": counter.get_total_flops()}


def timed(count, model, shape):
    begin = time.perf_counter()
    counted = count(model, shape)
    return {**counted._asdict(), "seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    if sys.argv[1] == "jax":
        os.environ["KERAS_BACKEND"] = "jax"
    main(*sys.argv[1:])
