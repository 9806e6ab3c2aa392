"""Our own training log, train.jsonl, with the logs of other ranks or copies beside it.

The code that writes records parses it (dlbench/records/parse_run.py), so the numbers are the same:
times of steps are those of the slowest rank, losses the mean over ranks, the throughput that of all
devices. Times are exact. Logs of other ranks and of earlier attempts belong to the log that they
are named after and are no runs of their own.

Other programs write such logs with programs/logger/dlbench_log.py. Their run_start has, instead of
a run's fields, what the program states: columns of the runs table. If it states no batch,
throughput needs that of --fields. Parts of a step are metrics.
"""

import math
import re
import tempfile
from array import array
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from dlbench.imports import import_fields, logged_events
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.log_file import LogError, LogFile
from dlbench.log import event_fields, event_log
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns

FAMILY = "dlbench"
OTHER_RANK_OR_ATTEMPT = re.compile(r"(.+)\.(?:rank|attempt)\d+(?:\.rank\d+)?(\.[^.]+)")
BEGINNINGS = tuple(
    b'{"event": "%s"' % name for name in (b"launch", b"begin", b"run_start", b"ready", b"step")
)
LOGGED = b', "stated": {'  # in run_start, by dlbench_log.py
FROM_STEPS = (
    *("images_per_second", "step_time_mean_s", "step_time_sd_s", "step_time_median_s"),
    *("step_time_p95_s", "step_time_mad_s", "final_loss"),
)
OF_LOGGED = (
    *("steps_measured", "burn_in_steps", "window_steps", "duration_s", "resumes", *FROM_STEPS[1:]),
    *(*event_log.SCORES, "model_flops_per_item", "parameters"),
)
# Stands for what a program does not say of its run.
UNKNOWN = Run(
    model="unknown", dataset="unknown", batch_per_device=1, trainer="unknown", framework="unknown"
)
MALFORMED = (
    *(TypeError, KeyError, ValueError, AttributeError),
    *(IndexError, ArithmeticError, RecursionError),
)


def recognise(log: LogFile) -> bool:
    return log.head.startswith(BEGINNINGS)


def read(log: LogFile) -> Iterator[Imported]:
    name = OTHER_RANK_OR_ATTEMPT.fullmatch(log.path.name)
    if name and log.path.with_name(f"{name[1]}{name[2]}").is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "train.jsonl"
        for rank, path in _ranks(log.path):
            _unpack(path, event_log.rank_path(unpacked, rank))
        try:
            yield _logged(unpacked) if LOGGED in log.head else _imported(unpacked)
        except event_fields.LogError as error:
            raise LogError(str(error).replace(str(unpacked), str(log.path))) from error
        except MALFORMED as error:
            raise log.error(1, f"no training log that can be read: {error!r}"[:300]) from error


def _ranks(path):
    """(rank, path) of the logs of a run."""
    yield 0, path
    stem, _, rest = path.name.partition(".")
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d+)\.{re.escape(rest)}")
    for other in sorted(path.parent.iterdir()):
        match = pattern.fullmatch(other.name)
        if match and int(match[1]):
            yield int(match[1]), other


def _unpack(path, output):
    with open(output, "wb") as file:
        for chunk in LogFile(path).text():
            file.write(chunk)


def _imported(path):
    # These import SciPy, which is slow.
    from dlbench.analysis import run_tables
    from dlbench.imports import import_logs

    logs = [parse_run.RankLog(rank) for rank in event_log.rank_paths(path)]
    if "spec" not in logs[0].start:
        raise event_fields.LogError(f"{path}: no run_start: what was trained is unknown")
    run = Run(**logs[0].start["spec"])
    record_path = path.with_name("run.json")
    parse_run.parse(run, path, record_path)
    record = run_record.read(record_path)
    columns = import_logs.record_row(record)
    status, message = columns.pop("status"), columns.pop("message")
    for name in ("run_id", "study", "timing_source", "log_sha256", "parser_version"):
        columns.pop(name)
    for name in ("learning_gate", "notes"):
        columns.pop(name, None)
    for name in FROM_STEPS:  # None, so that they are not computed from the rows of several ranks
        columns.setdefault(name)
    for name, value in columns.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    parquet_files.table([columns], table_columns.RUNS)  # refuses values of other types
    samples = [
        {"rank": rank, **row}
        for rank, log in enumerate(logs)
        for sample in log.samples
        for row in run_tables.sample_rows(sample)
    ]
    run = _run(path, logs, columns, samples, status=status, message=message)
    parquet_files.table(run.evals, table_columns.EVALS)
    parquet_files.table(samples, table_columns.SAMPLES)
    run.metrics = record["summary"].get("metrics", [])
    return run


def _logged(path):
    """The run in a log of dlbench_log.py."""
    log = path.with_name("run") / "train.jsonl"
    events = event_log.EventLog(log)
    relay = logged_events.Relay(UNKNOWN, path, log, events)
    relay.copy()
    first = relay.first
    if relay.trouble or not first.start:
        raise event_fields.LogError(relay.trouble or f"{path}: no run_start")
    end = first.end or {
        "status": "failed",
        "message": f"its log ends after step {first.last_step}, without run_end: was it killed?",
        "t_utc": first.start["t_utc"],
    }
    ended = {name: end.get(name) for name in ("status", "message", "t_utc", "t_s")}
    relay.finish(None, **ended)
    events.write("begin", t_utc=first.began)
    events.write("imported", kind=FAMILY, notes=[], numbers={})
    events.write("run_end", **ended)
    events.close()
    logs = parse_run.rank_logs(log)
    record = parse_run.content(UNKNOWN, logs)
    summary, notes = record["summary"], relay.notes
    columns = {name: summary[name] for name in OF_LOGGED if summary.get(name) is not None}
    columns |= {name: None for name in FROM_STEPS if name not in columns}
    columns["host"] = first.start.get("host")
    columns["started_at"] = datetime.fromisoformat(first.start["t_utc"])
    if first.end:
        columns["ended_at"] = datetime.fromisoformat(first.end["t_utc"])
    for name, value in (first.start.get("stated") or {}).items():
        if name in import_fields.NAMES:
            columns |= import_fields.parse_fields({name: value})
        elif name not in logged_events.STATED:
            notes.append(f"it states {name} {value!r}, which is no column: left out")
    versions = first.start.get("versions") or {}
    columns.setdefault("framework_version", versions.get(columns.get("framework")))

    def complete(known):
        mean_s = summary.get("step_time_mean_s")
        if mean_s and known.get("global_batch"):
            known["images_per_second"] = known["global_batch"] / mean_s

    run = _run(path, logs, columns, status=record["status"], message=record["message"])
    run.metrics, run.notes, run.complete = relay.metrics(), notes, complete
    return run


def _run(path, logs, columns, samples=(), **status):
    evals = [{k: v for k, v in event.items() if k != "event"} for event in logs[0].evals]
    with open(path, "rb") as file:
        lines = sum(1 for _ in file)
    return Imported(columns, _steps(logs), evals, list(samples), lines=(1, lines), **status)


def _steps(logs):
    from dlbench.analysis import run_tables

    rows = [
        (rank, row)
        for rank, log in enumerate(logs)
        for event in log.steps
        for row in run_tables.step_rows(event)
    ]

    def column(typecode, name):
        return array(typecode, (row.get(name, math.nan) for _, row in rows))

    return Steps(
        step=column("q", "step"),
        step_time_s=column("d", "step_time_s"),
        loss=column("d", "loss"),
        window_steps=array("q", (row.get("window_steps", "t_s" in row) for _, row in rows)),
        warm_up=column("b", "warm_up"),
        more={
            "rank": array("i", (rank for rank, _ in rows)),
            "epoch": column("d", "epoch"),
            "t_s": column("d", "t_s"),
            "learning_rate": column("d", "learning_rate"),
        },
    )
