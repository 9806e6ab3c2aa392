"""programs/logger/dlbench_log.py: the logger of one file, as programs of others use it."""

import ast
import os
import subprocess
import sys

import pytest

from dlbench.log import event_fields
from support.machines import pythons
from support.machines.paths import REPOSITORY

LOGGER = REPOSITORY / "programs/logger/dlbench_log.py"
OLDEST = pythons.find("3.6") or sys.executable
LOOP = """
log = dlbench_log.Log("train.jsonl")
for number in range(4):
    with log.step():
        log.loss(0.5)
"""


def start(folder, code, python=sys.executable, **variables):
    """Run a program that may use the logger. Returns what it printed on stderr."""
    kept = {name: value for name, value in os.environ.items() if "RANK" not in name}
    environ = kept | {"PYTHONPATH": str(LOGGER.parent)} | variables
    command = [python, "-c", f"import dlbench_log, os, sys, time\n{code}"]
    finished = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


def events(folder, name="train.jsonl", kind=None):
    """The events of a log, each of which passes the checks of dlbench's own and is found by it."""
    lines = (folder / name).read_bytes().splitlines()
    found = [event_fields.parse_event(line) for line in lines]
    for line, event in zip(lines, found, strict=True):
        assert line.startswith(b'{"event": "%s", ' % event["event"].encode())
        assert event["event"] != "step" or b'"warm_up": ' in line
    return [event for event in found if kind in (None, event["event"])]


def test_it_is_written_for_python_3_6_and_has_nothing_but_the_standard_library():
    tree = ast.parse(LOGGER.read_text(), feature_version=(3, 6))
    names = [n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert set(names) <= sys.stdlib_module_names


@pytest.mark.parametrize("python", [sys.executable, OLDEST], ids=["this", "oldest"])
def test_a_loop_is_logged_step_by_step_with_evaluations_checkpoints_and_waits(tmp_path, python):
    code = """
log = dlbench_log.Log("train.jsonl", warmup_steps=1, global_batch=64)
for epoch in (1, 2):
    log.epoch(epoch)
    for item in log.data([1, 2]):
        with log.step():
            log.loss(item / 4, learning_rate=0.1)
    log.evaluation(loss=0.25, top1=0.5, examples=10, f1=0.75)
    with log.checkpoint():
        time.sleep(0.05)
with log.step(), log.part("exchange"):
    time.sleep(0.02)
log.metric("bandwidth", 3, "GB/s", better="higher")
"""
    assert start(tmp_path, code, python) == ""
    found = events(tmp_path)
    assert [event["event"] for event in found[:3]] == ["begin", "stage", "run_start"]
    assert found[2]["stated"] == {"global_batch": 64}
    steps = events(tmp_path, kind="step")
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    assert [step["warm_up"] for step in steps] == [True, False, False, False, False]
    assert [step.get("loss") for step in steps] == [0.25, 0.5, 0.25, 0.5, None]
    assert [step["epoch"] for step in steps] == [1, 1, 2, 2, 2]
    assert steps[0]["learning_rate"] == 0.1
    # A step begins where the one before, or what was between them, ended.
    starts = [step["t_s"] - step["step_time_s"] for step in steps]
    assert starts[1] == pytest.approx(steps[0]["t_s"], abs=1e-6)
    assert starts[2] >= steps[1]["t_s"] + 0.05
    first, _ = events(tmp_path, kind="eval")
    assert (first["step"], first["top1"], first["examples"], first["epoch"]) == (2, 0.5, 10, 1)
    assert [event["step"] for event in events(tmp_path, kind="checkpoint")] == [2, 4]
    parts = events(tmp_path, kind="parts")
    assert parts[-1]["seconds"]["exchange"] >= 0.02 and "data_wait" in parts[0]["seconds"]
    named = {event["name"]: event["value"] for event in events(tmp_path, kind="metric")}
    assert named == {"f1": 0.75, "bandwidth": 3.0}
    assert found[-1]["event"] == "run_end" and found[-1]["status"] == "ok"


def test_what_json_does_not_have_is_stated_as_text(tmp_path):
    stated = "limit=float('inf'), shape=[3, 4], options={1: object}"
    assert start(tmp_path, LOOP.replace(")", f", {stated})", 1)) == ""
    (found,) = events(tmp_path, kind="run_start")
    options = "{1: <class 'object'>}"
    assert found["stated"] == {"limit": "inf", "shape": "[3, 4]", "options": options}


def test_a_window_has_the_mean_of_its_steps_and_waits_for_the_device_once(tmp_path):
    code = """
waits = []
log = dlbench_log.Log("train.jsonl", warmup_steps=1, synchronize=lambda: waits.append(1))
log.window(3)
for number in range(7):
    with log.step():
        log.loss(number)
log.close()
assert len(waits) == 2, waits
"""
    start(tmp_path, code)
    first, second, last = events(tmp_path, kind="step")
    assert [first["step"], second["step"], last["step"]] == [3, 6, 7]
    assert (first["window_steps"], first["losses"], first["loss"]) == (3, [0.0, 1.0, 2.0], 2.0)
    assert "window_steps" not in last  # the end cut it short
    assert first["warm_up"] and not second["warm_up"]
    assert second["step_time_s"] * 3 == pytest.approx(second["t_s"] - first["t_s"], abs=1e-6)
    assert events(tmp_path, kind="windows")[0]["steps_per_sync"] == 3


def test_a_loss_may_come_after_its_step_as_anything_that_float_takes(tmp_path):
    code = """
from fractions import Fraction
log = dlbench_log.Log("train.jsonl")
log.evaluation(top1=0.1)
for loss in (Fraction(1, 2), float("nan"), 3):
    with log.step():
        pass
    log.loss(loss)
"""
    assert start(tmp_path, code) == ""
    losses = [str(step["loss"]) for step in events(tmp_path, kind="step")]
    assert losses == ["0.5", "nan", "3.0"]
    assert events(tmp_path, kind="eval")[0]["step"] == 0  # before any step


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("with log.step(), log.step(): pass", "a step inside a step: only the outer one counts"),
        ("with log.step(): log.loss('high')", "loss: expected a number, found 'high'"),
        ("log.evaluation(); log.loss(0.5)", "a loss outside of steps is left out"),
        ("log.window(0)", "window: expected a number of steps, found 0"),
        ("log.metric('a b', 1)", "expected a name of letters, digits and _, found 'a b'"),
        ("log.metric('a', float('inf'))", "metric a: expected a finite number, found inf"),
        ("log.metric('a', 1, better='more')", 'expected better to be "higher", "lower" or ""'),
        ("log.evaluation(top1='good')", "top1: expected a number, found 'good'"),
        ("log.evaluation(examples='all')", "examples: expected a number, found 'all'"),
        ("log.epoch('first')", "epoch: expected a number, found 'first'"),
        ("with log.step(), log.checkpoint(): pass", "a checkpoint inside a step"),
        ("log.close(); log.close(); log.loss(1)", "the log is closed"),
    ],
)
def test_what_is_wrong_is_printed_once_noted_and_ends_no_training(tmp_path, line, remark):
    printed = start(tmp_path, f"{LOOP}for _ in range(2):\n    {line}")
    (said,) = printed.splitlines()
    assert said.startswith("dlbench_log: ") and remark in said
    if "close" not in line:
        assert remark in events(tmp_path, kind="remark")[0]["message"]
    assert len(events(tmp_path, kind="step")) >= 4


@pytest.mark.parametrize("path", ["file/train.jsonl", "/proc/no/train.jsonl", "folder"])
def test_a_path_that_cannot_be_written_is_said_in_one_line_and_the_training_goes_on(tmp_path, path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    printed = start(tmp_path, LOOP.replace("train.jsonl", path))
    assert len(printed.splitlines()) == 1 and "nothing more is logged" in printed
    assert path in printed


def test_a_full_disk_is_said_in_one_line_and_the_training_goes_on(tmp_path):
    code = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n"
    printed = start(tmp_path, code + LOOP.replace("range(4)", "range(400)"))
    assert len(printed.splitlines()) == 1 and "File too large; nothing more" in printed


def test_without_a_path_nothing_is_logged_and_that_is_said(tmp_path):
    printed = start(tmp_path, LOOP.replace('"train.jsonl"', ""))
    assert "DLBENCH_LOG is not set and no path is given, so nothing is logged" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_a_rank_logs_to_a_file_of_its_own(tmp_path, variables):
    start(tmp_path, LOOP, **variables)
    (found,) = events(tmp_path, "train.rank1.jsonl", "run_start")
    assert (found["rank"], found["size"]) == (1, 2)


def test_a_second_process_of_one_rank_does_not_spoil_the_log_of_the_first(tmp_path):
    other = f"import subprocess\nother = '''import dlbench_log\n{LOOP}'''\n"
    code = f"{other}{LOOP}subprocess.run([sys.executable, '-c', other])\nwith log.step(): pass"
    printed = start(tmp_path, code)
    assert "another process writes it (does each have its rank?)" in printed
    assert len(events(tmp_path, kind="step")) == 5


def test_the_log_of_an_earlier_start_is_kept_aside(tmp_path):
    for _ in range(3):
        start(tmp_path, LOOP)
    names = {"train.jsonl", "train.attempt1.jsonl", "train.attempt2.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_forked_process_leaves_the_log_to_its_parent(tmp_path):
    code = f"""{LOOP}
if os.fork() == 0:
    with log.step(): pass
    log.evaluation(top1=1)
    sys.exit(0)
os.wait()
with log.step(): pass
"""
    start(tmp_path, code)
    assert [step["step"] for step in events(tmp_path, kind="step")] == [1, 2, 3, 4, 5]
    assert len(events(tmp_path, kind="run_end")) == 1 and not events(tmp_path, kind="eval")


def test_an_exception_that_ends_the_program_is_the_end_of_its_log(tmp_path):
    code = f"{LOOP}with log.step():\n    raise RuntimeError('no such batch')"
    with pytest.raises(AssertionError):
        start(tmp_path, code)
    (end,) = events(tmp_path, kind="run_end")
    assert (end["status"], end["message"]) == ("failed", "RuntimeError: no such batch")
    assert len(events(tmp_path, kind="step")) == 4  # the step that failed is none
