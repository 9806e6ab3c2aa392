"""The CSV file of Keras' CSVLogger: one row an epoch, no times.

- `epoch` counts from 0, our tables from 1.
- `loss` and the metrics beside it are means over the batches of the epoch while the weights
  changed. The last loss becomes final_loss, which in other logs is that of the last step.
- `val_loss`, `val_accuracy` and so on are of held-out items, after the epoch: a row of evals.
  top_k accuracies count as top-5, Keras' default; the file does not say k.
- The separator is the user's. `NA` is a value that an epoch does not have; a list of values is a
  text.
- The file may be appended to, without a second header. If the epoch goes back to 0, the next run
  begins. If it goes back to another epoch, training was resumed there, and the epochs that follow
  replace the earlier ones of the same number.

Source: keras/src/callbacks/csv_logger.py, Keras 2 and 3.
"""

from collections.abc import Iterator

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, LeftOut, count, csv_cells, real

FAMILY = "keras"
SEPARATORS = ",;\t"
ACCURACIES = (
    *("accuracy", "acc", "binary_accuracy"),
    *("categorical_accuracy", "sparse_categorical_accuracy"),
)
TOP5 = ("top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy", "top_5_accuracy", "top5")
METRICS = {"loss", *ACCURACIES, *TOP5}


def recognise(log: LogFile) -> bool:
    header, newline, _ = log.head_text.partition("\n")
    names = _header(header)
    return bool(newline) and names is not None


def _header(line):
    """(separator, columns) of a header; None if the line is no header."""
    for separator in SEPARATORS:
        names = line.rstrip("\r").split(separator)
        if "step" in names:  # of Lightning
            continue
        if names[0] == "epoch" and {name.removeprefix("val_") for name in names[1:]} & METRICS:
            return separator, names
    return None


def read(log: LogFile) -> Iterator[Imported]:
    lines = log.lines()
    _, header = next(lines, (1, ""))
    format_ = _header(header)
    if format_ is None:
        raise log.error(1, "expected a header that begins with epoch, found none")
    separator, names = format_
    run = _Run(names, 1)
    last = 1
    for last, line in lines:
        cells = csv_cells(line, separator)
        if last == log.unfinished:
            run.left_out.add(last, CUT_SHORT)
        elif cells == names:
            run.left_out.add(last, "the header again")
        elif len(cells) != len(names) or (epoch := count(cells[0], 0)) is None:
            raise log.error(
                last,
                f"expected an epoch and {len(names) - 1} values, found "
                f"{log_values.printable(line)}",
            )
        else:
            if epoch == 0 and run.rows:
                yield run.imported(log, last - 1)
                run = _Run(names, last)
            run.add(last, epoch, dict(zip(names, cells, strict=True)))
    yield run.imported(log, last)


class _Run:
    """The epochs of one run."""

    def __init__(self, names, first_line):
        self.names, self.first_line = names, first_line
        self.rows = {}  # by epoch, in ascending order
        self.resumes = []
        self.left_out = LeftOut()

    def add(self, line, epoch, row):
        replaced = 0
        while self.rows and epoch <= next(reversed(self.rows)):
            self.rows.popitem()
            replaced += 1
        if replaced:
            self.resumes.append(f"line {line}: resumed, {replaced} epochs before it do not count")
        self.rows[epoch] = row

    def imported(self, log, last_line):
        if not self.rows:
            raise log.error(last_line, "no epoch could be read")
        columns = {"framework": "keras", "mode": "train", "epochs": len(self.rows)}
        if self.resumes:
            columns["resumes"] = len(self.resumes)
        last = self.rows[next(reversed(self.rows))]
        if (final := log_values.loss(last.get("loss"))) is not None:
            columns["final_loss"] = final
        unknown = [name for name in self.names[1:] if name.removeprefix("val_") not in METRICS]
        notes = ["final_loss is the mean over the last epoch; the file has no times"]
        if unknown:
            notes.append(f"columns left out: {log_values.list_names(unknown)}")
        return Imported(
            columns,
            evals=[row for row in map(_evaluation, self.rows, self.rows.values()) if row],
            notes=notes + self.resumes[: log_values.MAX_NAMES] + self.left_out.notes(),
            lines=(self.first_line, last_line),
        )


def _evaluation(epoch, row):
    """The row of evals of an epoch; None if it has no held-out value."""
    values = {
        "loss": log_values.loss(row.get("val_loss")),
        "top1": _score(row, ACCURACIES),
        "top5": _score(row, TOP5),
    }
    values = {name: value for name, value in values.items() if value is not None}
    return {"split": "validation", "epoch": epoch + 1, **values} if values else None


def _score(row, names):
    scores = (real(row.get(f"val_{name}"), 0, 1) for name in names)
    return next((score for score in scores if score is not None), None)
