"""A machine whose clock is set back by an hour while it trains: times stay what they are.

The clock is really another one: a library between the trainer and libc, from the given second on.
"""

import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from dlbench.log import event_log
from dlbench.records import parse_run
from dlbench.study.runs import Run
from support.trainers.training_runs import LEARNING, TRAIN, events

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
/* The clock is set back once the file STEPPED is there. */
int clock_gettime(clockid_t id, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, t);
  if (!code && id == CLOCK_REALTIME && !access(STEPPED, F_OK)) t->tv_sec -= 3600;
  return code;
}
"""


def test_a_clock_that_is_set_back_changes_dates_alone(digits, tmp_path):
    compiler = shutil.which("cc") or shutil.which("g++")
    if not compiler:
        pytest.skip("there is no compiler here")
    library, stepped, log = (tmp_path / name for name in ("clock.so", "stepped", "train.jsonl"))
    (tmp_path / "clock.c").write_text(f'#define STEPPED "{stepped}"\n{SOURCE}')
    flags = ["-x", "c", "-shared", "-fPIC", "-O2", "-o", library, tmp_path / "clock.c", "-ldl"]
    subprocess.run([compiler, *flags], check=True)
    run = Run(model="lenet5", batch_per_device=32, **LEARNING | {"epochs": 4})
    command = [sys.executable, TRAIN, *run.flags(), "--log", log, "--data", digits]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as trainer:
        while trainer.poll() is None and not (log.is_file() and b'"step"' in log.read_bytes()):
            time.sleep(0.02)
        stepped.touch()
        _, said = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, said.decode()[-2000:]
    (start,), (end,), steps = (events(log, kind) for kind in ("run_start", "run_end", "step"))
    elapsed_s = event_log.seconds_between(start["t_utc"], end["t_utc"])
    assert -3600 < elapsed_s < -1800, "the clock was not set back"
    times = np.array([[step["t_s"], step["step_time_s"]] for step in steps])
    assert (np.diff(times[:, 0]) > 0).all() and (times[:, 1] > 0).all()
    assert times[:, 1].sum() <= end["t_s"] < 120
    summary = parse_run.content(run, parse_run.rank_logs(log))["summary"]
    assert summary["duration_s"] == end["t_s"]
    measured = summary["steps_measured"]
    assert measured > len(steps) / 2
    rate = 32 * measured / times[-measured:, 1].sum()
    assert summary["images_per_second"] == pytest.approx(rate, rel=1e-3)
    assert all(value >= 0 for name, value in summary.items() if name.endswith("_s") and value)
