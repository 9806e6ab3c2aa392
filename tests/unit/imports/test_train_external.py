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
    model="resnet50",
    dataset="synthetic",
    batch_per_device=GLOBAL_BATCH,
    steps=20,
    trainer="theirs",
    framework="tensorflow",
)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run" / "train.jsonl"


def train(log, code, run=RUN, **options):
    """The events of a run that a Python program trained."""
    log.parent.mkdir(exist_ok=True)
    train_external.train(run, [sys.executable, "-c", code], "auto", log, **options)
    return [json.loads(line) for line in log.read_text().splitlines()]


def printing(text, code=0):
    return f"import sys; print({text!r}); sys.exit({code})"


def named(events, name):
    return [event for event in events if event["event"] == name]


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


def test_a_program_without_a_log_fails_the_run(log):
    (end,) = named(train(log, printing("hello")), "run_end")
    assert end["status"] == "failed" and "expected one run, found 0" in end["message"]


def test_a_program_whose_device_has_no_memory_left_ends_the_run_as_out_of_memory(log):
    (end,) = named(train(log, printing("CUDA out of memory. Tried to", code=1)), "run_end")
    assert (end["status"], end["message"]) == ("oom", "CUDA out of memory. Tried to")


def test_a_program_that_fails_for_another_reason_is_an_error_with_its_last_line(log):
    with pytest.raises(Error, match="ended with exit code 3: no such device"):
        train(log, printing("starting\nno such device\n", code=3))
    assert "run_end" not in log.read_text()


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
    assert end["status"] == "failed"


def test_a_log_that_contradicts_itself_says_so_in_the_record_of_its_run(log):
    train(log, printing(LOG.replace("total images/sec: 512.00", "total images/sec: 4096.00")))
    parse_run.parse(RUN, log, log.with_name("run.json"))
    summary = run_record.read(log.with_name("run.json"))["summary"]
    assert summary["images_per_second"] == 4096
    assert "8 times as much" in summary["contradicts"]
