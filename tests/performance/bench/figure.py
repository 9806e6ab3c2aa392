"""A figure of performance: the measured values of all rounds, and the target."""

import statistics
from typing import NamedTuple


class Figure(NamedTuple):
    """A named measurement with one value for each round, and the target for their median."""

    name: str
    values: tuple[float, ...]
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        low = self.at_least is None or self.median >= self.at_least
        return low and (self.at_most is None or self.median <= self.at_most)

    @property
    def measured(self) -> str:
        """The median with its unit, then the minimum and maximum of the rounds.

        >>> Figure("a step", (3.0, 1.0, 2.0), "ms").measured
        '2 ms (1 .. 3, 3 rounds)'
        """
        shown = f"{number(self.median)} {self.unit}".strip()
        if len(self.values) == 1:
            return f"{shown} (1 round)"
        low, high = number(min(self.values)), number(max(self.values))
        return f"{shown} ({low} .. {high}, {len(self.values)} rounds)"

    @property
    def target(self) -> str:
        """The target as text; empty without one."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)

    @property
    def verdict(self) -> str:
        """`met` or `not met`; empty without a target."""
        return {True: "met", False: "not met", None: ""}[self.met]

    def __str__(self) -> str:
        target = f"; target {self.target}: {self.verdict}" if self.target else ""
        return f"{self.name}: {self.measured}{target}"


def number(value: float) -> str:
    """A number with its significant digits, for printing.

    >>> [number(value) for value in (12345.6, 480.34, 1.0021, 0.04803, 2.0)]
    ['12346', '480.3', '1.002', '0.048', '2']
    """
    if abs(value) >= 1000 or value == round(value):
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3f}"
