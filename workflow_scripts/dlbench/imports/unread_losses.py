"""Find losses that a log has and its importer does not read, and note the first one in the run.

Importers know the losses that their programs print; users and forks print others.
"""

import math
import re
from collections.abc import Sequence

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile

LOSS = re.compile(
    rb"loss\b[\"']?(?:, ?[\"']value[\"'])?[ \t]?[:=(]?[ \t]{0,4}-?\d{1,12}\.\d", re.IGNORECASE
)
SPELLINGS = (b"loss", b"Loss", b"LOSS")
SHOWN_BYTES = 120  # bytes of a line


def note_unread(log: LogFile, runs: Sequence[Imported]) -> None:
    """Add a note to each run without loss whose lines contain one."""
    without_loss = [run for run in runs if not _has_loss(run)]
    for first, block in log.blocks() if without_loss else ():
        if not any(spelling in block for spelling in SPELLINGS):
            continue
        for match in LOSS.finditer(block):
            number = first + block.count(b"\n", 0, match.start())
            for run in without_loss:
                if run.lines[0] <= number <= run.lines[1]:
                    run.notes.append(f"a loss that is not read: line {number}, {_line(match)}")
            without_loss = [
                run for run in without_loss if not run.lines[0] <= number <= run.lines[1]
            ]
            if not without_loss:
                return


def _has_loss(run):
    read = run.columns.get("final_loss") is not None or any(map(math.isfinite, run.steps.loss))
    return read or run.steps.nan_from is not None or any("loss" in note for note in run.notes)


def _line(match):
    """The line of a loss; of a long line SHOWN_BYTES around the loss."""
    block, start = match.string, match.start()
    begin = max(block.rfind(b"\n", 0, start) + 1, start - SHOWN_BYTES // 2)
    text = block[begin : begin + SHOWN_BYTES].partition(b"\n")[0]
    return log_values.printable(text.decode("utf-8", "replace").strip(), SHOWN_BYTES)
