"""train_external: a program of others is sampled and ended from outside."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from dlbench.imports import train_external
from dlbench.imports.importers.dlbench import Relay
from dlbench.imports.train_external import Watching
from dlbench.log.event_log import EventLog
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = Run(model="m", dataset="d", batch_per_device=8, steps=3, trainer="theirs", framework="x")
BUSY = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\n"


@pytest.fixture
def watch(tmp_path):
    """A function that runs a Python program; its events are in `watch.events` afterwards."""
    folder = tmp_path / "output"
    folder.mkdir()

    def run(code, **watching):
        log = EventLog(tmp_path / "train.jsonl")
        logged = folder / other_trainers.LOGGED
        relay = Relay(RUN, logged, tmp_path / "train.jsonl", log)
        variables = other_trainers.log_variables(RUN, folder)
        log.begin()
        how = Watching(**watching)
        ended = train_external.run_watched([*PYTHON, code], folder, log, how, variables, relay)
        lines = (tmp_path / "train.jsonl").read_text().splitlines()
        run.events = [json.loads(line) for line in lines]
        return ended

    run.folder = folder
    return run


def test_a_program_is_sampled_with_the_processes_that_it_starts(watch):
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {BUSY!r}])"
    ended = watch(code, sample_every_s=0.2)
    samples = [event for event in watch.events if event["event"] == "sample"]
    assert max(each["cpu_percent"] or 0 for each in samples) > 2
    assert max(each["memory_bytes"] or 0 for each in samples) > 2**20
    assert all("load_average_1min" in each for each in samples)
    assert ended.use["cpu_time_s"] > 0.05 and ended.use["peak_memory_bytes"] > 2**20
    assert ended.use["energy_unknown"] == "no GPUs"
    assert samples[-1]["t_s"] == pytest.approx(ended.seconds, abs=1)


def test_without_an_interval_there_are_no_samples(watch):
    assert watch("print(1)").use == {}
    assert [event for event in watch.events if event["event"] in ("sample", "sampling")] == []


def test_the_energy_of_several_nodes_is_not_that_of_the_first(watch):
    use = watch("print(1)", sample_every_s=1.0, nodes=2).use
    assert use["energy_j"] is use["host_energy_j"] is use["cpu_time_s"] is None
    assert use["host_energy_unknown"] == "samples are of the first of 2 nodes"


def test_a_program_that_prints_too_much_is_ended_with_a_reason(watch, monkeypatch):
    monkeypatch.setattr(train_external, "MAX_PRINTED_BYTES", 2**20)
    monkeypatch.setattr(train_external, "LOOK_EVERY_S", 0.05)
    ended = watch("while True: print('y' * 10000)")
    assert ended.too_much.startswith("it printed more than 1 MiB") and ended.exit_code


def test_files_that_grow_are_a_sign_of_life_also_below_its_folder(watch, monkeypatch):
    monkeypatch.setattr(train_external, "LOOK_EVERY_S", 0.05)
    path = watch.folder / "logs" / "a"
    code = f"import os, time\nos.mkdir({str(path.parent)!r})\nfor n in range(9):\n"
    code += f"  open({str(path)!r}, 'a').write('x'); time.sleep(0.06)"
    watch(code)
    sizes = [event["bytes"] for event in watch.events if event["event"] == "output"]
    assert len(sizes) > 2 and sizes == sorted(sizes)


@pytest.mark.ci
def test_what_it_logs_is_copied_meanwhile_and_samples_have_its_clock(watch, monkeypatch):
    monkeypatch.setattr(train_external, "LOOK_EVERY_S", 0.05)
    code = f"import sys, time; sys.path.append({str(REPOSITORY / 'programs/logger')!r})\n"
    code += "import dlbench_log; time.sleep(0.7); log = dlbench_log.Log()\n"
    code += "for n in range(3):\n  with log.step(): time.sleep(0.3)"
    watch(code, sample_every_s=0.1)
    kinds = [event["event"] for event in watch.events]
    started, ended = kinds.index("run_start"), len(kinds) - 1 - kinds[::-1].index("step")
    assert kinds.count("step") == 3 and "output" in kinds[started:ended]
    times = [event["t_s"] for event in watch.events if event["event"] == "sample"]
    assert times == sorted(times) and times[0] < -0.6 < 0.6 < times[-1]


def test_a_signal_is_passed_on_and_what_the_program_says_then_is_kept(watch):
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGUSR1, lambda *_: sys.exit('saved'))\nprint('on', flush=True)\n"
    code += "time.sleep(60)"
    printed = watch.folder / other_trainers.PRINTED

    def send():
        while not (printed.exists() and printed.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    assert watch(code, stop_signal="SIGUSR1").exit_code == 1
    sender.join()
    assert printed.read_text() == "on\nsaved\n"
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_the_size_of_a_folder_is_that_of_all_files_below_it(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, size in (("one", 5), ("a/two", 7), ("a/b/three", 11)):
        (tmp_path / name).write_bytes(b"x" * size)
    for name, target in (("a/again", "b"), ("a/latest", "two")):  # links are as long as a name
        (tmp_path / name).symlink_to(target)
    assert train_external.bytes_below(tmp_path) == 23 + 1 + 3
    assert train_external.bytes_below(tmp_path / "none") == 0
