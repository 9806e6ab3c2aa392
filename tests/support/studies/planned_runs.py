"""A study that is planned and never trained, for the tests of planning."""

from pathlib import Path

from dlbench.log import event_log
from dlbench.records import parse_run, run_record
from dlbench.study import config
from support.studies.site_facts import SITE, UNDISTURBED

STUDY = config.read(Path(__file__).parents[3] / "config.yaml") | {
    **UNDISTURBED,
    "study": "test",
    "sentinels": "none",
    "seed": 1,
    "repeats": 2,
    "time_limit_s": 60,
    "site": SITE,
    "matrix": [
        {"name": "block", "model": "lenet5", "dataset": ["synthetic", "digits"],
         "batch_per_device": [8, 16], "steps": 5}
    ],
    "figures": [],
}  # fmt: skip


def finish(run, made_from):
    log = event_log.EventLog(run_record.folder(run.id) / "train.jsonl")
    log.write("launch", t_utc=event_log.utc_now(), made_from=made_from)
    log.start(spec=run.values(), devices=["CPU:0"], total_steps=1)
    log.step(1, 0.5, 0.5, 2.0, 0.01, False, 1)
    log.write(
        "run_end", t_s=0.5, t_utc=event_log.utc_now(), status="ok", message="", weights_sha256=["0"]
    )
    log.close()


def finish_and_read(run, made_from):
    """The log of a run that was trained, and its record."""
    finish(run, made_from)
    folder = run_record.folder(run.id)
    parse_run.parse(run, folder / "train.jsonl", folder / "run.json")
