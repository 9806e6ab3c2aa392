"""The doctor: a healthy folder is healthy, each illness is named, and repairs lose nothing."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dlbench.campaign import doctor
from dlbench.log import attempts, event_log
from dlbench.records import judgement, run_record
from dlbench.records.judgement import State
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, run_columns, table_columns
from support.runs.ended_runs import ONE, SHORT, TWO, finish, log_of
from support.runs.healthy_folder import here as here
from support.runs.healthy_folder import listing, old, only, program
from support.runs.healthy_folder import place as place
from support.runs.made_runs import SETTINGS


def test_a_healthy_folder_is_healthy_and_nothing_in_it_is_touched(here):
    before = listing()
    assert doctor.examine(content=True) == []
    finished = program("--content")
    assert (finished.returncode, finished.stdout) == (0, "")
    assert listing() == before


def record(place, **changes):
    """Change the record of a run, whose digest is right again."""
    made = json.loads((place / "run.json").read_text()) | changes
    made.pop("record_sha256")
    (place / "run.json").write_text(json.dumps({**made, "record_sha256": run_record.digest(made)}))


def faster(place):
    summary = json.loads((place / "run.json").read_text())["summary"]
    record(place, summary=summary | {"images_per_second": 2 * summary["images_per_second"]})


def edited(path, before="0.5", after="0.4"):
    path.write_text(path.read_text().replace(before, after))


def cut(path, by):
    path.write_bytes(path.read_bytes()[:-by])


def without_record(place, damage):
    (place / "run.json").unlink()
    old(damage(place / "train.jsonl") or place / "train.jsonl")


def of_two(name):
    return run_record.folder(TWO.id) / name


# {what is wrong: (how that comes about, the kind of the finding, its text)}.
ILLNESSES = {
    "no record": (lambda p: (p / "run.json").unlink(), "record", "there is no record"),
    "half a record": (lambda p: cut(p / "run.json", 100), "record", "not a whole record"),
    "deep record": (lambda p: (p / "run.json").write_text("[" * 100_000), "record", "not a whole"),
    "edited record": (lambda p: edited(p / "run.json"), "record", "changed after"),
    "record of another": (
        lambda p: shutil.copy(of_two("run.json"), p), "record", f"it is the record of {TWO.id}"
    ),
    "newer record": (
        lambda p: record(p, record_version=run_record.RECORD_VERSION + 1),
        "record", "made by a newer dlbench",
    ),
    "newer log": (
        lambda p: without_record(p, lambda log: edited(log, '_version": 1', '_version": 99')),
        "log", "version 99, made by a newer dlbench",
    ),
    "cut log": (lambda p: cut(p / "train.jsonl", 50), "run", "train.jsonl: expected"),
    "no log of a rank": (
        lambda p: event_log.rank_path(of_two("train.jsonl"), 1).unlink(),
        "run", "train.rank1.jsonl: missing",
    ),
    "interrupted": (
        lambda p: without_record(p, lambda log: cut(log, 1)), "interrupted", "without an end"
    ),
    "no log": (
        lambda p: without_record(p, lambda log: log.write_text("\0" * 99 + "\n") and log),
        "log", "line 1: not an event",
    ),
    "log of another": (
        lambda p: without_record(p, lambda log: shutil.copy(of_two("train.jsonl"), log)),
        "run", f"its log is that of {TWO.id}",
    ),
    "open attempt": (
        lambda p: without_record(p, lambda log: log.rename(p / attempts.OPEN)),
        "interrupted", "an attempt that came to its end",
    ),
    "second name": (
        lambda p: attempts.link_open_log(p / "train.jsonl"), "interrupted", "a second name"
    ),
    "no table": (lambda p: (p / "evals.parquet").write_bytes(b"PAR1"), "table", "no table of ours"),
}  # fmt: skip


@pytest.mark.parametrize("illness", ILLNESSES)
def test_each_illness_of_a_run_is_named(place, illness):
    damage, kind, what = ILLNESSES[illness]
    damage(place)
    finding = only()
    assert finding.kind == kind and what in finding.what
    assert (finding.repair_action is None) == illness.startswith("newer")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (faster, "its summary.images_per_second is not what its log"),
        (
            lambda place: edited(place / "train.jsonl"),
            "train.jsonl: changed after its record was written",
        ),
    ],
    ids=["record", "log"],
)
def test_wrong_numbers_are_named_where_content_is_read(place, damage, what):
    damage(place)
    assert doctor.examine() == []
    assert what in only(content=True).what


def test_a_log_that_is_being_written_is_none_of_its_affairs(place):
    (place / "run.json").unlink()
    cut(place / "train.jsonl", 50)
    assert doctor.examine() == []


def test_repairs_make_again_what_logs_say_and_keep_what_is_moved_aside(place):
    good = (place / "run.json").read_bytes()
    (place / "run.json").write_text("{}")
    edited(of_two("train.jsonl"))
    damaged = of_two("train.jsonl").read_bytes()
    finished = program("--repair", "--content")
    assert finished.returncode == 0
    assert finished.stdout.startswith("repaired: run: results/runs/")
    assert doctor.examine(content=True) == []
    assert (place / "run.json").read_bytes() == good
    assert judgement.state(ONE) == (State.CURRENT, "") and judgement.state(TWO)[0] is State.STALE
    assert of_two("train.attempt1.jsonl").read_bytes() == damaged
    assert b"{}" in listing("results/aside").values()


def test_tables_of_another_log_or_with_a_flipped_bit_are_named(place):
    rows = [{"run_id": "a", "status": "ok"}]
    study, imported = (Path("results", p) for p in ("tables/coverage.parquet", "imports/x"))
    parquet_files.write(study, rows, table_columns.COVERAGE)
    for name in ("runs", "evals"):
        parquet_files.write(imported / f"{name}.parquet", [{"run_id": "a"}], table_columns.RUNS)
    assert doctor.examine(content=True) == []
    for path in (study, imported / "evals.parquet", place / "steps.parquet"):
        content = path.read_bytes()
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert [f.where for f in doctor.examine()] == [str(study)]
    found = doctor.examine(content=True)
    assert [(f.kind, f.where) for f in found] == [
        ("table", str(study)),
        ("table", str(imported / "evals.parquet")),
        ("table", str(place / "steps.parquet")),
    ]
    assert {f.what for f in found} == {"it does not match the digest in it"}
    doctor.repair(found)
    assert not (imported / "runs.parquet").exists()  # so that the next start imports again
    (study.parent / "from_papers.parquet").write_bytes(b"PAR1")
    assert only().repair_action is None
    (study.parent / "from_papers.parquet").unlink()
    parquet_files.write(place / "steps.parquet", [], run_columns.STEPS, log_sha256="0" * 64)
    assert only().what == "made from another log"


def test_a_clock_that_was_set_back_is_said_and_the_times_stand(here):
    run = Run(**SHORT, repeat=2)
    dates = [f"2026-03-29T{time}.000000Z" for time in ("03:00:00", "02:00:01", "02:00:04")]
    place = finish(run, dates=dates)
    finding = only()
    assert finding.kind == "clock" and "run_start is dated 2026-03-29T02:00:01" in finding.what
    summary = run_record.read(place / "run.json")["summary"]
    assert summary["duration_s"] == 2.0 and summary["step_time_mean_s"] == 0.5
    assert "import_s" not in summary
    assert run_record.read(run_record.folder(ONE.id) / "run.json")["summary"]["import_s"] >= 0


def test_a_run_before_its_commit_is_said(here):
    commit = {"GIT_COMMITTER_DATE": "2026-05-01T00:00:00+00:00", "GIT_CONFIG_GLOBAL": "/dev/null"}
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *arguments], check=True, env=os.environ | commit)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    dates = [f"2026-01-01T00:00:0{second}.000000Z" for second in range(3)]
    finish(Run(**SHORT, repeat=2), dates=dates, launch={"git_commit": head.stdout.strip()})
    assert "before its code was committed (2026-05-01" in only().what


def test_runs_of_other_studies_do_not_hide_what_is_wrong_with_a_studys_own(here):
    for repeat in range(2, 6):
        finish(Run(**SHORT, repeat=repeat))
    block = {"name": "block", "repeats": 1} | SHORT
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    Path("mine.yaml").write_text(json.dumps({"matrix": [block]}))
    assert program("--configfile", "mine.yaml").returncode == 0
    for run in (ONE, Run(**SHORT, repeat=2)):
        (run_record.folder(run.id) / "train.jsonl").write_bytes(b"")
    finished = program("--configfile", "mine.yaml")
    (line,) = finished.stdout.splitlines()
    assert line.startswith(f"run: results/runs/{ONE.id}: train.jsonl: expected ")
    of_study = program("--configfile", "mine.yaml", "--study", "--json")
    damaged, unknown = json.loads(of_study.stdout)["findings"]
    assert (damaged["kind"], unknown["kind"], unknown["repairable"]) == ("run", "unknown runs", 0)
    assert unknown["what"].startswith("5 of no run") and " and 2 more" in unknown["what"]


def test_a_folder_without_results_and_a_bad_config_are_refused(here, tmp_path_factory):
    finished = program(str(tmp_path_factory.mktemp("empty")))
    assert finished.returncode == 2 and "no results of dlbench" in finished.stderr
    Path("config.yaml").write_text("study: 3")
    finished = program("--study")
    assert finished.returncode == 2 and finished.stderr.startswith("error: ")
    assert program("--no-such-flag").returncode == 2
    assert program("results").returncode == 0


def test_a_name_with_a_newline_stays_on_one_line(here):
    log_of(Run(**SHORT, repeat=2)).parent.rename("results/runs/a\nb\x1b[31m")
    finished = program()
    assert len(finished.stdout.splitlines()) == 1
    assert "\x1b" not in finished.stdout
