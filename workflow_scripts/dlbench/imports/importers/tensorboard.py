"""TensorBoard's event files: those of Keras, of tf_cnn_benchmarks and of our own export.

- Most scalars are 32-bit floats: seven digits. The time of an event is that of its writing, so
  step times are not taken from it; t_s of evaluations and samples counts from the first event.
- Our export (dlbench/results/export_tensorboard.py): train/* are steps, validation/* evaluations,
  usage/* samples; summary/images_per_second is the record's throughput, the text `run` the
  settings.
- Keras: batch_loss is the mean since the epoch began, batch_steps_per_second one over the time of
  that step alone. The first batch, in which the model is compiled, is the warm-up. epoch_* of
  held-out items become evals, with epochs from 1. A file is of held-out items if it has
  evaluation_* or lies in a folder `validation`, as Keras names it; a file in `train` beside it is
  of the same run. The last epoch_loss of other files becomes final_loss: the mean over an epoch.
- tf_cnn_benchmarks: total_loss (or the loss it reports) of a step, eval/Accuracy@1 and @5. Its
  events have no times of steps.
- The notes name other tags. A file with no other tags is refused.
- If the step goes back, training was resumed: of repeated steps the last ones count.
- The format is read without TensorFlow or TensorBoard: TFRecords, each a serialised Event, of which
  the time, the step, scalars and texts are read; histograms, images, audio and graphs are skipped.

Source: Keras' callbacks/tensorboard.py and tf_cnn_benchmarks' benchmark_cnn.py;
tensorflow/core/util/event.proto, framework/{summary,tensor,types}.proto.
"""

import math
import re
import struct
from array import array
from collections import Counter
from collections.abc import Iterator

from dlbench.common import tfrecord
from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.importers.csv_metrics import ACCURACIES, TOP5
from dlbench.imports.log_file import LogError, LogFile
from dlbench.imports.log_lines import MAX_TIME_S, count, real
from dlbench.study import contradictions
from dlbench.tables import table_columns

FAMILY = "tensorboard"
STEP_TAGS = {
    "train/loss": "loss",
    "train/step_time_s": "step_time_s",
    "train/items_per_second": "items_per_second",
    "train/learning_rate": "learning_rate",
    "batch_loss": "loss",
    "batch_steps_per_second": "steps_per_second",
    "total_loss": "loss",
    "base_loss": "loss",
    "learning_rate": "learning_rate",
}
SCORES = ("loss", "top1", "top5", "iou", "perplexity", "examples")
EVAL_TAGS = {
    **{f"validation/{name}": name for name in SCORES},
    "eval/Accuracy@1": "top1",
    "eval/Accuracy@5": "top5",
}
EPOCH_TAGS = {
    "epoch_loss": "loss",
    **{f"epoch_{name}": "top1" for name in ACCURACIES},
    **{f"epoch_{name}": "top5" for name in TOP5},
}
USAGE = re.compile(r"usage/(?:rank(\d{1,6})/)?(?:(?:gpu(\d{1,4})|((?:GPU|MIG)-[^/]+))/)?(\w+)")
THROUGHPUT = "summary/images_per_second"
DESCRIPTION = "run"
KNOWN = ", ".join((*STEP_TAGS, *EVAL_TAGS, *EPOCH_TAGS, "usage/*", THROUGHPUT))
MAX_STEP = 2**53
VERSION = b"brain.Event:"  # in the first event of each file
# By the number of a tensor's type: how an element is packed in tensor_content, and the field that
# has it if tensor_content is empty.
ELEMENTS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}
TEXT = 7  # a tensor's type
STRINGS = 8  # the field of a tensor with its texts


def recognise(log: LogFile) -> bool:
    return is_event_file(log.head)


def read(log: LogFile) -> Iterator[Imported]:
    run = _Run()
    for wall_time_s, step, values in _events(log, run.notes):
        run.add(wall_time_s, step, values)
    if run.start_s is None:
        raise LogError(f"{log.path}: no event with a value")
    if not run.is_known:
        tags = log_lines.list_names(map(_tag, run.unused))
        raise LogError(f"{log.path}: no known tag, but {tags}; known are {KNOWN}")
    yield run.imported(log.path.parent.name == "validation")


class _Run:
    """The values of one run, collected from events."""

    def __init__(self):
        self.steps = _Steps()
        self.start_s = None
        self.columns, self.description = {}, {}
        self.evals, self.samples, self.notes = [], [], []
        self.epochs, self.held_out = {}, False
        self.unused = Counter()

    @property
    def is_known(self):
        """Whether a tag has a value for our tables."""
        rows = (self.steps.rows.step or self.steps.values, self.evals, self.samples, self.epochs)
        return any(map(bool, rows)) or bool(self.columns or self.description)

    def add(self, wall_time_s, step, values):
        if not values:
            return
        if self.start_s is None:
            self.start_s = wall_time_s
        t_s = real(wall_time_s - self.start_s, 0, MAX_TIME_S)
        evaluation, samples = {}, {}
        for tag, value in values:
            if isinstance(value, str):
                if tag == DESCRIPTION:
                    self.description = _table(value)
                else:
                    self.unused[tag] += 1
            elif value is None or not 0 <= step <= MAX_STEP:
                self.unused[tag] += 1
            elif tag in STEP_TAGS:
                self.steps.add(step, STEP_TAGS[tag], value)
            elif tag in EVAL_TAGS:
                evaluation[EVAL_TAGS[tag]] = value
            elif tag in EPOCH_TAGS:
                self.epochs.setdefault(step, {})[EPOCH_TAGS[tag]] = value
            elif tag == THROUGHPUT:
                self.columns["images_per_second"] = value
            elif match := USAGE.fullmatch(tag):
                self._sample(samples, match, tag, value)
            else:
                self.held_out = self.held_out or tag.startswith("evaluation_")
                self.unused[tag] += 1
        when = {} if t_s is None else {"t_s": t_s}
        if evaluation:
            row = {"split": "validation", "step": step, **when}
            self.evals.append(row | _scores(evaluation))
        self.samples += [{**when, **place, **values} for place, values in samples.values()]

    def _sample(self, samples, match, tag, value):
        rank, index, uuid, name = match.groups()
        if name not in table_columns.SAMPLES.names or not math.isfinite(value):
            self.unused[tag] += 1
            return
        place = {"rank": int(rank or 0)}
        if index or uuid:
            place["gpu"] = index or uuid
        whole = name.endswith("_bytes")
        _, values = samples.setdefault((rank, index, uuid), (place, {}))
        values[name] = round(value) if whole else value

    def imported(self, in_validation):
        # The first epoch of a run is warm-up; the file does not say which steps it has.
        epochs = self.description.get("epochs")
        warmup_steps = 0 if epochs else self.description.get("warmup_steps", 0)
        run = Imported(
            self.description | self.columns,
            steps=self.steps.finish(warmup_steps, not self.description),
            evals=self.evals,
            samples=self.samples,
        )
        if not in_validation and (start_date := log_lines.date(self.start_s)):
            run.columns["started_at"] = start_date
        if "global_batch" not in run.columns and self.steps.batch:
            run.columns["global_batch"] = self.steps.batch
        self._check_batch(run)
        if epochs:
            run.notes.append("which steps are warm-up is not in the file: none is marked")
        self._add_epochs(run, in_validation or self.held_out)
        run.notes += self.steps.notes + self.notes
        if self.unused:
            run.notes.append(f"tags left out: {log_lines.list_names(map(_tag, self.unused))}")
        return run

    def _check_batch(self, run):
        batch, by_rate = run.columns.get("global_batch"), self.steps.batch
        if by_rate and abs(by_rate - batch) > contradictions.MAX_DIFFERENCE * batch:
            run.columns["contradicts"] = (
                f"global_batch is {batch}, a step time x items per second is {by_rate}"
            )

    def _add_epochs(self, run, held_out):
        if not self.epochs:
            return
        run.columns.setdefault("framework", "keras")
        if held_out:
            for epoch, values in sorted(self.epochs.items()):
                row = {"split": "validation", "epoch": epoch + 1, **_scores(values)}
                run.evals.append(row)
        else:
            last = self.epochs[max(self.epochs)]
            if "loss" in last:
                run.columns["final_loss"] = last["loss"]
                run.notes.append("final_loss is the mean over the last epoch")
            run.notes.append("scores of epochs left out: of items that were trained on")


class _Steps:
    """Collects the values of steps, each of which may be in a separate event."""

    def __init__(self):
        self.rows, self.notes, self.batch = Steps(), [], None
        self.rates = array("d")  # learning rates
        self.step, self.values = None, {}

    def add(self, step, name, value):
        if step != self.step:
            self._put()
            self.step = step
        self.values[name] = value

    def _put(self):
        if not self.values:
            return
        step, values, rows = self.step, self.values, self.rows
        self.values = {}
        if rows.step and step <= rows.step[-1]:
            self._go_back(step)
        rate = real(values.get("steps_per_second"), 1 / MAX_TIME_S, 1e9)
        time_s = real(values.get("step_time_s", 1 / rate if rate else None), 0, MAX_TIME_S)
        if time_s and not self.batch:
            self.batch = count(round(time_s * (real(values.get("items_per_second"), 0, 1e15) or 0)))
        rows.add(step, time_s or math.nan, values.get("loss"), window_steps=1 if time_s else 0)
        self.rates.append(values.get("learning_rate", math.nan))

    def _go_back(self, step):
        rows, before = self.rows, len(self.rows)
        while rows.step and rows.step[-1] >= step:
            timed = (rows.step, rows.step_time_s, rows.window_steps)
            for column in (*timed, rows.loss, rows.warm_up, self.rates):
                column.pop()
        if len(self.notes) < log_lines.MAX_NAMES:
            self.notes.append(f"resumed at step {step}: {before - len(rows)} steps do not count")

    def finish(self, warmup_steps, is_by_keras):
        """Finish the last step and mark the warm-up. Returns all steps."""
        self._put()
        for at, step in enumerate(self.rows.step):
            self.rows.warm_up[at] = step <= warmup_steps
        if is_by_keras and self.rows.step and self.rows.step[0] <= 1 and self.rows.window_steps[0]:
            self.rows.warm_up[0] = True
            self.notes.append("the first batch, in which Keras compiles, is the warm-up")
        if not all(map(math.isnan, self.rates)):
            self.rows.more["learning_rate"] = self.rates
        return self.rows


def _scores(values):
    """The values of an evaluation, as the table of evaluations has them."""
    scores = {name: value for name, value in values.items() if name != "examples"}
    for name in ("top1", "top5", "iou"):
        if name in scores and real(scores[name], 0, 1) is None:
            del scores[name]
    examples = count(values.get("examples"), 0, MAX_STEP)
    return scores if examples is None else {**scores, "examples": examples}


def _tag(tag):
    return "".join(c if c.isprintable() else "?" for c in tag[:80])


def _table(text):
    """Parse the columns of the runs table in the Markdown table that our export writes.

    >>> _table("| | |\\n| --- | --- |\\n| model | lenet5 |\\n| xla | False |\\n| nodes | 2 |")
    {'model': 'lenet5', 'xla': False, 'nodes': 2}
    """
    cells = dict(re.findall(r"^\| (\w+) \| (.*) \|$", text, re.MULTILINE))
    columns = {}
    for name, cell in cells.items():
        if name in table_columns.RUNS.names and name not in ("run_id", "status", "message"):
            kind = str(table_columns.RUNS.field(name).type)
            value = cell.replace("\\|", "|")
            if kind == "bool":
                value = {"True": True, "False": False}.get(value)
            elif kind.startswith("int"):
                value = count(value, 0)
            elif kind == "double":
                value = real(value)
            if value is not None and value != "None":
                columns[name] = value
    if "framework" in columns and columns["framework"] in cells:
        columns["framework_version"] = cells[columns["framework"]]
    if {"nodes", "devices_per_node"} <= columns.keys():
        columns["devices"] = columns["nodes"] * columns["devices_per_node"]
        if "batch_per_device" in columns:
            columns["global_batch"] = columns["batch_per_device"] * columns["devices"]
    return columns


def _events(log, notes):
    """Yield (time in s since 1970, step, [(tag, float, text, or None for another value)])."""
    offset = 0
    try:
        for offset, payload in tfrecord.payloads(_Stream(log.chunks()), log.path):
            yield _parse_event(payload)
            offset += 16 + len(payload)
    except tfrecord.CutOffError:
        notes.append(f"the record at byte {offset} left out: cut short")
    except tfrecord.RecordError as error:
        raise LogError(str(error)) from error
    except (ValueError, IndexError, struct.error) as error:
        raise LogError(f"{log.path}: record at byte {offset}: no event: {error}") from error


def is_event_file(head: bytes) -> bool:
    """Whether the beginning of a file is that of an event file, judged by its first record."""
    try:
        _, payload = next(tfrecord.payloads(_Stream(iter([head])), ""), (0, b""))
    except tfrecord.RecordError:
        return False
    return VERSION in payload


class _Stream:
    """The chunks of a log, readable as a file."""

    def __init__(self, chunks):
        self._chunks = chunks
        self._chunk, self._at = b"", 0

    def read(self, size):
        read, parts = 0, []
        while True:
            part = self._chunk[self._at : self._at + size - read]
            self._at += len(part)
            read += len(part)
            parts.append(part)
            if read == size or not (chunk := next(self._chunks, b"")):
                return b"".join(parts)
            self._chunk, self._at = chunk, 0


def _parse_event(payload):
    wall_time_s, step, values = 0.0, 0, []
    for number, value in tfrecord.fields(payload):
        if number == 1:
            (wall_time_s,) = struct.unpack("<d", value)
        elif number == 2:
            step = _signed(value)
        elif number == 5:
            values += [_value(content) for part, content in tfrecord.fields(value) if part == 1]
    return wall_time_s, step, values


def _value(content):
    tag, value = "", None
    for number, part in tfrecord.fields(content):
        if number == 1:
            tag = bytes(part).decode("utf-8", "replace")
        elif number == 2:
            (value,) = struct.unpack("<f", part)
        elif number == 8:
            value = _element(part)
    return tag, value


def _element(tensor):
    """The single element of a tensor as a float or text; None for several or another type."""
    kind, content, elements, several = 0, b"", {}, False
    for number, value in tfrecord.fields(tensor):
        if number == 1:
            kind = value
        elif number == 2:
            several = _elements(value) != 1
        elif number == 4:
            content = bytes(value)
        else:
            elements.setdefault(number, []).append(value)
    if several:
        return None
    if kind == TEXT:
        texts = elements.get(STRINGS, [])
        return bytes(texts[0]).decode("utf-8", "replace") if len(texts) == 1 else None
    if kind not in ELEMENTS:
        return None
    packing, field = ELEMENTS[kind]
    if content:
        return float(struct.unpack(packing, content)[0])
    if field not in elements:
        return 0.0  # as TensorFlow reads a tensor without content
    value = elements[field][-1]
    if kind in (1, 2):
        return struct.unpack(packing, value)[0]
    number = value if isinstance(value, int) else tfrecord.read_varint(value, 0)[0]
    if kind == 19:
        return struct.unpack("<e", struct.pack("<H", number))[0]
    return float(_signed(number))


def _elements(shape):
    """The number of elements of a tensor with a shape; more than one if it is unknown."""
    product = 1
    for number, dimension in tfrecord.fields(shape):
        size = dict(tfrecord.fields(dimension)).get(1, 0) if number == 2 else 2
        product *= size
    return product


def _signed(value):
    return value - (value >> 63 << 64)
