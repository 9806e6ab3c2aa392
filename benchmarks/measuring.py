"""What the programs share: figures, calls in turns, and commands that are measured."""

import argparse
import json
import numbers
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.trainer import engine
from support.costs import resource_use

from . import REPOSITORY


class Figure(NamedTuple):
    """A named measurement with one value for each round, and the target for their median."""

    name: str
    values: Sequence[float]
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def verdict(self) -> str:
        """`met` or `not met`; empty without a target."""
        if self.at_least is None and self.at_most is None:
            return ""
        median = statistics.median(self.values)
        met = self.at_least is None or median >= self.at_least
        met = met and (self.at_most is None or median <= self.at_most)
        return "met" if met else "not met"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, median (least .. most of all rounds), target and verdict.

        >>> Figure("a step", (3.0, 1.0, 2.0), "ms", at_most=1.5).cells
        ('a step', '2 ms (1 .. 3, 3 rounds)', 'at most 1.5', 'not met')
        """
        measured = f"{_number(statistics.median(self.values))} {self.unit}".strip()
        if len(self.values) > 1:
            low, high = _number(min(self.values)), _number(max(self.values))
            measured += f" ({low} .. {high}, {len(self.values)} rounds)"
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        target = ", ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
        return self.name, measured, target, self.verdict


def _number(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the argument that all programs have: --json."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="file to which each figure adds a line")
    return made


class Figures:
    """The figures of one run of a program.

    Args:
        file: each figure appends a line of JSON to it; None: figures are only printed.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file and file.absolute()  # programs change their folder

    def add(
        self, name: str, values: float | Iterable[float], unit: str = "", **target: float | None
    ) -> None:
        """Print a figure and keep it.

        Args:
            name: what was measured; unique within the program.
            values: one value for each round.
            target: `at_least` or `at_most`, for the median.
        """
        every = [values] if isinstance(values, numbers.Real) else values
        figure = Figure(name, [float(value) for value in every], unit, **target)
        print("; ".join(filter(None, figure.cells)), flush=True)
        if self._file:
            with open(self._file, "a") as file:
                print(json.dumps(figure._asdict()), file=file)


def in_turns(rounds: int, calls: Mapping[Any, Callable[[], Any]]) -> dict[Any, list[Any]]:
    """Run all calls in each round, in reverse order in every second one. Returns their results."""
    results: dict[Any, list[Any]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            results[name].append(calls[name]())
    return results


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours / theirs, round by round."""
    return [own / their for own, their in zip(ours, theirs, strict=True)]


def python_of(framework: str) -> Path:
    """Python of a framework's environment, which may not be installed; "": the workflow's."""
    if not framework:
        return Path(sys.executable)
    return REPOSITORY / "envs" / engine.environment(framework) / ".venv/bin/python"


def run(command: Sequence[Any], **options: Any) -> resource_use.Used:
    """Run a command to its end; if it fails, exit with its output."""
    try:
        return resource_use.run(command, **options)
    except subprocess.CalledProcessError as error:
        sys.exit(error.output[-4000:])
