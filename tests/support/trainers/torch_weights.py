"""Weights by the names that Keras gives them, and where a torch.nn.Module has each.

Both frameworks' models have their layers of a kind in the same order: that in which they were made.
"""

import collections
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from torch import nn

from dlbench.trainer.pytorch.models import llama, transformers

NUMBERED = re.compile(
    r"(?:conv2d|conv2d_transpose|batch_normalization|layer_normalization|rms_normalization|dense|"
    r"experts)(?:_(\d+))?"
)
KINDS = {
    nn.ConvTranspose2d: "transposed convolution",
    nn.Conv2d: "convolution",
    nn.BatchNorm2d: "normalisation",
    nn.LayerNorm: "normalisation",
    nn.RMSNorm: "scale",
    llama.Experts: "experts",
    transformers.Bias: "bias",
    nn.Linear: "dense",
    nn.Embedding: "embedding",
}
ROLES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "scale": "weight",
    **{name: name for name in ("router", "up", "down")},
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embeddings": "weight",
}
ROLES_OF_LSTM = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "bias": "bias_ih"}


class Place(NamedTuple):
    """Where a module has an array of Keras's."""

    name: str  # of the tensor in the module's state
    to_torch: Callable[[np.ndarray], np.ndarray]
    to_keras: Callable[[np.ndarray], np.ndarray]


def places(module: nn.Module, names: Mapping[str, int]) -> dict[str, Place]:
    """The place of each array of Keras's.

    Args:
        names: in Keras's order, with the number of axes of each.
    """
    layers = collections.defaultdict(dict)
    for name, axes in names.items():
        layer, _, role = name.rpartition("/")
        layers[layer][role] = axes
    theirs, ours = collections.defaultdict(list), collections.defaultdict(list)
    for layer in sorted(layers, key=_order(list(layers))):
        theirs[_kind(layer, layers[layer])].append(layer)
    for kind, form in _forms(module):
        ours[kind].append(form)
    assert theirs.keys() == ours.keys()
    return {
        f"{layer}/{role}": _place(form, kind, role, axes)
        for kind in theirs
        for layer, form in zip(theirs[kind], ours[kind], strict=True)
        for role, axes in layers[layer].items()
    }


def _order(layers: list[str]) -> Callable[[str], tuple[int, int]]:
    """Layers that Keras named have numbers in the order of their making; others come last."""

    def order(layer):
        numbered = NUMBERED.fullmatch(layer)
        return (0, int(numbered[1] or 0)) if numbered else (1, layers.index(layer))

    return order


def _kind(layer: str, roles: Mapping[str, int]) -> str:
    if "recurrent_kernel" in roles:
        return "LSTM"
    if "embeddings" in roles:
        return "embedding"
    if "beta" in roles:
        return "normalisation"
    if len(roles) == 1 and "kernel" not in roles:
        return next(iter(roles))  # bias or scale
    if "router" in roles:
        return "experts"
    if layer.startswith("conv2d_transpose"):
        return "transposed convolution"
    return "convolution" if roles["kernel"] == 4 else "dense"


def _forms(module: nn.Module) -> Iterator[tuple[str, str]]:
    """The kind of each layer of a module, and the form of its tensors' names."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.LSTM):
            for number in range(layer.num_layers):
                yield "LSTM", f"{name}.{{}}_l{number}"
        for of, kind in KINDS.items():
            if isinstance(layer, of):
                yield kind, f"{name}.{{}}"


def _place(form: str, kind: str, role: str, axes: int) -> Place:
    roles = ROLES_OF_LSTM if kind == "LSTM" else ROLES
    name = form.format(roles[role])
    if axes == 4:  # (height, width, inputs, outputs), of transposed ones (.., outputs, inputs)
        return Place(name, lambda a: a.transpose(3, 2, 0, 1), lambda a: a.transpose(2, 3, 1, 0))
    if axes == 2 and role not in ("embeddings", "router"):
        return Place(name, np.transpose, np.transpose)
    return Place(name, np.asarray, np.asarray)
