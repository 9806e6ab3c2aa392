"""Runs whose logs, records or numbers are written by tests, not by a trainer."""

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from dlbench.analysis.campaigns import Campaign, Measured
from dlbench.log import event_fields, event_log
from dlbench.records import judgement, parse_run, run_record
from dlbench.study import config
from dlbench.study.runs import FIELDS, Run
from support.studies.site_facts import SITE, UNDISTURBED

SETTINGS = config.read(Path(__file__).parents[3] / "config.yaml") | {
    **UNDISTURBED,
    "study": "test",
    "sentinels": "none",
    "seed": 1,
    "repeats": 2,
    "hang_limit_s": 100,
    "site": SITE,
    "matrix": [
        {"name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": [8, 16],
         "steps": 100, "warmup_steps": 1}
    ],
    "figures": [],
    "compare": [],
}  # fmt: skip
TOTAL = 100  # steps of a run
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def date(seconds):
    return (BEGAN + timedelta(seconds=seconds)).strftime(event_fields.UTC_FORMAT)


def write(
    run,
    seconds=None,
    status="ok",
    message="",
    made_from=None,
    host="far",
    steps=None,
    at=0,
    top1=None,
    job=None,
):
    """The log of a run that was launched `at` and took `seconds`, or goes on after its steps."""
    if steps is None:
        steps = 2 if seconds is None else TOTAL
    path = run_record.folder(run.id) / "train.jsonl"
    log = event_log.EventLog(path)
    log.write("launch", t_utc=date(at), made_from=made_from or judgement.made_from(run), job=job)
    log.write("begin", t_utc=date(at + 1))
    log.write(
        "run_start",
        t_utc=date(at + 2),
        spec=run.values(),
        total_steps=TOTAL,
        host=host,
        devices=["0"],
    )
    for step in range(1, steps + 1):
        log.step(step, 0.5 * step, 0.5, 2.0, 0.01, step == 1, 1)
    if top1 is not None:
        log.write(
            "eval",
            epoch=1,
            step=steps,
            t_s=0.5 * steps,
            split="test",
            loss=0.5,
            top1=top1,
            examples=360,
        )
    if seconds is not None:
        log.write(
            "run_end",
            t_s=max(0, seconds - 2),
            t_utc=date(at + seconds),
            status=status,
            message=message,
            weights_sha256=["0"],
        )
    log.close()
    return path


def finish(run, seconds, status="ok", message="", **values):
    log = write(run, seconds, status, message, **values)
    parse_run.parse(run, log, log.with_name("run.json"))


def resume(run, lines_kept, seconds, at, job=None):
    """Write the rest of a run that was launched again `at` from the first lines of its log."""
    path = run_record.folder(run.id) / "train.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[:lines_kept]
    path.unlink()
    log = event_log.EventLog(path)
    os.write(log._file, b"".join(lines))
    log.write("launch", t_utc=date(at), made_from=judgement.made_from(run), job=job)
    log.write("begin", t_utc=date(at + 1))
    log.write("resume", step=lines_kept - 3, t_s=0.5 * (lines_kept - 3), t_utc=date(at + 2))
    for step in range(lines_kept - 2, TOTAL + 1):
        log.step(step, 0.5 * step, 0.5, 2.0, 0.01, False, 1)
    log.write(
        "run_end",
        t_s=0.5 * (lines_kept - 3) + seconds - 2,
        t_utc=date(at + seconds),
        status="ok",
        message="",
        weights_sha256=["0"],
    )
    log.close()
    return path


def quiet(run, seconds):
    """Set the modification time of a run's log to so long ago."""
    then = time.time() - seconds
    os.utime(run_record.folder(run.id) / "train.jsonl", (then, then))


def measured(values, status="ok", facts=None, tokens=None, **fields):
    """Repeats of one combination as campaigns are compared by, one a throughput (None: none).

    Args:
        tokens: of an item; None of images.
    """
    fields = {
        "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 50,
    } | fields  # fmt: skip
    made = []
    for repeat, value in enumerate(values, start=1):
        run = Run(**fields, repeat=repeat)
        numbers = {}
        if value is not None:
            numbers = {"images_per_second": value, "step_time_mean_s": 8 / (value or 1)}
            numbers |= {"tokens_per_second": tokens * value} if tokens else {}
        every = {name: getattr(run, name) for name in FIELDS}
        made.append(Measured(run.id, every, status, numbers, facts or {"site": "here"}))
    return made


def campaign(*groups, **others):
    return Campaign("place", tuple(run for group in groups for run in group), **others)
