"""What it costs to aggregate thousands of finished runs of 1 000 steps each.

Makes a study of finished runs in a temporary folder: per run a log with every step, its record,
and its tables of steps, evaluations and samples. Measured are CPU seconds (user and system, Python
and its imports included) and peak memory of a process each:
- `collect_runs.py`, as the workflow starts it when one more run has ended: reads every record and
  sees that it is whole, reads every log to the last byte to compare its digest, sees that every
  run's tables are of that log, and writes the tables of runs, evaluations, coverage, comparisons
  and speedups. Rows of steps are none of these: they were summed up when each run ended;
- a bare loop in pyarrow that reads one column of every steps.parquet: what files and format cost;
- `dlbench export`: every row of every table into one dataset.
The targets: a CPU-second, three quarters of a millisecond more for each run, and 300 MB.
"""

import functools
import itertools
import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from dlbench.analysis import run_tables
from dlbench.log import event_log
from dlbench.records import judgement, parse_run, run_record
from dlbench.study import config
from support.runs.made_runs import SETTINGS, date

from . import REPOSITORY, measuring

REPEATS, DEVICES = 5, (1, 2, 4, 8)
TARGET_S, TARGET_S_PER_RUN, TARGET_MB = 1, 0.00075, 300
BARE = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
rows = 0
for path in Path("results/runs").glob("*/steps.parquet"):
    with pq.ParquetFile(path) as file:
        rows += len(file.read(columns=["step_time_s"])["step_time_s"].to_numpy())
print(rows, file=sys.stderr)
"""


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--runs", type=int, default=4_000)
    parser.add_argument("--steps", type=int, default=1_000)
    args = parser.parse_args()
    figures = measuring.Figures(args.json)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("config.yaml", "envs", "workflow_scripts"):
            Path(name).symlink_to(REPOSITORY / name)
        settings = study(args.runs)
        Path("config.json").write_text(json.dumps(settings))
        runs = config.study(settings).runs
        make(runs, args.steps)
        print(f"{len(runs)} runs of {args.steps} steps", flush=True)
        programs(figures, runs)


def programs(figures, runs):
    def program(name, *options):
        return [sys.executable, f"workflow_scripts/{name}", *options]

    collect = program("collect_runs.py", "--config", "config.json")
    export = program("dlbench", "export", "--configfile", "config.json", "--output", "dataset")
    measuring.run(collect)
    ours, bare = measuring.run(collect), measuring.run([sys.executable, "-c", BARE])
    of, target_s = f"{len(runs)} runs", TARGET_S + TARGET_S_PER_RUN * len(runs)
    figures.add(f"collect_runs.py, {of}, CPU time", ours.cpu_s, "s", at_most=target_s)
    figures.add(f"collect_runs.py, {of}, memory", ours.peak_mb, "MB", at_most=TARGET_MB)
    figures.add("its CPU time over a bare loop's over steps.parquet", ours.cpu_s / bare.cpu_s)
    figures.add("dlbench export, CPU time", measuring.run(export).cpu_s, "s")


def study(runs):
    """A sweep of batch sizes and devices, repeated, whose conditions are compared."""
    batches = max(1, runs // (REPEATS * len(DEVICES)))
    block = {
        "name": "many", "model": "lenet5", "dataset": "synthetic", "strategy": "mirrored",
        "steps": 100, "batch_per_device": list(range(1, batches + 1)),
        "devices_per_node": list(DEVICES),
    }  # fmt: skip
    return SETTINGS | {"matrix": [block], "repeats": REPEATS}


def make(runs, steps):
    """Logs, records and tables of finished runs, each with step times of its own."""
    with ProcessPoolExecutor() as pool:
        list(pool.map(functools.partial(make_run, steps=steps), runs, chunksize=8))


def make_run(run, steps):
    """One run as the workflow leaves it: a log as a trainer writes it, then our own programs."""
    random = np.random.default_rng(int(run.id[-10:], 16))
    log = run_record.folder(run.id) / "train.jsonl"
    write_log(log, run, np.round(random.normal(0.1, 0.002, steps), 7).tolist())
    parse_run.parse(run, log, log.with_name("run.json"))
    record = run_record.read(log.with_name("run.json"))
    run_tables.ensure_run_tables(run.id, record["log_sha256"])


def write_log(path, run, step_times_s):
    steps, ends_s = len(step_times_s), list(itertools.accumulate(step_times_s))
    log = event_log.EventLog(path)
    log.write("launch", t_utc=date(0), made_from=judgement.made_from(run), command=["train"] * 20)
    log.write("begin", t_utc=date(1))
    log.write(
        "run_start",
        t_utc=date(2),
        spec=run.values(),
        total_steps=steps,
        host="far",
        device_model="none",
        devices=["0"] * run.devices,
        versions={"tensorflow": "2.18.1"},
    )
    for step, (t_s, step_time_s) in enumerate(zip(ends_s, step_times_s, strict=True), start=1):
        log.step(step, t_s, step_time_s, 2.3 - step / steps, 0.01, step <= steps // 10, 1)
    for second in range(int(ends_s[-1])):
        log.write("sample", t_s=float(second), cpu_percent=99.5, memory_bytes=1 << 30)
    log.write(
        "eval",
        epoch=1,
        step=steps,
        t_s=ends_s[-1],
        split="validation",
        loss=0.5,
        top1=0.95,
        examples=360,
    )
    log.write(
        "run_end",
        t_s=ends_s[-1],
        t_utc=date(ends_s[-1]),
        status="ok",
        message="",
        weights_sha256=["0"],
    )
    log.close()


if __name__ == "__main__":
    main()
