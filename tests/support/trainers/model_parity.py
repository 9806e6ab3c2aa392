"""What frameworks make of one model: python model_parity.py FRAMEWORK FOLDER MODEL...

TensorFlow comes first. For each model it writes to FOLDER/MODEL.npz its weights at the beginning
that are no matrices, `logits` of random weights, and to FOLDER/MODEL.json names and axes of
its weights, and its settings. PyTorch reads these, gives its module the same random weights, and
writes the same to pytorch-MODEL.npz and pytorch-MODEL.json, by Keras's names.
"""

import json
import math
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "workflow_scripts"))

from dlbench.common import plugins
from support.trainers.published_models import SMALL_ITEMS

BATCH = 2
OF_WORDS = ("language", "masked_language")
CLASSES = 7
MANY = 2000  # numbers, whose deviation says how they are spread


def main(framework, folder, *names):
    for name in names:
        {"tensorflow": keras_model, "pytorch": torch_model}[framework](Path(folder), name)


def loaded(folder, name):
    """A model's file; of twelve blocks that are alike there are two, for all take gigabytes."""
    native = plugins.load(folder, name)
    if name == "bert_base":
        native.build.keywords["constants"]["SIZE"]["depth"] = 2
    return native


def keras_model(folder, name):
    import keras

    keras.utils.clear_session()  # it numbers the layers of a kind
    keras.utils.set_random_seed(1)
    native = loaded("keras/models", name)
    model = native.build(SMALL_ITEMS[name], classes_of(native))
    layers = model.layers
    facts = {
        "axes": {v.path: len(v.shape) for v in model.variables if "seed" not in v.path},
        "shapes": {v.path: list(v.shape) for v in model.variables if "seed" not in v.path},
        "trained": sum(math.prod(v.shape) for v in model.trainable_variables),
        "dropout": [x.rate for x in layers if isinstance(x, keras.layers.Dropout)],
        "moments": [
            [layer.momentum, layer.epsilon]
            for layer in layers
            if isinstance(layer, keras.layers.BatchNormalization)
        ],
    }
    variables = {v.path: v for v in model.variables if v.path in facts["axes"]}
    beginning = {path: v.numpy() for path, v in variables.items()}
    for path, variable in variables.items():
        variable.assign(random_weight(path, variable.shape))
    logits = np.asarray(model(random_items(native, name), training=False))
    write(folder / name, facts, beginning, logits)


def torch_model(folder, name):
    import torch

    from dlbench.trainer.pytorch import building
    from support.trainers.torch_weights import places

    torch.manual_seed(1)
    native = loaded("pytorch/models", name)
    model = native.build(SMALL_ITEMS[name], classes_of(native)).eval()
    theirs = json.loads((folder / f"{name}.json").read_text())
    state = dict(building.named_weights(model))
    where = places(model, theirs["axes"])
    assert sorted(place.name for place in where.values()) == sorted(state)
    facts = {
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "dropout": [x.p for x in model.modules() if isinstance(x, torch.nn.Dropout)],
        "moments": [
            [1 - x.momentum, x.eps] for x in model.modules() if isinstance(x, torch.nn.BatchNorm2d)
        ],
    }
    beginning = {
        path: place.to_keras(state[place.name].detach().numpy().copy())
        for path, place in where.items()
    }
    with torch.no_grad():
        for path, place in where.items():
            weight = random_weight(path, theirs["shapes"][path])
            state[place.name].copy_(torch.from_numpy(place.to_torch(weight).copy()))
            assert (place.to_keras(state[place.name].numpy()) == weight).all()
        items = torch.from_numpy(random_items(native, name))
        if items.ndim == 4:
            model = model.to(memory_format=torch.channels_last)
            items = items.permute(0, 3, 1, 2)
        logits = model(items)
    if logits.ndim == 4:
        logits = logits.permute(0, 2, 3, 1)
    write(folder / f"pytorch-{name}", facts, beginning, logits.numpy())


def write(place, facts, beginning, logits):
    vectors = {path: array for path, array in beginning.items() if array.ndim == 1}
    np.savez(f"{place}.npz", logits=logits, **vectors)
    matrices = {path: spread(path, array) for path, array in beginning.items() if array.ndim > 1}
    Path(f"{place}.json").write_text(json.dumps({**facts, "beginning": matrices}))


def spread(path, array):
    """How the first weights of a layer are spread: [deviation, largest], None where they are few.

    Those of recurrent weights are their singular values, the least and the largest.
    """
    if path.endswith("recurrent_kernel"):
        values = np.linalg.svd(array, compute_uv=False)
        return [float(values.min()), float(values.max())]
    return [float(array.std()), float(abs(array).max())] if array.size >= MANY else None


def random_weight(path, shape):
    """Weights with which all layers matter; the same in every process."""
    random = np.random.default_rng(zlib.crc32(path.encode()))
    role = path.rpartition("/")[2]
    if role in ("gamma", "scale", "moving_variance"):
        return random.uniform(0.5, 1.5, shape).astype("f4")
    fan_in = math.prod(shape[:-1]) if role.endswith("kernel") else 100
    return random.standard_normal(shape, "f4") * np.float32(math.sqrt(2 / fan_in))


def random_items(native, name):
    random = np.random.default_rng(3)
    shape = (BATCH, *SMALL_ITEMS[name])
    if native.TASK in OF_WORDS:
        return random.integers(0, classes_of(native), shape, "int32")
    return random.uniform(-1, 1, shape).astype("f4")


def classes_of(native):
    return {"segmentation": 1, **dict.fromkeys(OF_WORDS, 30)}.get(native.TASK, CLASSES)


if __name__ == "__main__":
    main(*sys.argv[1:])
