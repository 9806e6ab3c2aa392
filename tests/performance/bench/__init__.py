"""Shared code of the benchmarks: alternating rounds, resource use of processes, figures.

A program adds each figure to a `Figures` object, which prints it and, with --json, writes it to a
file for `python -m tests.performance`. Its page, docs/performance.md, is the only one with figures.
"""

import argparse
import json
import numbers
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench.trainer import engine
from support.costs import resource_use
from support.costs.resource_use import Used

from .. import REPOSITORY
from .figure import Figure

TRAINER = REPOSITORY / "envs/train/.venv/bin/python"


def python_of(framework: str) -> Path:
    """The path of Python in a framework's environment, which may not be installed."""
    return REPOSITORY / "envs" / engine.environment(framework) / ".venv/bin/python"


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
        self,
        name: str,
        values: float | Iterable[float],
        unit: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Print a figure and keep it.

        Args:
            name: what was measured; unique within the program.
            values: one value for each round.
            at_least, at_most: bounds of the target for the median; without both, no target.
        """
        every = [values] if isinstance(values, numbers.Real) else list(values)
        values = tuple(float(f"{value:.6g}") for value in every)
        figure = Figure(name, values, unit, at_least, at_most)
        print(figure, flush=True)
        if self._file:
            with open(self._file, "a") as file:
                print(json.dumps(figure._asdict()), file=file)


def in_turns(rounds: int, calls: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Run all calls in each round, in reverse order in every second one. Returns their results."""
    results: dict[str, list[Any]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            results[name].append(calls[name]())
    return results


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours / theirs, round by round."""
    return [own / their for own, their in zip(ours, theirs, strict=True)]


def run(command: Sequence[Any], **options: Any) -> Used:
    """Run a command to its end; if it fails, exit with its output."""
    try:
        return resource_use.run(command, **options)
    except subprocess.CalledProcessError as error:
        sys.exit(error.output[-4000:])
