"""Importers of other programs' logs, one file each. A file's name is the name of its kind of log.

A file says in its docstring what the program's numbers mean (what "+-" is; per step or cumulative;
of one rank or of all) and how they are brought to the meaning that the columns of
dlbench/tables/table_columns.py have. It defines:
    FAMILY: the program. What lies in one folder and is of one family, but of different kinds, is
        of one run. None for what another program writes beside a run (ATTACHES).
    recognise(log): whether this is such a log, from `log.head` alone; not from its name.
    read(log): yields an Imported for each run in the log.
        Raises LogError, with the line, where the log is of the kind but cannot be understood.
and may define:
    ATTACHES = True: it is about a run of the same folder and has none of its own.

`log` is a dlbench.logfile.LogFile. What is left out of a log is said in the notes of what is made
from it, with line and reason; nothing is left out silently.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Steps:
    """Steps in the order of the log, as columns; nan where the log does not say.

    Most programs print every so many steps. Such a row is a window: `step` is its last step,
    `window_steps` how many it has, `step_time_s` and `loss` what the log says of the window; a time
    is the mean over its steps. A row without a time, of which only the loss is known, has a window
    of 0.

    `more` has further columns of the table of steps by name, each as long as `step`.
    """

    step: array = field(default_factory=lambda: array("q"))
    step_time_s: array = field(default_factory=lambda: array("d"))
    loss: array = field(default_factory=lambda: array("d"))
    window_steps: array = field(default_factory=lambda: array("q"))
    warm_up: array = field(default_factory=lambda: array("b"))
    more: dict = field(default_factory=dict)

    def __len__(self):
        return len(self.step)


@dataclass
class Imported:
    """One run as a log has it.

    Attributes:
        columns: of the runs table, as far as the log states them: what was run (model,
            global_batch, devices, ...) and numbers. Numbers that follow from `steps` are left out,
            unless the log is more exact.
        steps: a Steps; empty where the log has none.
        evals, samples: rows of those tables without their run_id.
        notes: what was converted, undone, unknown or left out, with the line where there is one.
        lines: first and last line of the run in the log, from 1.
        complete: called with the columns of the run once all that is known of it is put together
            (other logs of its folder, fields given by the user, what follows from them); fills in
            what takes one of them, as the batch for a time from a rate, and may add notes.
    """

    columns: dict
    steps: Steps = field(default_factory=Steps)
    evals: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    lines: tuple = (1, 1)
    status: str = "ok"
    message: str = ""
    complete: Callable[[dict], None] | None = None
