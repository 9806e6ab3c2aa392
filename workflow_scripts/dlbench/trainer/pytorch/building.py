"""The model of a run and its optimizer.

- The model must accept the run's items and return the logits of its task.
- Weights and items have the memory format channels_last, which PyTorch's documentation recommends
  for convolutions.
- The blocks of a model are the modules that it repeats, such as the layers of a transformer: the
  members of a torch.nn.ModuleList if all have one class and several layers with weights. So those
  of users' models are found, too.
"""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dlbench import Error
from dlbench.common import terminal
from dlbench.trainer import engine, updates
from dlbench.trainer.reading.converted import Source
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Task

# Keras's defaults, where they differ from PyTorch's.
MOMENTUM = 0.9
RMSPROP_DECAY = 0.9
INITIAL_SCALE = 2.0**15


def build_model(
    spec: Spec, model_module: ModuleType, task: Task, source: Source, device: torch.device
) -> nn.Module:
    """Build the model of a run on a device, and check the shapes of its inputs and outputs."""
    model = engine.build_checked(spec, model_module, source, nn.Module, "torch.nn.Module")
    model = model.to(device, memory_format=torch.channels_last)
    _check_shapes(model, spec, model_module.TASK, task, source, device)
    return model


def named_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a model's state: parameters, then buffers."""
    yield from model.named_parameters()
    saved = model.state_dict(keep_vars=True)
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in saved)


def make_optimizer(
    spec: Spec, parameters: Iterable[nn.Parameter], sharded: bool = False
) -> torch.optim.Optimizer:
    """The optimizer of a run, with a fused kernel for all weights if PyTorch has one.

    For weights that are sharded over the devices it has those of Adam and AdamW only; the other
    optimizers use foreach.
    """
    weights: list[Any] = list(parameters)
    fused, foreach = (None, True) if sharded else (True, None)  # None: as PyTorch chooses
    sgd = {"fused": fused, "foreach": foreach}
    rmsprop = {"alpha": RMSPROP_DECAY, "eps": updates.EPSILON, "foreach": foreach}
    adam = {"betas": updates.BETAS, "eps": updates.EPSILON, "fused": True}
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "sgd": (torch.optim.SGD, sgd),
        "momentum": (torch.optim.SGD, {"momentum": MOMENTUM, **sgd}),
        "rmsprop": (torch.optim.RMSprop, rmsprop),
        "adam": (torch.optim.Adam, adam),
        "adamw": (torch.optim.AdamW, {"weight_decay": spec.weight_decay, **adam}),
    }
    kind, settings = kinds[spec.optimizer]
    if spec.weight_decay:
        decaying = [weight for weight in weights if updates.decays(weight.ndim)]
        others = [weight for weight in weights if not updates.decays(weight.ndim)]
        weights = [{"params": decaying}, {"params": others, "weight_decay": 0.0}]
    return kind(weights, spec.learning_rate, **settings)


def initialize_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the optimizer's state of each weight, all zeros, which PyTorch does in the first step.

    So a checkpoint can restore it before the first step.
    """
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # otherwise weights would decay; each step sets its own
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()  # changes no weight: gradients are zero
    optimizer.zero_grad()
    for state in optimizer.state.values():
        for tensor in state.values():
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()


def _check_shapes(model, spec, task_name, task, source, device):
    """Check that a model accepts one item of a source, and returns the logits of its task."""
    where = f"models/{spec.model}.py: build"
    is_text = len(source.item_shape) == 1
    item = torch.zeros((1, *source.item_shape), device=device)
    try:
        with torch.no_grad():
            logits = model.train(False)(item.long() if is_text else channels_first(item))
    except RuntimeError as error:
        raise Error(
            f"{where}: expected a model that takes one item of {spec.dataset}, of shape "
            f"{source.item_shape}: {terminal.message(str(error), 300)}"
        ) from error
    classes = engine.model_classes(spec, source)
    expected = task.logits_shape(source.item_shape, classes)
    returned = f"an object of type {type(logits).__name__}"
    if isinstance(logits, torch.Tensor):
        shape = tuple((logits.permute(0, 2, 3, 1) if logits.ndim == 4 else logits).shape[1:])
        if shape == expected:
            return
        returned = f"{shape}{', with channels last' if logits.ndim == 4 else ''}"
    raise Error(
        f"{where}: expected a model with one output of shape {expected}, the logits of {task_name} "
        f"in {classes} classes; found {returned}"
    )


def channels_first(tensor: torch.Tensor) -> torch.Tensor:
    """(batch, height, width, channels) as (batch, channels, height, width), in the same memory.

    Other shapes stay as they are.
    """
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor


MIN_LAYERS = 2  # with weights, of a block


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, in its order; of nested blocks the outermost ones."""
    blocks: list[nn.Module] = []
    for child in model.children():
        members = list(child) if isinstance(child, nn.ModuleList) else []
        if len({type(member) for member in members}) == 1 and all(map(_is_block, members)):
            blocks += members
        else:
            blocks += find_blocks(child)
    return blocks


def _is_block(module):
    with_weights = (layer for layer in module.modules() if layer._parameters)
    return len(list(with_weights)) >= MIN_LAYERS
