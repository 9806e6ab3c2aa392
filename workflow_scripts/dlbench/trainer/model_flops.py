"""FLOPs of a model for one item: what the counts of all frameworks have in common.

- FLOPs: two for each multiply-add of a product of matrices, of a convolution, of attention and of
  a recurrent cell, in the forward pass of one item. Zeros of padding and of masks count as any
  other value: attention is counted whole, causal or not.
- Of a mixture of experts those count that are chosen for a token: the active parameters.
- Left out: elementwise operations, reductions and the like (biases, activations, normalisation,
  pooling, softmax, dropout); look-ups in embeddings; the loss and the optimizer.
- A training step counts as PASSES["train"] forward passes: each product has a gradient with respect
  to each of its two factors, and each gradient is as much work. The gradient of the first layer
  with respect to the items, which is not needed, is counted too. As in A. Chowdhery et al. (2022),
  PaLM: scaling language modeling with pathways, arXiv:2204.02311, appendix B.
- Values: the elements that these products read and write for one item, without weights; each
  product by itself, attention as one product that does not store its scores.
- Layers with an attribute `recomputes` compute their activations again in the backward pass: their
  forward pass is counted once more, separately, because the model itself does not need it. A
  compiler may leave out parts of it.
- Both follow from the shapes of the layers alone; nothing is computed. If a layer has no rule, the
  FLOPs of the whole model are unknown: a partial sum would be taken for the whole.

Each framework's folder has a `flops.py`, which knows its layers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlbench.common import terminal

# By the mode of a run; without a model there is nothing to compute.
PASSES = {"forward": 1, "forward_backward": 3, "train": 3, "input": 0}
MAX_REASONS = 5  # are listed: a model may have a hundred layers of one kind
MAX_CHARACTERS = 120  # of a reason


class ModelFlops(NamedTuple):
    """The work of a model's forward pass for one item; numbers are None if a layer has no rule."""

    forward_per_item: int | None  # FLOPs
    values_per_item: int | None  # elements that its products read and write, without weights
    unknown: list[str]  # layers that have no rule, each with the reason
    recomputed_per_item: int | None = None  # FLOPs that the backward pass repeats


class Tally:
    """Adds up the products of a model's layers for one item."""

    def __init__(self) -> None:
        self._multiply_adds = self._values = self._recomputed = 0
        self._unknown: list[str] = []

    def add(
        self, multiply_adds: int, values: int, times: int = 1, recomputed: bool = False
    ) -> None:
        """Add a product that is computed so many `times`, and reads and writes `values` elements.

        `recomputed`: whether the backward pass computes it once more.
        """
        self._multiply_adds += times * multiply_adds
        self._recomputed += times * multiply_adds * recomputed
        self._values += times * values

    def add_unknown(self, where: str, reason: object) -> None:
        """Record that a layer has no rule, and why."""
        message = f"{where}: {terminal.message(str(reason), MAX_CHARACTERS)}"
        if message not in self._unknown and len(self._unknown) < MAX_REASONS:
            self._unknown.append(message)

    def include(self, other: "Tally", times: int = 1, recomputed: bool = False) -> None:
        """Add all of another tally, so many times; `recomputed`: as in `add`."""
        self.add(other._multiply_adds, other._values, times, recomputed)
        self._recomputed += 0 if recomputed else times * other._recomputed
        self._unknown += [text for text in other._unknown if text not in self._unknown]

    def total(self) -> ModelFlops:
        if self._unknown:
            return ModelFlops(None, None, self._unknown[:MAX_REASONS])
        return ModelFlops(2 * self._multiply_adds, self._values, [], 2 * self._recomputed)


def attention(batch: int, heads: int, queries: int, keys: int, width: int, value_width: int) -> int:
    """Multiply-adds of scaled dot-product attention: the scores, and the weighted sum of values.

    Args:
        queries, keys: numbers of positions.
        width, value_width: elements of a query or a key, and of a value, in one head.
    """
    return batch * heads * queries * keys * (width + value_width)


def einsum(equation: str, first: Sequence[int], second: Sequence[int]) -> tuple[int, int]:
    """Multiply-adds of an einsum over two arrays of these shapes, and the elements of its result.

    There is one multiply-add for each combination of indices. Raises ValueError: the equation is
    not one of two arrays of these shapes.

    >>> einsum("bij,bjk->bik", (2, 3, 4), (2, 4, 5))
    (120, 30)
    >>> einsum("...x,xy->...y", (2, 3, 4), (4, 5))
    (120, 30)
    """
    sizes: dict[str, int] = {}
    operands, _, result = equation.replace(" ", "").partition("->")
    for labels, shape in zip(operands.split(","), (first, second), strict=True):
        before, dots, after = labels.partition("...")
        others = len(shape) - len(before) - len(after) if dots else 0
        names = [*before, *(f"{dots}{number}" for number in range(others, 0, -1)), *after]
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    given = [size for name, size in sizes.items() if name in result or name.startswith("...")]
    return math.prod(sizes.values()), math.prod(given)
