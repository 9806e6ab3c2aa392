"""How much a model computes for one item: what the frameworks' counts have in common.

- FLOPs: two for each multiply-add of a product of matrices, of a convolution, of attention and of
  a recurrent cell, in the forward pass of one item. Zeros of padding and of masks count as any
  other value: attention is counted whole, causal or not.
- Left out: what takes values one by one, as biases, activations, normalisation, pooling, softmax
  and dropout do; look-ups in embeddings; the loss and the optimizer.
- A step that learns counts as PASSES["train"] forward passes: each product has a derivative by each
  of its factors, which is as much work. The first layer's by its items, of which nobody has use, is
  counted too. As in A. Chowdhery et al. (2022), PaLM: scaling language modeling with pathways,
  arXiv:2204.02311, appendix B.
- Values: the numbers that these products read and write, of one item, weights apart: each product
  on its own, attention as one that keeps its scores.
- Layers that say `recomputes` compute their activations again in the backward pass: their forward
  pass counts once more, apart, as the model does not need it. A compiler may leave out parts of it.
- They follow from the shapes of the layers alone; nothing is computed. Of a model with a layer for
  which there is no rule nothing is known: a part of the sum would pass for the whole.

Each framework's folder has a `flops.py`, which knows its layers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlbench.common import terminal

# By the mode of a run; without a model there is nothing to compute.
PASSES = {"forward": 1, "forward_backward": 3, "train": 3, "input": 0}
MOST_REASONS = 5  # that are kept, as one kind of layer may be there a hundred times
MOST_CHARACTERS = 120  # characters of a reason


class ModelFlops(NamedTuple):
    """What a model does for one item in the forward pass.

    Attributes:
        forward_per_item: FLOPs; None if a layer has no rule.
        values_per_item: how many numbers its products read and write, without their weights.
        unknown: layers that have no rule, each with the reason.
        recomputed_per_item: FLOPs that the backward pass does again; None if a layer has no rule.
    """

    forward_per_item: int | None
    values_per_item: int | None
    unknown: list[str]
    recomputed_per_item: int | None = None


class Tally:
    """Adds up the products of a model's layers, of one item."""

    def __init__(self) -> None:
        self._multiply_adds = self._values = self._recomputed = 0
        self._unknown: list[str] = []

    def add(
        self, multiply_adds: int, values: int, times: int = 1, recomputed: bool = False
    ) -> None:
        """Add a product.

        Args:
            values: numbers that it reads and writes, without weights.
            times: how often it is done.
            recomputed: whether the backward pass does it once more.
        """
        self._multiply_adds += times * multiply_adds
        self._recomputed += times * multiply_adds * recomputed
        self._values += times * values

    def add_unknown(self, where: str, reason: object) -> None:
        """Say that a layer has no rule, and why."""
        said = f"{where}: {terminal.message(str(reason), MOST_CHARACTERS)}"
        if said not in self._unknown and len(self._unknown) < MOST_REASONS:
            self._unknown.append(said)

    def include(self, other: "Tally", times: int = 1, recomputed: bool = False) -> None:
        """Add all that another one has, so many times.

        Args:
            recomputed: whether the backward pass does all of it once more.
        """
        self.add(other._multiply_adds, other._values, times, recomputed)
        self._recomputed += 0 if recomputed else times * other._recomputed
        self._unknown += [said for said in other._unknown if said not in self._unknown]

    def total(self) -> ModelFlops:
        if self._unknown:
            return ModelFlops(None, None, self._unknown[:MOST_REASONS])
        return ModelFlops(2 * self._multiply_adds, self._values, [], 2 * self._recomputed)


def attention(batch: int, heads: int, queries: int, keys: int, width: int, of_value: int) -> int:
    """Multiply-adds of scaled dot-product attention: the scores, and the values they weigh.

    Args:
        queries, keys: positions.
        width, of_value: numbers of a query or a key, and of a value, in one head.
    """
    return batch * heads * queries * keys * (width + of_value)


def einsum(equation: str, first: Sequence[int], second: Sequence[int]) -> tuple[int, int]:
    """Multiply-adds of a sum over two arrays of these shapes, and how many numbers come out.

    There is a multiply-add for each value of all indices.

    Raises:
        ValueError: the equation is not one of two arrays of these shapes.

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
