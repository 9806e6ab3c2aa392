"""Logs and records of successful runs, written without training."""

from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import judgement, parse_run, run_record
from dlbench.study.runs import Run

STEPS = 4
SHORT = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": STEPS,
         "warmup_steps": 1}  # fmt: skip
ONE = Run(**SHORT)
TWO = Run(**SHORT, strategy="horovod", launcher="horovodrun", devices_per_node=2)


def log_of(run, dates=None, launch=None, **end):
    """Write the logs of all ranks. Returns the path of rank 0's.

    Args:
        dates: three, of the launch, of the start of training and of its end; now if not given.
        launch: further fields of the first event.
        end: fields of the last event.
    """
    launched, started, ended = dates or [event_log.utc_now()] * 3
    log = run_record.folder(run.id) / "train.jsonl"
    copies = run.copies_per_node > 1
    for rank in range(run.devices * run.copies_per_node):
        written = EventLog(event_log.rank_path(log, rank))
        if rank == 0:
            more = {"made_from": judgement.made_from(run), "git_commit": None, **(launch or {})}
            written.write("launch", t_utc=launched, **more)
        written.write("begin", t_utc=launched, containment=None)
        start = {"devices": [f"CPU:{rank}"], "total_steps": STEPS, "spec": run.values()}
        place = (0, 1, rank) if copies else (rank, run.devices, 0)
        start |= dict(zip(("rank", "size", "copy"), place, strict=True))
        written.write("run_start", log_version=event_log.LOG_VERSION, t_utc=started, **start)
        for step in range(1, STEPS + 1):
            written.step(step, step * 0.5, 0.5, 2.0, 0.01, step == 1, 1)
        last = {"status": "ok", "message": "", "weights_sha256": ["0"]} | end
        written.write("run_end", t_s=2.0, t_utc=ended, **last)
        written.close()
    return log


def finish(run, **how):
    """Write the logs and the record of a run. Returns its folder."""
    log = log_of(run, **how)
    parse_run.parse(run, log, log.with_name("run.json"))
    return log.parent
