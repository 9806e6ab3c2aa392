"""Results folders and archives with records of invented runs, without training."""

import copy
import json
import zipfile
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

from dlbench.archive import crate
from dlbench.common.files import sha256
from dlbench.records import run_record
from dlbench.study.runs import Run

EARLY = Path(__file__).parents[2] / "data" / "archive_of_6301a48.zip"
FIRST = datetime(2026, 1, 5, 8, tzinfo=timezone.utc)
GPU = {"name": "NVIDIA H100 80GB HBM3", "vbios": "96.00", "power_limit_w": 700.0}


def date(week):
    return FIRST + timedelta(weeks=week)


def session_id(week):
    return f"{date(week):%Y%m%dT%H%M%SZ}-{week:06x}"


@cache
def _early_record():
    with zipfile.ZipFile(EARLY) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/run.json"))
        return json.loads(archive.read(name))


def add_session(folder, week, rates, started_at=None, ended=True, session="", fields=(), **facts):
    """Write the runs of a session into a results folder.

    Args:
        rates: {batch: throughputs of its repeats, None for a run that failed}.
        fields: further ones of the runs.
        facts: of `record`.
    """
    made = {"model": "lenet5", "dataset": "synthetic", "steps": 50} | dict(fields)
    folder, session = Path(folder), session or session_id(week)
    for batch, values in rates.items():
        for repeat, value in enumerate(values, start=1):
            run = Run(batch_per_device=batch, repeat=repeat, **made)
            start = started_at or date(week) + timedelta(minutes=repeat)
            place = folder / "runs" / run.id
            place.mkdir(parents=True, exist_ok=True)
            log = place / "train.jsonl"
            log.write_text(json.dumps([session, run.id, value]) + "\n")
            content = record(run, value, start, session, **facts) | {"log_sha256": sha256(log)}
            run_record.write(place / "run.json", content, [log])
    (folder / "sessions").mkdir(exist_ok=True)
    (folder / "sessions" / "current.json").write_text(json.dumps({"id": session}))
    if ended:
        (folder / "sessions" / f"{session}.done").touch()
    return folder


def record(
    run,
    value,
    start,
    session,
    site="here",
    driver="550.54",
    host="n1",
    gpus=0,
    metrics=(),
    data=None,
    disturbed=None,
    cpu=None,
    **software,
):
    made = copy.deepcopy(_early_record())
    provenance, summary = made["provenance"], made["summary"]
    (hardware,) = provenance["hardware"].values()
    hardware["cpu"] |= cpu or {}
    if gpus:
        hardware["gpus"] = {"driver": driver, "cuda_driver": "12.4", "kinds": [GPU]}
        pairs = [[a, b, "NVLink"] for b in range(gpus) for a in range(b)]
        provenance["present"] |= {"gpus": [{"uuid": "GPU-0"}], "gpu_links": pairs}
    else:
        hardware["gpus"]["driver"] = driver
    (facts,) = provenance["software"].values()
    facts |= software
    provenance |= {"site": {"name": site}, "hosts": [host], "data_sha256": data}
    provenance["session"] = {"id": session} if session != "none" else None
    summary |= {"images_per_second": value, "started_at": f"{start:%Y-%m-%dT%H:%M:%S.%fZ}"}
    if value:  # numbers that contradict one another would be withheld
        step_s = run.global_batch / value
        summary |= {f"step_time_{name}_s": step_s for name in ("mean", "median", "p95")}
        summary |= {"steps_measured": run.steps, "duration_s": 60 + run.steps * step_s}
    if disturbed:
        summary["disturbed"] = disturbed
    if metrics:
        summary["metrics"] = list(metrics)
    return {key: value for key, value in made.items() if key in run_record.KEYS} | {
        "run_id": run.id,
        "spec": run.values(),
        "status": "ok" if value else "failed",
    }


def archive(folder, output, name="study"):
    """Write an archive of a results folder, as write_archive.py does with one of a study."""
    files = {
        f"results/{path.relative_to(folder)}": path
        for path in sorted(Path(folder).glob("runs/*/**/*"))
        if path.is_file()
    }
    files["config.yaml"] = f"study: {name}\n".encode()
    crate.write(output, files, [("Source-Organization", "tests")])
    return output
