"""Studies of runs that were written here, to be collected."""

import pytest

from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import judgement, parse_run, run_record
from dlbench.study import config, trainer_environments
from support.studies.site_facts import SITE

SETTINGS = config.read(trainer_environments.ENVIRONMENTS.resolve().parent / "config.yaml") | {
    "study": "test", "repeats": 1, "site": SITE, "figures": [],
}  # fmt: skip
PLAIN = {
    "name": "plain", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 2,
}  # fmt: skip
PROCESS = {
    "t_s": 0.5,
    "cpu_percent": 99.5,
    "memory_bytes": 1 << 30,
    "node_cpu_percent": 51.0,
    "node_memory_available_bytes": 8 << 30,
    "load_average_1min": 1.25,
}


@pytest.fixture(autouse=True)
def folder(project):
    return project


def study(*blocks, **changes):
    return config.study(SETTINGS | {"matrix": list(blocks)} | changes)


def finished(run, samples=(), top1=None, ranks=1, start=None, made_from=None, **end):
    """The log and the record of a run; `samples` are written by every rank."""
    place = run_record.folder(run.id)
    for rank in range(ranks):
        log = EventLog(event_log.rank_path(place / "train.jsonl", rank))
        if rank == 0:
            log.write(
                "launch", t_utc=event_log.utc_now(), made_from=made_from or judgement.made_from(run)
            )
        log.start(
            **{
                "spec": run.values(),
                "devices": ["CPU:0"],
                "total_steps": 2,
                "item_shape": [8, 8, 1],
                "versions": {"tensorflow": "2.18.1"},
            }
            | (start or {})
        )
        for step in (1, 2):
            log.step(step, step * 0.5, 0.5, 2.0, 0.01, False, 1)
        for sample in samples:
            log.write("sample", **sample)
        if top1 is not None and rank == 0:
            log.write(
                "eval", epoch=1, step=2, t_s=1.2, split="test", loss=0.5, top1=top1, examples=360
            )
        values = {"status": "ok", "message": "", "weights_sha256": ["0"]} | end
        log.write("run_end", t_s=1.5, t_utc=event_log.utc_now(), **values)
        log.close()
    parse_run.parse(run, place / "train.jsonl", place / "run.json")
    return place
