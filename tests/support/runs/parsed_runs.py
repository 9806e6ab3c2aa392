"""Logs of runs for tests, and their records."""

import dataclasses
import json

from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=32, steps=3)
TWO = dataclasses.replace(RUN, strategy="horovod", launcher="horovodrun", devices_per_node=2)


def write(
    folder,
    times,
    rank=0,
    status="ok",
    message="",
    weights=("0",),
    losses=None,
    warm_up=1,
    epoch=lambda step: 1,
    **end,
):
    """A log whose first `warm_up` steps are warm-up; None for `status` leaves out run_end."""
    log = EventLog(event_log.rank_path(folder / "train.jsonl", rank))
    log.start(
        spec={},
        versions={"tensorflow": "2.18.1"},
        parameters=61706,
        total_steps=len(times),
        devices=[f"CPU:{index}" for index in range(len(weights))],
    )
    log.write("compile", trace_s=0.5)
    t_s = 0.0
    for index, time in enumerate(times, start=1):
        t_s += time
        loss = losses[index - 1] if losses else 2.0
        log.step(index, t_s, time, loss, 0.01, index <= warm_up, epoch(index))
    if status:
        log.write(
            "run_end",
            t_s=t_s,
            t_utc=event_log.utc_now(),
            status=status,
            message=message,
            weights_sha256=list(weights),
            **end,
        )
    log.close()


def parsed(folder, run=RUN):
    for path in event_log.rank_paths(folder / "train.jsonl"):
        text = path.read_text().replace('"spec": {}', f'"spec": {json.dumps(run.values())}')
        path.write_text(text)
    parse_run.parse(run, folder / "train.jsonl", folder / "run.json")
    return run_record.read(folder / "run.json")
