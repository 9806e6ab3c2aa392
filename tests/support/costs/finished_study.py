"""Finished studies without training, to measure a start that has nothing to do."""

import os
from pathlib import Path

from dlbench.log import event_log
from dlbench.records import judgement, parse_run, run_record
from dlbench.study import config


def finish(campaign):
    """Write the log of every run without a record and parse it; the workflow does the rest."""
    before = Path.cwd()
    os.chdir(campaign.folder)
    try:
        for run in config.study(config.read("config.yaml")).runs:
            if not (run_record.folder(run.id) / "run.json").is_file():
                _end(run)
    finally:
        os.chdir(before)
    campaign.succeed("--quiet", "all", "--", "images", "all")


def _end(run):
    place = run_record.folder(run.id)
    log = event_log.EventLog(place / "train.jsonl")
    log.write("launch", t_utc=event_log.utc_now(), made_from=judgement.made_from(run))
    log.start(
        spec=run.values(),
        versions={"tensorflow": "2.18.1"},
        device_model="none",
        host="none",
        devices=["0"] * run.devices,
        total_steps=2,
    )
    for step in (1, 2):
        log.step(step, 0.1 * step, 0.1, 2.3, 0.01, False, 1)
    log.write(
        "run_end", t_s=0.2, t_utc=event_log.utc_now(), status="ok", message="", weights_sha256=["0"]
    )
    log.close()
    parse_run.parse(run, place / "train.jsonl", place / "run.json")


def finish_bare(folder, runs):
    """Make the files of a bare workflow's runs; the rest it makes by itself."""
    for number in range(runs):
        place = folder / f"results/runs/model-dataset-b{number}-r1-0123456789"
        place.mkdir(parents=True, exist_ok=True)
        for name in ("train.jsonl", "run.json"):
            (place / name).touch()
