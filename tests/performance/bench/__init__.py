"""What programs that measure share: rounds turn by turn, used processes, figures handed over.

A program adds each of its figures to a `Figures`, which prints it and, with --json, keeps it
for `python -m tests.performance`, whose page (docs/performance.md) is the one place where they
stand.
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
    """The Python of a framework's environment, which may not be installed."""
    return REPOSITORY / "envs" / engine.environment(framework) / ".venv/bin/python"


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of a program's arguments with the one that all have: --json."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="file to which each figure adds a line")
    return made


class Figures:
    """The figures of one run of a program.

    Args:
        file: to which each adds a line of JSON; None: they are printed only.
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
            name: what was measured, of what; no other of the program has it.
            values: one a round.
            at_least, at_most: the target for their median; without both there is none.
        """
        every = [values] if isinstance(values, numbers.Real) else list(values)
        values = tuple(float(f"{value:.6g}") for value in every)
        figure = Figure(name, values, unit, at_least, at_most)
        print(figure, flush=True)
        if self._file:
            with open(self._file, "a") as file:
                print(json.dumps(figure._asdict()), file=file)


def in_turns(rounds: int, calls: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """What each call returns in each round; every second round goes backwards."""
    results: dict[str, list[Any]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            results[name].append(calls[name]())
    return results


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours / theirs, round by round."""
    return [own / their for own, their in zip(ours, theirs, strict=True)]


def run(command: Sequence[Any], **options: Any) -> Used:
    """Run a command to its end; ends this program with what it printed if it fails."""
    try:
        return resource_use.run(command, **options)
    except subprocess.CalledProcessError as error:
        sys.exit(error.output[-4000:])
