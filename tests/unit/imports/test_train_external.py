"""train_external: a user's program trains a run, and its log becomes our event log."""

import dataclasses
import json
import sys

import pytest

from dlbench import Error
from dlbench.imports import train_external
from dlbench.records import parse_run, run_record
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from support.logs.log_samples import GLOBAL_BATCH, tf_cnn_benchmarks

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
