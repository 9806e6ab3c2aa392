"""A stopped run resumes as if it had never stopped: bit for bit, on every strategy."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run
from support.programs import forked
from support.trainers.shards import dataset
from support.trainers.training_runs import FORKED, ended, how_forked

REPOSITORY = Path(__file__).parents[2]
TRAIN = REPOSITORY / "workflow_scripts" / "train.py"
# Dropout, moving averages of the optimizer and a moving learning rate: all that has a state.
FIELDS = {
    "model": "cnn12",
    "dataset": "cifar10",
    "batch_per_device": 4,
    "epochs": 7,
    "optimizer": "momentum",
    "learning_rate_warmup_steps": 120,
    "deterministic": True,
}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    random = np.random.default_rng(1)

    def item(index):
        return {"image/encoded": random.bytes(3072), "image/class/label": [index % 10]}

    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    return dataset(tmp_path_factory.mktemp("data") / "cifar10", 101, 3, reader, item)


def command(run, folder, *flags, data=None):
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(folder / "train.jsonl")]
    trainer += ["--checkpoint", str(folder / "checkpoint"), *flags]
    trainer += ["--data", str(data)] if data else []
    return plugins.load("launchers", run.launcher).command(
        run, trainer, Path(sys.executable).parents[1]
    )


def train(run, folder, *flags, data=None):
    folder.mkdir(exist_ok=True)
    return ended(command(run, folder, *flags, data=data), run)


def stopped(run, folder, after_step, how, *flags, data=None):
    """Train until some step is logged, stop it, and wait for its end."""
    folder.mkdir(exist_ok=True)
    words = command(run, folder, *flags, data=data)
    if run.launcher in FORKED and how is not kill:
        process = forked.start(**how_forked(words, run))
    else:
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    log = folder / "train.jsonl"
    while not (log.is_file() and f'"step": {after_step},' in log.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    how(process, folder)
    messages = process.communicate(timeout=120)[1]
    return process.returncode, messages


def send(number):
    return lambda process, folder: process.send_signal(number)


def kill(process, folder):
    os.killpg(process.pid, signal.SIGKILL)


def ask_by_file(process, folder):
    (folder / "checkpoint").mkdir(exist_ok=True)
    (folder / "checkpoint" / "stop").touch()


def events(folder, kind, rank=0):
    path = event_log.rank_path(folder / "train.jsonl", rank)
    return [event for event in event_log.read(path) if event["event"] == kind]


def result(folder, ranks=1):
    """Weights, losses, rates and scores; what must be the same bit for bit."""
    return [
        [
            events(folder, "run_end", rank)[0]["weights_sha256"],
            [(s["step"], s["loss"], s["learning_rate"]) for s in events(folder, "step", rank)],
            [(e["step"], e["loss"], e["top1"]) for e in events(folder, "eval", rank)],
        ]
        for rank in range(ranks)
    ]


@pytest.fixture(scope="module")
def whole(images, tmp_path_factory):
    """The run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    finished = train(Run(**FIELDS), folder, data=images)
    assert finished.returncode == 0, finished.stderr
    assert not (folder / "checkpoint").exists()
    return folder


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("how", "code", "flags"),
    [
        (send(signal.SIGTERM), 75, ()),
        (send(signal.SIGUSR1), 75, ()),
        (ask_by_file, 75, ()),
        (kill, -signal.SIGKILL, ("--checkpoint-every-min", "0.0001")),
    ],
    ids=["SIGTERM", "SIGUSR1", "file", "SIGKILL"],
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(how, code, flags, images, whole, tmp_path):
    run = Run(**FIELDS)
    returncode, messages = stopped(run, tmp_path, 30, how, *flags, data=images)
    assert returncode == code, messages
    if code == 75:
        assert "with a checkpoint after step" in messages
        assert not events(tmp_path, "run_end")
    (tmp_path / "checkpoint" / "stop").unlink(missing_ok=True)
    assert train(run, tmp_path, data=images).returncode == 0
    (resume,) = events(tmp_path, "resume")
    assert 0 < resume["step"] < events(whole, "run_start")[0]["total_steps"]
    assert result(tmp_path) == result(whole)
    times = [step["t_s"] for step in events(tmp_path, "step")]
    assert times == sorted(times)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"strategy": "horovod", "launcher": "horovodrun"},
        {"strategy": "mirrored"},
        {"strategy": "multiworker", "launcher": "local"},
    ],
    ids=lambda how: how["strategy"],
)
def test_two_devices_go_on_bit_for_bit(how, images, tmp_path):
    # Devices wait for one another in each step: in half of the epochs there are enough.
    run = Run(**FIELDS | how | {"epochs": 4, "devices_per_node": 2})
    ranks = 1 if how["strategy"] == "mirrored" else 2
    assert train(run, tmp_path / "whole", data=images).returncode == 0
    code, messages = stopped(run, tmp_path / "parts", 12, ask_by_file, data=images)
    assert code != 0
    assert "with a checkpoint after step" in messages
    (tmp_path / "parts" / "checkpoint" / "stop").unlink()
    finished = train(run, tmp_path / "parts", data=images)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert events(tmp_path / "parts", "resume")
    assert result(tmp_path / "parts", ranks) == result(tmp_path / "whole", ranks)


@pytest.fixture(scope="module")
def half(images, tmp_path_factory):
    """A run that was stopped."""
    folder = tmp_path_factory.mktemp("half")
    assert stopped(Run(**FIELDS), folder, 20, send(signal.SIGTERM), data=images)[0] == 75
    return folder


def test_the_log_is_restored_where_the_workflow_deleted_it(half, images, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    (folder / "train.jsonl").write_text('{"event": "launch", "command": []}\n')
    assert train(Run(**FIELDS), folder, data=images).returncode == 0
    assert result(folder) == result(whole)
    kinds = [event["event"] for event in event_log.read(folder / "train.jsonl")]
    at = kinds.index("launch")
    assert kinds[at : at + 5] == ["launch", "begin", "stage", "stage", "resume"]
    assert kinds[:4] == ["begin", "stage", "stage", "run_start"]


def test_steps_after_a_resume_are_warm_up(half, images, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    assert train(Run(**FIELDS), folder, data=images).returncode == 0
    (resume,) = events(folder, "resume")
    first = resume["step"] + 1
    marked = {step["step"] for step in events(folder, "step") if step["warm_up"]}
    assert set(range(first, first + 10)) <= marked


def test_a_checkpoint_of_another_run_is_refused(half, images, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    before = (folder / "train.jsonl").read_bytes()
    finished = train(Run(**FIELDS | {"batch_per_device": 5}), folder, data=images)
    assert finished.returncode == 1
    assert "is a checkpoint of another run (batch_per_device: 4 there, 5 here)" in finished.stderr
    assert (folder / "checkpoint" / "latest.json").is_file()
    assert (folder / "train.jsonl").read_bytes().startswith(before)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "latest.json").write_text("{"), "latest.json is damaged"),
        (lambda f: damage_arrays(f), "cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_what_to_do(damage, message, half, images, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    damage(folder / "checkpoint")
    finished = train(Run(**FIELDS), folder, data=images)
    assert finished.returncode == 1
    assert message in finished.stderr
    assert "to begin anew" in finished.stderr


def damage_arrays(folder):
    (path,) = folder.glob("step-*/rank0.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(half, images, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    step = json.loads((folder / "checkpoint/latest.json").read_text())["step"]
    torn = folder / "checkpoint" / f"step-{step + 5}"
    torn.mkdir()
    (torn / "rank0.npz").write_bytes(b"PK torn")
    assert train(Run(**FIELDS), folder, data=images).returncode == 0
    assert result(folder) == result(whole)
