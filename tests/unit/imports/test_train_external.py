"""train_external: a user's program trains a run, and its log becomes our event log."""

import ast
import dataclasses
import json
import os
import subprocess
import sys

import pytest

from dlbench import Error
from dlbench.imports import train_external
from dlbench.log import event_fields
from dlbench.records import parse_run, run_record
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from support.logs.log_samples import GLOBAL_BATCH, tf_cnn_benchmarks
from support.machines import pythons
from support.machines.paths import REPOSITORY

LOG = tf_cnn_benchmarks(0.125, 20)
RUN = Run(
    model="resnet50", dataset="synthetic", batch_per_device=GLOBAL_BATCH, steps=20,
    trainer="theirs", framework="tensorflow",
)  # fmt: skip


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run" / "train.jsonl"


def train(log, code, run=RUN, kind="auto", **options):
    """The events of a run that a Python program trained."""
    log.parent.mkdir(exist_ok=True)
    train_external.train(run, [sys.executable, "-c", code], kind, log, **options)
    return [json.loads(line) for line in log.read_text().splitlines()]


def printing(text, code=0):
    return f"import sys; print({text!r}); sys.exit({code})"


def named(events, name):
    return [event for event in events if event["event"] == name]


def record(log):
    parse_run.parse(RUN, log, log.with_name("run.json"))
    return run_record.read(log.with_name("run.json"))


def test_a_program_that_trains_becomes_an_event_log_of_the_run(log):
    events = train(log, printing(LOG))
    assert [event["event"] for event in events[:3]] == ["machine", "begin", "run_start"]
    assert [event["step"] for event in named(events, "step")] == list(range(1, 21))
    assert {event["step_time_s"] for event in named(events, "step")} == {0.125}
    (imported,) = named(events, "imported")
    assert imported["kind"] == "tf_cnn_benchmarks"
    assert imported["numbers"]["images_per_second"] == GLOBAL_BATCH / 0.125
    assert events[-1]["event"] == "run_end" and events[-1]["status"] == "ok"
    assert (log.parent / other_trainers.FOLDER / other_trainers.PRINTED).read_text() == f"{LOG}\n"


def test_a_program_that_trained_with_another_batch_than_asked_for_fails_the_run(log):
    run = dataclasses.replace(RUN, batch_per_device=32)
    (end,) = named(train(log, printing(LOG), run), "run_end")
    assert end["status"] == "failed"
    assert "global_batch is 32 by the run, 64 by the log" in end["message"]


def test_a_program_that_fails_is_an_error_with_its_last_line_or_a_run_out_of_memory(log):
    with pytest.raises(Error, match="ended with exit code 3: no such device"):
        train(log, printing("starting\nno such device\n", code=3))
    assert "run_end" not in log.read_text()
    (end,) = named(train(log, printing("CUDA out of memory. Tried to", code=1)), "run_end")
    assert (end["status"], end["message"]) == ("oom", "CUDA out of memory. Tried to")


def test_a_program_that_ran_outside_its_image_is_not_believed(log):
    (end,) = named(train(log, printing(LOG), image_id="build-1"), "run_end")
    assert end["message"] == "expected the image build-1, was in no image"


def test_a_program_in_its_image_is_believed_by_the_image_s_own_words(log):
    proof = log.parent / other_trainers.FOLDER / other_trainers.PROOF
    words = json.dumps({"image_id": "build-1"})
    code = f"open({str(proof)!r}, 'w').write({words!r}); print({LOG!r})"
    events = train(log, code, image_id="build-1")
    assert named(events, "begin")[0]["containment"] == {"image_id": "build-1"}
    assert events[-1]["status"] == "ok"


def test_the_logs_of_an_earlier_attempt_are_not_read_for_a_later_one(log):
    train(log, printing(LOG))
    log.unlink()
    (end,) = named(train(log, printing("hello")), "run_end")
    assert end["status"] == "failed" and "expected one run, found 0" in end["message"]


def test_a_log_that_contradicts_itself_says_so_in_the_record_of_its_run(log):
    train(log, printing(LOG.replace("total images/sec: 512.00", "total images/sec: 4096.00")))
    summary = record(log)["summary"]
    assert summary["images_per_second"] == 4096
    assert "8 times as much" in summary["contradicts"]


PATTERNS = {
    "step": r"step (?P<step>\d+) loss (?P<loss>\S+) took (?P<step_time_us>\S+) us",
    "metrics": {"bandwidth": {"pattern": r"bus: (\S+)", "unit": "GB/s", "better": "higher"}},
    "failed": "NCCL error",
}
PRINTED = "".join(f"step {n} loss {8 - n / 10} took 125 us\n" for n in range(20)) + "bus: 4.5"


def test_what_a_program_prints_is_read_by_patterns(log):
    events = train(log, printing(PRINTED), kind=PATTERNS)
    assert {event["step_time_s"] for event in named(events, "step")} == {0.000125}
    (metric,) = named(events, "metric")
    metric = {key: metric[key] for key in metric if key != "event"}
    assert metric == {"name": "bandwidth", "value": 4.5, "unit": "GB/s", "better": "higher"}
    (imported,) = named(events, "imported")
    assert imported["kind"] == "patterns" and "contradicts" not in imported
    assert record(log)["status"] == "ok"
    summary = record(log)["summary"]
    assert summary["images_per_second"] == pytest.approx(GLOBAL_BATCH / 0.000125)
    assert summary["metrics"] == [metric]


def test_a_log_that_an_importer_knows_is_read_by_the_patterns_that_are_given(log):
    patterns = {"step": r"^(?P<step>\d+)\timages/sec: (?P<images_per_second>\S+)"}
    (imported,) = named(train(log, printing(LOG), kind=patterns), "imported")
    assert imported["kind"] == "patterns"


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        (PATTERNS | {"step": PATTERNS["step"].replace("_us", "_s")}, PRINTED),
        ({"rate": r"rate (?P<items_per_second>\S+)"}, "rate 0.5"),
    ],
)
def test_steps_that_took_longer_than_the_program_contradict_its_log(log, patterns, text):
    (imported,) = named(train(log, printing(text), kind=patterns), "imported")
    assert "s, and the whole program took" in imported["contradicts"]
    assert "whole program" in record(log)["summary"]["contradicts"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PRINTED + "\nNCCL error 5\n", "line 22: 'NCCL error 5'"),
        (PRINTED.replace("took", "in"), "nearest: line 1: 'step 0 loss 8.0 in 125 us'"),
    ],
)
def test_a_program_that_ended_well_can_fail_by_what_it_prints(log, text, message):
    text = text.replace("bus", "BUS") if "nearest" in message else text
    (end,) = named(train(log, printing(text), kind=PATTERNS), "run_end")
    assert end["status"] == "failed" and message in end["message"]


def test_rates_of_one_process_are_times_the_processes_of_the_run(log):
    run = dataclasses.replace(RUN, strategy="horovod", devices_per_node=4, batch_per_device=16)
    rate = 'for n in range(20): print("rate", 4000.0)'
    patterns = {"step": r"rate (?P<items_per_second>\S+)", "of": "one process"}
    (imported,) = named(train(log, rate, run, kind=patterns), "imported")
    assert imported["numbers"]["images_per_second"] == pytest.approx(16_000)


def test_tokens_are_those_of_the_sequences_of_the_run(log):
    run = dataclasses.replace(RUN, sequence_length=100)
    patterns = {"rate": r"(?P<tokens_per_second>\S+) tokens"}
    (imported,) = named(train(log, printing("9e6 tokens"), run, kind=patterns), "imported")
    assert imported["numbers"]["images_per_second"] == pytest.approx(90_000)


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
