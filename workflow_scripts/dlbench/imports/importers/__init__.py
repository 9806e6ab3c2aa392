"""Importers of other programs' logs, one file each. The file's name is the name of a kind of log.

A file's docstring explains the program's numbers (what "+-" is; per step or cumulative; of one rank
or of all) and how they are converted to the columns in dlbench/tables/table_columns.py. It defines:
    FAMILY: name of the program. Logs of one family in one folder, but of different kinds, belong
        to one run. None if ATTACHES.
    recognise(log): whether a LogFile (dlbench/imports/log_file.py) is of this kind, judged by
        `log.head` alone, not by its name.
    read(log): yields an Imported for each run in the log.
        Raises LogError, with the line, if the log is of this kind but cannot be parsed.
and may define:
    ATTACHES = True: the log is of another program that ran beside a run of the same folder.
    LINE_MARKS: byte strings; every line by which `recognise` knows the kind contains one. If other
        output comes first, `recognise` is called again with the first such line as the beginning
        of `log.head`.

A file for several kinds of one program has VARIANTS = {kind: {constants}}, among them ABOUT, a
line on the kind; its functions have the parameter `constants`, of a kind, whose name is NAME.

dlbench/imports/log_lines.py reads console output: it removes the launchers' prefixes and separates
the lines of ranks.
An importer notes everything that it leaves out of a log, with line and reason.
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Steps:
    """Steps in the order of the log, as columns; unknown values are nan.

    Most programs print one line every N steps. Such a row is a window: `step` is its last step,
    `window_steps` the number of its steps, `step_time_s` their mean time, and `loss` the loss that
    the log prints for the window. A row with a loss and without time has a window of 0.

    `more` has further columns of the table of steps by name, each as long as `step`. `nan_from` is
    the first step that was added with a loss of nan.
    """

    step: array = field(default_factory=lambda: array("q"))
    step_time_s: array = field(default_factory=lambda: array("d"))
    loss: array = field(default_factory=lambda: array("d"))
    window_steps: array = field(default_factory=lambda: array("q"))
    warm_up: array = field(default_factory=lambda: array("b"))
    more: dict[str, array] = field(default_factory=dict)
    nan_from: int | None = None

    def __len__(self) -> int:
        return len(self.step)

    def add(
        self,
        step: int,
        step_time_s: float,
        loss: float | None = None,
        window_steps: int = 1,
        warm_up: bool = False,
    ) -> None:
        """Add a row; a loss of None is unknown."""
        if self.nan_from is None and loss is not None and math.isnan(loss):
            self.nan_from = step
        self.step.append(step)
        self.step_time_s.append(step_time_s)
        self.loss.append(math.nan if loss is None else loss)
        self.window_steps.append(window_steps)
        self.warm_up.append(warm_up)


@dataclass
class Imported:
    """One run in a log.

    Attributes:
        columns: columns of the runs table that the log states: settings (model, global_batch,
            devices, ...) and results. Results that can be computed from `steps` are left out,
            unless the log has them with more digits. `rate_uncertainty` is the relative error of
            results by their printed digits; `contradicts` is a sentence about numbers of the log
            that contradict one another.
        steps: empty if the log has none.
        evals, samples: rows of those tables without run_id.
        metrics: numbers that the program names itself, as its summary:
            {"name", "value", "unit", "better"} each (dlbench/log/metrics.py).
        notes: what was converted, corrected, unknown or left out, with its line.
        lines: first and last line of the run in the log, from 1.
        complete: called with the run's columns when those of its other logs, of the user and
            computed ones are added. It computes values that need them, e.g. a time from a rate
            and the batch, and may add notes.
    """

    columns: dict[str, Any]
    steps: Steps = field(default_factory=Steps)
    evals: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: tuple[int, int] = (1, 1)
    status: str = "ok"
    message: str = ""
    complete: Callable[[dict[str, Any]], None] | None = None
