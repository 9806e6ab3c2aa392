"""FLOPs of a PyTorch model for one item, by rules for PyTorch's operations; attention's kernel.

- A copy of the model on the device `meta`, whose tensors have shapes and no values, is called on
  such an item. PyTorch decomposes all layers into few operations, and these are counted.
- An operation that is not PyTorch's own, or that hides products, has no rule.
- Calls of scaled_dot_product_attention are noted meanwhile, but none inside of a function of
  PyTorch, as that of torch.nn.MultiheadAttention. That function asks _fused_sdp_choice for its
  kernel. Asked with the run's batch, dtype, layout and mask on its device, and with gradient if the
  run takes gradients, it gives the kernel that the steps run. Arguments are allocated for that and
  not computed with. Dropout counts as in an evaluation, in which the model is called; our models
  have none.
"""

import copy
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dlbench.trainer import model_flops
from dlbench.trainer.model_flops import ModelFlops, Tally
from dlbench.trainer.pytorch import building
from dlbench.trainer.pytorch.step import AUTOCAST
from dlbench.trainer.strategy import Spec

OWN = ("aten", "prim")  # PyTorch's namespaces
# Prefixes of operations that are not elementwise and have no rule. A layer with a fused kernel is
# decomposed if its weights require gradients, as here.
NO_RULE = (
    *("linalg_", "_linalg", "fft_", "_fft", "_cdist", "_trilinear", "cholesky", "triangular"),
    *("_transformer_encoder", "_native_multi_head", "mkldnn_rnn", "_cudnn_rnn", "miopen_rnn"),
    *("_thnn_fused", "_scaled_mm", "_int_mm", "_weight_int", "_sparse", "sparse_", "addr", "ger"),
    "addbmm",
)
ATTENTION = "_scaled_dot_product"
# The call is a built-in function, which has no signature that Python can read.
SIGNATURE = inspect.signature(
    lambda query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_: None
)


def count(
    model: nn.Module, item_shape: tuple[int, ...], calls: list[dict[str, Any]] | None = None
) -> ModelFlops:
    """The work of a model's forward pass for an item of a shape, channels last.

    The arguments of each call of scaled_dot_product_attention are added to `calls`, by name.
    """
    tally = Tally()
    try:
        item = torch.empty((1, *item_shape), device="meta")
        item = item.long() if len(item_shape) == 1 else building.channels_first(item)
        with torch.device("meta"), torch.enable_grad():
            without_values = _copy(model).train(False)
            places = _Places(without_values)
            with _Operations(tally, places), _Attention(tally, places, calls):
                without_values(item)
    except Exception as error:  # anything that the model's code may raise for a meta tensor
        tally.add_unknown("the model", f"{type(error).__name__}: {error}")
    return tally.total()


def _copy(model):
    """The model on the device `meta`."""
    arrays: dict[int, torch.Tensor] = {}
    for weight in model.parameters():
        empty = torch.empty_like(weight, device="meta")
        arrays[id(weight)] = nn.Parameter(empty, requires_grad=weight.requires_grad)
    for buffer in model.buffers():
        arrays[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(model, arrays)


class _Places:
    """A stack of the layers that are being called."""

    def __init__(self, model: nn.Module):
        self._names: list[str] = []
        self._recomputing = 0  # layers of those that are being called
        for name, module in model.named_modules():
            label = f"{name or 'the model'} ({type(module).__name__})"
            module.register_forward_pre_hook(functools.partial(self._enter, label))
            module.register_forward_hook(self._leave)

    def here(self) -> str:
        return self._names[-1] if self._names else "the model"

    def recomputed(self) -> bool:
        """Whether the backward pass computes the present layer once more."""
        return self._recomputing > 0

    def _enter(self, label: str, module: nn.Module, *_: Any) -> None:
        self._names.append(label)
        self._recomputing += getattr(module, "recomputes", False)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        self._names.pop()
        self._recomputing -= getattr(module, "recomputes", False)


class _Operations(TorchDispatchMode):
    """Counts the operations into which layers are decomposed."""

    def __init__(self, tally: Tally, places: _Places):
        super().__init__()
        self._tally, self._places = tally, places

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        namespace, _, name = operation.name().partition(".")[0].partition("::")
        rule = RULES.get(name.rstrip("_"))
        if namespace not in OWN or name.startswith(NO_RULE):
            self._tally.add_unknown(
                self._places.here(), f"there is no rule for {namespace}::{name}"
            )
        elif name.startswith(ATTENTION):
            _count_attention(self._tally, *args[:3], self._places.recomputed())
        elif rule:
            factors = [args[number] for number in FACTORS.get(name.rstrip("_"), (0, 1))]
            values = sum(factor.numel() for factor in factors if not _is_weight(factor))
            multiply_adds, all_values = rule(result, args, *factors), values + result.numel()
            self._tally.add(multiply_adds, all_values, recomputed=self._places.recomputed())
        return result


class _Attention(TorchFunctionMode):
    """Counts attention as one operation, which PyTorch would decompose on the device `meta`."""

    def __init__(self, tally: Tally, places: _Places, calls: list[dict[str, Any]] | None):
        super().__init__()
        self._tally, self._places, self._calls = tally, places, calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not nn.functional.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        bound = SIGNATURE.bind(*args, **(kwargs or {}))
        bound.apply_defaults()
        call = bound.arguments | bound.arguments.pop("_")
        if self._calls is not None:
            self._calls.append(call)
        query, key, value = (call[name] for name in ("query", "key", "value"))
        _count_attention(self._tally, query, key, value, self._places.recomputed())
        return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _count_attention(tally, query, key, value, recomputed):
    """Add attention over arrays of shape (..., heads, positions, width)."""
    *batch, heads, queries, width = query.shape
    keys, value_width = value.shape[-2:]
    result = math.prod(query.shape[:-1]) * value_width
    tally.add(
        model_flops.attention(math.prod(batch), heads, queries, keys, width, value_width),
        query.numel() + key.numel() + value.numel() + result,
        recomputed=recomputed,
    )


def _is_weight(array):
    """Whether an array is a weight, or a view of one such as its transpose."""
    base = array._base if array._is_view() else array
    return isinstance(base, nn.Parameter)


def _product(result, _args, first, _second):
    return result.numel() * first.shape[-1]


def _of_vector(_result, _args, first, _second):
    return first.numel()


def _convolution(result, args, inputs, weight):
    transposed = args[6]
    return (inputs if transposed else result).numel() * weight.numel() // weight.shape[0]


# The positions of the factors among the arguments, if they are not the first two.
FACTORS = dict.fromkeys(("addmm", "baddbmm", "addmv"), (1, 2))
# Multiply-adds by (result, arguments, the two factors).
RULES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "_grouped_mm"), _product),
    **dict.fromkeys(("mv", "addmv", "dot", "vdot"), _of_vector),
    "convolution": _convolution,
}


def attention_kernel(call: dict[str, Any], spec: Spec, device: torch.device) -> str:
    """The name of a call, as `count` noted it, and that of the kernel that PyTorch chooses for it.

    The blocks of a model are alike: the kernel of one call is that of all.
    """
    batch = spec.batch_per_device // spec.accumulate_steps
    dtype = AUTOCAST.get(spec.precision, torch.float32)

    def like(tensor):
        """A tensor of the run's batch with the layout of one for one item."""
        shape = (batch * tensor.shape[0], *tensor.shape[1:])
        last = sum((size - 1) * step for size, step in zip(shape, tensor.stride(), strict=True))
        learns = spec.mode != "forward"
        storage = torch.empty(last + 1, dtype=dtype, device=device, requires_grad=learns)
        return storage.as_strided(shape, tensor.stride())

    def mask_like(mask, query):
        per_item = mask.ndim == query.ndim and mask.shape[0] == query.shape[0] != 1
        shape = (batch * mask.shape[0], *mask.shape[1:]) if per_item else tuple(mask.shape)
        return torch.empty(
            shape, dtype=torch.bool if mask.dtype == torch.bool else dtype, device=device
        )

    others = dict(call)
    tensors = [like(others.pop(name)) for name in ("query", "key", "value")]
    if (mask := call["attn_mask"]) is not None:
        others["attn_mask"] = mask_like(mask, call["query"])
    chosen = nn.attention.SDPBackend(torch._fused_sdp_choice(*tensors, **others))
    return f"scaled_dot_product_attention: {chosen.name.lower()}"
