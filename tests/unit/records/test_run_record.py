"""run_record: which are believed, and what is to be done for the others."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from dlbench.common import own_code
from dlbench.common.files import sha256
from dlbench.images import make_image as image_sources
from dlbench.images import trainer_image
from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog
from dlbench.records import judgement, parse_run, run_record
from dlbench.records.judgement import State
from dlbench.records.run_record import RecordError
from support.images.image_files import Blobs, tar
from support.runs.ended_runs import ONE, finish
from support.runs.ended_runs import ONE as RUN


@pytest.fixture
def place(project):
    return finish(RUN)


def finish_again(made_from=None, study=None, **end):
    (run_record.folder(RUN.id) / "train.jsonl").unlink()
    launch = {"made_from": judgement.made_from(RUN) | (made_from or {}), "study": study}
    finish(RUN, launch=launch, **end)


def test_a_sound_record_stands_and_a_run_without_a_folder_is_missing(place):
    assert judgement.state(RUN) == (State.CURRENT, "")
    shutil.rmtree(place)
    assert judgement.state(RUN) == (State.MISSING, "not trained yet")


def edit(path):
    content = json.loads(path.read_text())
    content["summary"]["images_per_second"] = 1e9
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "there is no record"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "not a whole record"),
        (lambda path: path.write_bytes(b"[]"), "not a whole record"),
        (edit, "changed after it was written"),
    ],
)
def test_without_a_sound_record_the_log_is_read_again(place, damage, reason):
    damage(place / "run.json")
    state, why = judgement.state(RUN)
    assert state is State.UNREAD
    assert reason in why


def test_a_record_of_another_parser_is_made_again(place, monkeypatch):
    monkeypatch.setattr(run_record, "PARSER_VERSION", run_record.PARSER_VERSION + 1)
    assert judgement.state(RUN)[0] is State.UNREAD


@pytest.mark.parametrize(
    "damage",
    [lambda log: log.unlink(), lambda log: log.write_bytes(log.read_bytes()[:-9])],
    ids=["deleted", "truncated"],
)
def test_without_a_sound_log_the_run_is_trained_again(place, damage):
    damage(place / "train.jsonl")
    assert judgement.state(RUN)[0] is State.STALE
    (place / "run.json").unlink()
    assert judgement.state(RUN)[0] is State.STALE


def test_a_run_made_from_something_else_is_stale(place):
    finish_again({"code": "0" * 64})
    assert judgement.state(RUN) == (State.STALE, "code changed since it was trained")
    # Two studies may have one name for two programs.
    finish_again({"code": "0" * 64}, study="one")
    assert judgement.state(RUN)[1] == "code changed since it was trained for study one"
    finish_again({"environment": "0" * 64})
    assert judgement.state(RUN)[1] == "environment changed since it was trained: envs/train/uv.lock"


def test_the_files_that_changed_since_a_run_was_trained_are_named(place, monkeypatch):
    files = judgement.training_code(RUN)
    own_code.save_digests(files)
    model = "workflow_scripts/dlbench/trainer/keras/models/lenet5.py"
    digest_of = own_code._digest
    changed = {model}
    seen = lambda path: "0" * 64 if path in changed else digest_of(path)  # noqa: E731
    monkeypatch.setattr(own_code, "_digest", seen)
    judgement._code_digest.cache_clear()
    prefix = "code changed since it was trained: "
    assert judgement.state(RUN) == (State.STALE, f"{prefix}{model}")
    changed.update(files[:4])
    judgement._code_digest.cache_clear()
    first = ", ".join(sorted(changed)[:3])
    message = f"{prefix}{first} and {len(changed) - 3} more files"
    assert judgement.state(RUN) == (State.STALE, message)
    (listed,) = own_code.SAVED_DIGESTS.iterdir()
    listed.unlink()
    assert judgement.state(RUN) == (State.STALE, "code changed since it was trained")
    judgement._code_digest.cache_clear()


def test_a_timeout_is_tried_again_once_the_limit_is_higher(place):
    finish_again(status="timeout", time_limit_s=60)
    limited = judgement.Basis(time_limit_s=600)
    for limit_s in (None, 30, 60):
        found = judgement.state(RUN, basis=limited._replace(time_limit_s=limit_s))
        assert found == (State.CURRENT, "")
    reason = "was stopped at 60 s; time_limit_s is 600 now"
    assert judgement.state(RUN, basis=limited) == (State.STALE, reason)
    finish_again(status="timeout")  # as of runs of before
    assert judgement.state(RUN, basis=limited) == (State.CURRENT, "")


def test_a_skipped_run_is_trained_once_it_can_be(place):
    finish_again(status="skipped", message="no such device")
    assert judgement.state(RUN, can_run=False)[0] is State.CURRENT
    reason = "was skipped and can be trained now: no such device"
    assert judgement.state(RUN) == (State.STALE, reason)


def test_a_record_of_a_newer_version_is_refused(place, monkeypatch):
    monkeypatch.setattr(run_record, "RECORD_VERSION", run_record.RECORD_VERSION - 1)
    with pytest.raises(RecordError, match="made by a newer dlbench"):
        run_record.read(place / "run.json")


def test_a_file_that_changed_beside_its_record_is_named(place):
    record = run_record.read(place / "run.json")
    log = place / "train.jsonl"
    content = log.read_bytes()
    log.write_bytes(content.replace(b"2.0", b"9.0"))
    run_record.check_files(place, record)
    with pytest.raises(RecordError, match=r"train\.jsonl: changed after its record was written"):
        run_record.check_files(place, record, content=True)


def test_forgetting_keeps_the_log_aside(place):
    assert run_record.ids_with_status(["ok"]) == [RUN.id]
    run_record.forget(RUN.id)
    assert sorted(path.name for path in place.iterdir()) == ["train.attempt1.jsonl"]
    assert judgement.state(RUN) == (State.STALE, "its last attempt left no result")
    assert run_record.ids_with_status(["ok"]) == []


@pytest.mark.parametrize("has_log", [True, False])
def test_forgetting_keeps_the_log_that_was_recorded_only_where_the_run_has_none(place, has_log):
    second = run_record.RECORDED / RUN.id
    second.mkdir(parents=True)
    (second / "train.jsonl").write_text("recorded")
    log = (place / "train.jsonl").read_text()
    if not has_log:
        (place / "train.jsonl").unlink()
    run_record.forget(RUN.id)
    assert (place / "train.attempt1.jsonl").read_text() == (log if has_log else "recorded")
    assert not second.exists()


def test_a_run_whose_trace_is_lost_or_another_one_is_trained_again(place):
    trace = place / event_log.TRACE
    trace.write_bytes(b"a trace")
    log = EventLog(place / "train.jsonl")
    log.write("profile", spent_s=1.0, steps=5, sha256=sha256(trace))
    log.close()
    parse_run.parse(RUN, place / "train.jsonl", place / "run.json")
    record = run_record.read(place / "run.json")
    assert record["files"].keys() == {"train.jsonl", trace.name}
    assert parse_run.differences(record, place / "train.jsonl") == []
    assert judgement.state(RUN) == (State.CURRENT, "")
    trace.write_bytes(b"another trace")
    state, why = judgement.state(RUN)
    assert state is State.DAMAGED
    assert why.endswith("trace.json.gz is missing, or is not the one that train.jsonl names")
    trace.unlink()
    assert judgement.state(RUN)[0] is State.DAMAGED
    with pytest.raises(LogError, match=r"trace\.json\.gz: missing"):
        parse_run.parse(RUN, place / "train.jsonl", place / "run.json")


# In containers.

CONTAINED = dataclasses.replace(RUN, runtime="charliecloud", environment="mine")
SETTINGS = {"mine": {"source": "mine.tar"}}


def image(content):
    """The user's archive of an image, and what was made of it."""
    blobs = Blobs()
    blobs.index(blobs.image([tar({"bin/sh": content})]))
    Path("mine.tar").write_bytes(tar(blobs))


def make_image():
    settings = trainer_image.settings("mine", SETTINGS)
    image_sources.make("mine", settings, trainer_image.image_path("mine"))
    return trainer_image.read(trainer_image.image_path("mine")).digest


def state(**changes):
    """The state of the run, as another start of the workflow finds it."""
    judgement._image.cache_clear()
    run = dataclasses.replace(CONTAINED, **changes)
    return judgement.state(run, basis=judgement.Basis(images=SETTINGS))


@pytest.fixture
def contained(place):
    """The folder of a run that was trained in a container, beside one on bare metal."""
    image(b"one")
    digest = make_image()
    judgement._image.cache_clear()
    made_from = judgement.made_from(CONTAINED, judgement.Basis(images=SETTINGS))
    assert made_from["environment"] == digest
    yield finish(CONTAINED, launch={"made_from": made_from})
    judgement._image.cache_clear()


def test_a_run_in_a_container_is_made_from_its_image_by_its_content(contained):
    made_from = judgement.made_from(CONTAINED, judgement.Basis(images=SETTINGS))
    assert set(made_from) == {"code", "data", "image", "environment"}
    assert state() == (State.CURRENT, "")
    os.utime("mine.tar", (1, 1))
    assert state() == (State.CURRENT, "")


def test_another_image_makes_its_runs_stale_and_no_others(contained):
    image(b"two")
    assert state() == (State.STALE, "image changed since it was trained")
    assert judgement.state(RUN) == (State.CURRENT, "")
    make_image()
    assert state() == (State.STALE, "image and environment changed since it was trained")


def test_an_image_that_was_made_again_with_another_digest_makes_its_runs_stale(contained):
    path = Path(trainer_image.image_path("mine"))
    made = json.loads(path.read_text())
    path.write_text(json.dumps(made | {"digest": "sha256:another"}))
    assert state() == (State.STALE, "environment changed since it was trained")
    assert judgement.state(RUN) == (State.CURRENT, "")


def test_a_copy_of_the_results_keeps_its_runs_without_the_image_unless_it_is_another(
    contained,
):
    Path("mine.tar").unlink()
    assert state() == (State.CURRENT, "")
    shutil.rmtree("results/images")
    assert state() == (State.CURRENT, "")
    assert judgement.made_from(CONTAINED, judgement.Basis(images=SETTINGS))["environment"] is None
    image(b"two")
    assert state()[0] is State.STALE


def test_a_lost_record_of_a_run_in_a_container_is_read_again(contained):
    (contained / "run.json").unlink()
    assert state()[0] is State.UNREAD
    image(b"two")
    assert state()[0] is State.STALE


RELEASE = "0.1.0+sha256.0123456789ab"


@pytest.mark.parametrize(
    ("given", "kept"), [(RELEASE, RELEASE), (None, None), (1, None), ([RELEASE], None)]
)
def test_the_release_of_a_wheel_is_kept_and_what_is_none_left_out(project, given, kept):
    record = json.loads((finish(ONE, launch={"release": given}) / "run.json").read_text())
    assert record["provenance"]["release"] == kept
