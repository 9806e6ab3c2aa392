"""Two conditions judged by the numbers of their runs."""

from collections.abc import Sequence

from dlbench.analysis.estimates import Difference
from dlbench.analysis.judge import Judged, judge


def family(sides: Sequence[tuple[Sequence[float], Sequence[float]]], margin: float) -> list[Judged]:
    """The Judged of (values, values of the base), all of one family."""
    return judge([Difference.of(*both) for both in sides], margin)


def alone(values: Sequence[float], base: Sequence[float], margin: float = 0.01) -> Judged:
    """The Judged of a family of one."""
    (judged,) = family([(values, base)], margin)
    return judged
