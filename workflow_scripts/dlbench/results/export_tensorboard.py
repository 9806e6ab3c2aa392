"""From the logs of runs to event files of TensorBoard.

- Each run becomes one file, {output}/{run_id}/events.out.tfevents.dlbench.
- train/*: the steps that all ranks finished. As in the record, their times are those of the rank
  that took longest over all steps, and losses are means over the ranks.
- validation/*: every number of the evaluations.
- usage/*: what rank 0, its node and its GPUs used; usage/rank1/* and so on, what others did. The
  step of a sample is the last one before it.
- summary/images_per_second: the record's throughput, first metric of the HParams page.
- run: the values and the status of the run, as text.
- Dates are the start of the run plus the time on its clock, which starts anew at each resumption.

Needs TensorFlow and TensorBoard.
"""

import bisect
import csv
import heapq
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from dlbench import Error
from dlbench.log import event_fields, event_log
from dlbench.records import run_record, step_times
from dlbench.records.parse_run import RankLog
from dlbench.study import wording
from dlbench.study.runs import FIELDS, Run

LOG = "train.jsonl"
ID = re.compile(r"[a-z0-9_-][a-z0-9_.-]*")  # of a run of ours: no path
FILE = "events.out.tfevents.dlbench"  # always the same, so that a new export replaces it
THROUGHPUT = "summary/images_per_second"
HPARAMS = (*wording.NAMED, *wording.SWITCHES, "global_batch", "devices", "repeat")
QUEUE = 1000  # events between this thread and the writer's
NOT_SCALARS = ("event", "epoch", "step", "t_s", "split", "gpu", "gpus")


def export(folders: Iterable[Path | str], output: Path | str) -> None:
    """Write the logs of some runs for TensorBoard, replacing earlier exports of them.

    Runs that did not start, skipped ones for instance, are left out and named on stderr.

    `folders`: results/runs/{run_id} of each; `output` has a folder for each run. Raises Error: a
    folder is not that of a run, two have one name, or a log is damaged; the runs before the damaged
    one are exported.
    """
    run_folders = _run_folders(folders)
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for run_id, folder in run_folders.items():
        logs = [RankLog(path) for path in event_log.rank_paths(folder / LOG)]
        if logs[0].start:
            _write_file(output / run_id, _events(run_id, logs, _record(folder)))
        else:
            status, message = _status(logs[0], None)
            print(f"{folder}: left out, it did not start ({status}: {message})", file=sys.stderr)


def own_run_folders(table: Path | str) -> list[Path]:
    """The folders of the runs in runs.csv; imported and published ones have none."""
    with open(table, newline="", encoding="utf-8") as file:
        ids = [row["run_id"] for row in csv.DictReader(file) if not row.get("apart")]
    run_folders = [run_record.folder(run_id) for run_id in ids if ID.fullmatch(run_id)]
    return [folder for folder in run_folders if (folder / LOG).is_file()]


def _run_folders(folders):
    """{run id: its folder}, each checked to have a log."""
    by_id = {}
    for folder in map(Path, folders):
        if not (folder / LOG).is_file():
            raise Error(
                f"{folder}: expected the folder of a run, found no {LOG} in it; "
                "runs are the folders in results/runs"
            )
        run_id = folder.resolve().name
        if run_id in by_id:
            raise Error(f"{by_id[run_id]} and {folder}: two runs of one name, export them apart")
        by_id[run_id] = folder
    return by_id


def _record(folder):
    """The record of a run; None if it is not one of these logs."""
    try:
        record = run_record.read_whole(folder)
    except run_record.RecordError as error:
        print(f"{error}; exported without its throughput", file=sys.stderr)
        return None
    return record


def _write_file(folder, events):
    with tempfile.TemporaryDirectory(
        dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"
    ) as part:
        with closing(EventFileWriter(part, max_queue_size=QUEUE)) as writer:
            for event in events:
                writer.add_event(event)
            writer.flush()  # raises what went wrong while writing; close() does not
        (file,) = Path(part).iterdir()
        folder.mkdir(exist_ok=True)
        file.replace(folder / FILE)


def _events(run_id, logs, record):
    """Yield the events of one run in the order of their dates."""
    first = logs[0]
    run = _run(first)
    clocks = [_Clock(log) for log in logs]
    started = clocks[0].date(0.0)
    status = _status(first, record)
    yield _event(started, 0, text_pb("run", _description(run_id, first, status)))
    yield _event(started, 0, _hparams(run_id, run, status[0], started))
    yield from heapq.merge(
        _steps(run, logs, clocks[0]),
        _evals(first, clocks[0]),
        *(_samples(rank, *pair) for rank, pair in enumerate(zip(logs, clocks, strict=True))),
        key=lambda event: event.wall_time,
    )
    throughput = record and record["summary"].get("images_per_second")
    if throughput is not None:
        last = first.steps[-1] if first.steps else {}
        t_s = last.get("t_s", (first.end or {}).get("t_s", 0.0))
        yield _scalars(clocks[0].date(t_s), last.get("step", 0), {THROUGHPUT: throughput})


class _Clock:
    """Dates, in seconds since 1970, of the times in one log."""

    def __init__(self, log):
        parts = [(0.0, log.start["t_utc"])] if log.start else []
        parts += [(event["t_s"], event["t_utc"]) for event in log.resumes]
        self._starts_s = [t_s for t_s, _ in parts]
        self._dates = [_seconds(t_utc) for _, t_utc in parts]

    def date(self, t_s):
        # What has the time of a checkpoint came before it.
        part = max(0, bisect.bisect_left(self._starts_s, t_s) - 1)
        return self._dates[part] + t_s - self._starts_s[part]


def _seconds(t_utc):
    date = datetime.strptime(t_utc, event_fields.UTC_FORMAT)
    return date.replace(tzinfo=timezone.utc).timestamp()


def _run(log):
    spec = log.start.get("spec", {})
    try:
        return Run.from_json(json.dumps({key: spec[key] for key in spec if key in FIELDS}))
    except Error as error:
        raise event_fields.LogError(f"{log.path}: run_start names no run: {error}") from error


def _status(log, record):
    """Status and message, from the record, which knows all ranks, or else from rank 0's log."""
    if record:
        return record["status"], record["message"]
    if log.end:
        return log.end["status"], log.end["message"]
    return "unfinished", "the log has no end"


def _description(run_id, log, status):
    """A table in Markdown."""
    status_name, message = status
    rows = {
        "run": run_id,
        "status": f"{status_name}: {message}" if message else status_name,
        **log.start["spec"],
        **{key: log.start.get(key) for key in ("host", "device_model", "parameters")},
        **log.start.get("versions", {}),
    }
    cells = {key: " ".join(str(value).split()).replace("|", "\\|") for key, value in rows.items()}
    lines = [f"| {key} | {cell} |" for key, cell in cells.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _hparams(run_id, run, status, started):
    """The row of a run on the HParams page, which finds its columns by itself."""
    values = {name: getattr(run, name) for name in HPARAMS} | {"status": status}
    return hparams.hparams_pb(values, trial_id=run_id, start_time_secs=started)


def _steps(run, logs, clock):
    passed_s = 0.0
    steps = step_times.of_all_ranks(logs)
    for ranks, step_time_s in zip(steps, step_times.slowest(steps), strict=True):
        passed_s += step_time_s * step_times.window_steps(ranks[0])
        values = {
            "train/step_time_s": step_time_s,
            "train/items_per_second": run.global_batch / step_time_s,
        }
        # What other programs print may lack these.
        if all("loss" in step for step in ranks):
            values["train/loss"] = sum(step["loss"] for step in ranks) / len(ranks)
        if "learning_rate" in ranks[0]:
            values["train/learning_rate"] = ranks[0]["learning_rate"]
        yield _scalars(clock.date(ranks[0].get("t_s", passed_s)), ranks[0]["step"], values)


def _evals(log, clock):
    for event in log.evals:
        values = _numbers(event, f"{event['split']}/")
        yield _scalars(clock.date(event["t_s"]), event["step"], values)


def _samples(rank, log, clock):
    prefix = f"usage/rank{rank}/" if rank else "usage/"
    ends = [step["t_s"] for step in log.steps if "t_s" in step]
    for sample in log.samples:
        values = _numbers(sample, prefix)
        for gpu in sample.get("gpus", ()):
            # A selector is an index or, as in GPU-8932f937, a UUID.
            name = f"gpu{gpu['gpu']}" if isinstance(gpu["gpu"], int) else gpu["gpu"]
            values |= _numbers(gpu, f"{prefix}{name}/")
        taken = bisect.bisect_right(ends, sample["t_s"])
        step = log.steps[taken - 1]["step"] if taken else 0
        yield _scalars(clock.date(sample["t_s"]), step, values)


def _numbers(event, prefix):
    """The numbers of an event by their tags, nan and inf too, without those for when and where.

    >>> _numbers({"event": "eval", "t_s": 1.0, "loss": 2.0, "perplexity": "inf"}, "validation/")
    {'validation/loss': 2.0, 'validation/perplexity': inf}
    """
    return {
        f"{prefix}{key}": float(value)
        for key, value in event.items()
        if key not in NOT_SCALARS
        and (isinstance(value, int | float) or value in ("nan", "inf", "-inf"))
    }


def _scalars(date, step, values):
    summary = Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    )
    return _event(date, step, summary)


def _event(date, step, summary):
    return Event(wall_time=date, step=step, summary=summary)
