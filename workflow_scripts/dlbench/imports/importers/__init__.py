"""Importers of other programs' logs, one file each. The file's name is the name of a kind of log.

Each lies in the folder of its topic; one of another topic may lie here, or in a new folder.

A file's docstring says what the program's numbers mean (what "+-" is; per step or cumulative; of
one rank or of all) and how they are converted to the meaning of the columns in
dlbench/tables/table_columns.py. It defines:
    FAMILY: the program. Logs of one family in one folder, but of different kinds, are of one run.
        None for what another program writes beside a run (ATTACHES).
    recognise(log): whether a LogFile (dlbench/imports/log_file.py) is of this kind, from
        `log.head` alone, not from its name.
    read(log): yields an Imported for each run in the log.
        Raises LogError, with the line, if the log is of this kind but cannot be understood.
and may define:
    ATTACHES = True: the log is about a run of the same folder and has no run of its own.
    LINE_MARKS: bytes of which each line that shows the kind has one. Where other output comes
        first, `recognise` is asked again with the lines from the first of them on as `log.head`.

What a program prints on a console is read by dlbench/imports/console.py, which takes off what
launchers write before lines and reads the lines of each rank apart.
An importer notes everything that it leaves out of a log, with line and reason.
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Steps:
    """Steps in the order of the log, as columns; what the log does not say is nan.

    Most programs print one line every N steps. Such a row is a window: `step` is its last step,
    `window_steps` the number of its steps, `step_time_s` the mean over them, and `loss` what the
    log prints for the window. A row of which only the loss is known has a window of 0.

    `more` has further columns of the table of steps by name, each as long as `step`.
    """

    step: array = field(default_factory=lambda: array("q"))
    step_time_s: array = field(default_factory=lambda: array("d"))
    loss: array = field(default_factory=lambda: array("d"))
    window_steps: array = field(default_factory=lambda: array("q"))
    warm_up: array = field(default_factory=lambda: array("b"))
    more: dict[str, array] = field(default_factory=dict)

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
        self.step.append(step)
        self.step_time_s.append(step_time_s)
        self.loss.append(math.nan if loss is None else loss)
        self.window_steps.append(window_steps)
        self.warm_up.append(warm_up)


@dataclass
class Imported:
    """One run as a log has it.

    Attributes:
        columns: of the runs table that the log states: settings (model, global_batch, devices,
            ...) and results. Results that follow from `steps` are absent, unless the log has them
            more exactly. `rate_uncertainty` is what printed digits leave open of them, and
            `contradicts` says in words which of the log's own numbers do not agree.
        steps: empty if the log has none.
        evals, samples: rows of those tables without their run_id.
        notes: what was converted, undone, unknown or left out, with its line.
        lines: first and last line of the run in the log, from 1.
        complete: called with the columns of the run after those of its other logs, of the user
            and those that follow from them are added. It fills in what needs one of them, such as
            a time from a rate and the batch, and may add notes.
    """

    columns: dict[str, Any]
    steps: Steps = field(default_factory=Steps)
    evals: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: tuple[int, int] = (1, 1)
    status: str = "ok"
    message: str = ""
    complete: Callable[[dict[str, Any]], None] | None = None
