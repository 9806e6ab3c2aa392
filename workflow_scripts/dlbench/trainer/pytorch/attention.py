"""The kernel that computes a model's attention in a run, asked of PyTorch before the first step.

- `Noted` notes the first call of scaled_dot_product_attention while an item passes the model; the
  blocks of a model are alike. flops.py passes one on the device `meta`, so nothing is computed. It
  does not see a call inside of a function of PyTorch, as that of torch.nn.MultiheadAttention.
- scaled_dot_product_attention asks _fused_sdp_choice for its kernel. Asked with the run's batch,
  dtype, layout and mask on its device, and with gradient if the run takes gradients, it gives the
  kernel that the steps run. Arguments are allocated for that and not computed with.
- Dropout counts as in an evaluation, in which `flops.py` calls the model. Our models have none.
"""

import inspect
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# The call is a built-in function, which has no signature that Python can read.
SIGNATURE = inspect.signature(
    lambda query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_: None
)


class Noted(TorchFunctionMode):
    """Notes the arguments of the first call of scaled_dot_product_attention.

    Attributes:
        first: the arguments by name; None before a call.
    """

    first: dict[str, Any] | None = None

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is functional.scaled_dot_product_attention and self.first is None:
            bound = SIGNATURE.bind(*args, **(kwargs or {}))
            bound.apply_defaults()
            further = bound.arguments.pop("_")
            self.first = {**bound.arguments, **further}
        return function(*args, **(kwargs or {}))


class How(NamedTuple):
    """What the kernel depends on, beside the call.

    Attributes:
        batch: items of a call.
        dtype: in which attention computes.
        learns: whether the run takes gradients.
        device: of this process.
    """

    batch: int
    dtype: torch.dtype
    learns: bool
    device: torch.device


def kernel(call: dict[str, Any], how: How) -> str:
    """The name of the call and that of the kernel that PyTorch chooses for it.

    Args:
        call: the arguments for one item, as Noted has them.
    """
    others = dict(call)
    tensors = [_like(others.pop(name), how) for name in ("query", "key", "value")]
    mask = others.pop("attn_mask")
    others["attn_mask"] = mask if mask is None else _mask_like(mask, call["query"], how)
    chosen = nn.attention.SDPBackend(torch._fused_sdp_choice(*tensors, **others))
    return f"scaled_dot_product_attention: {chosen.name.lower()}"


def _like(tensor, how):
    """A tensor of the run's batch with the layout of one for one item; its values are random."""
    shape = (how.batch * tensor.shape[0], *tensor.shape[1:])
    last = sum((size - 1) * step for size, step in zip(shape, tensor.stride(), strict=True))
    storage = torch.empty(last + 1, dtype=how.dtype, device=how.device, requires_grad=how.learns)
    return storage.as_strided(shape, tensor.stride())


def _mask_like(mask, query, how):
    dtype = mask.dtype if mask.dtype == torch.bool else how.dtype
    per_item = mask.ndim == query.ndim and mask.shape[0] == query.shape[0] != 1
    shape = (how.batch * mask.shape[0], *mask.shape[1:]) if per_item else tuple(mask.shape)
    return torch.empty(shape, dtype=dtype, device=how.device)
