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
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run
from support.trainers.training_runs import LEARNING, TRAIN, events

BACK_S = 3600
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


@pytest.fixture
def clock(tmp_path):
    """(library, file that sets the clock back once it is there)."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if not compiler:
        pytest.skip("there is no compiler here")
    stepped = tmp_path / "stepped"
    (tmp_path / "clock.c").write_text(f'#define STEPPED "{stepped}"\n{SOURCE}')
    library = tmp_path / "clock.so"
    flags = ["-x", "c", "-shared", "-fPIC", "-O2"]
    subprocess.run([compiler, *flags, "-o", library, tmp_path / "clock.c", "-ldl"], check=True)
    return library, stepped


@pytest.mark.slow
def test_a_clock_that_is_set_back_changes_dates_alone(clock, digits, tmp_path, monkeypatch):
    library, stepped = clock
    monkeypatch.chdir(tmp_path)
    run = Run(model="lenet5", batch_per_device=32, **LEARNING | {"epochs": 4})
    log = tmp_path / "train.jsonl"
    command = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log), "--data", str(digits)]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as trainer:
        while trainer.poll() is None and not (log.is_file() and b'"step"' in log.read_bytes()):
            time.sleep(0.02)
        stepped.touch()
        _, said = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, said.decode()[-2000:]
    (start,), (end,) = events(log, "run_start"), events(log, "run_end")
    elapsed_s = event_log.seconds_between(start["t_utc"], end["t_utc"])
    assert -BACK_S < elapsed_s < -BACK_S / 2, "the clock was not set back"
    steps = events(log, "step")
    times = np.array([[step["t_s"], step["step_time_s"]] for step in steps])
    assert (np.diff(times[:, 0]) > 0).all() and (times[:, 1] > 0).all()
    assert times[:, 1].sum() <= end["t_s"] < 120
    parse_run.parse(run, log, tmp_path / "run.json")
    summary = run_record.read(tmp_path / "run.json")["summary"]
    assert summary["duration_s"] == end["t_s"]
    measured = summary["steps_measured"]
    assert measured > len(steps) / 2
    rate = 32 * measured / times[-measured:, 1].sum()
    assert summary["images_per_second"] == pytest.approx(rate, rel=1e-3)
    assert all(value >= 0 for name, value in summary.items() if name.endswith("_s") and value)
