"""The doctor: a healthy folder is healthy; each illness is named, and mended without a loss."""

import hashlib
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
from support.runs.healthy_folder import listing, mended, old, only, program
from support.runs.healthy_folder import place as place
from support.runs.made_runs import SETTINGS


def contents(files):
    return sorted(hashlib.sha256(content).hexdigest() for content in files.values())


def test_a_healthy_folder_is_healthy_and_nothing_in_it_is_touched(here):
    before = listing()
    assert doctor.examine(content=True) == []
    finished = program("--content")
    assert (finished.returncode, finished.stdout) == (0, "")
    assert listing() == before


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "there is no record"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "not a whole record"),
        (lambda path: path.write_text(path.read_text().replace("0.5", "0.4")), "changed after"),
        (lambda path: path.write_text("[" * 100_000), "not a whole record"),
        (
            lambda path: shutil.copy(run_record.folder(TWO.id) / "run.json", path),
            f"it is the record of {TWO.id}",
        ),
    ],
    ids=["missing", "cut", "edited", "nested", "foreign"],
)
def test_a_record_that_is_not_believed_is_made_from_its_log(place, damage, what):
    good = (place / "run.json").read_bytes()
    damage(place / "run.json")
    finding = only()
    assert finding.kind == "record" and what in finding.what
    mended()
    assert (place / "run.json").read_bytes() == good
    assert judgement.state(ONE) == (State.CURRENT, "")


def test_a_record_whose_numbers_are_not_its_logs_is_found_where_content_is_read(place):
    path = place / "run.json"
    record = json.loads(path.read_text())
    record.pop("record_sha256")
    record["summary"]["images_per_second"] *= 2
    path.write_text(json.dumps({**record, "record_sha256": run_record.digest(record)}))
    assert doctor.examine() == []
    assert "its summary.images_per_second is not what its log" in only(content=True).what
    mended(content=True)


def test_a_record_or_a_log_of_a_newer_version_is_left_alone(place):
    path = place / "run.json"
    record = json.loads(path.read_text()) | {"record_version": run_record.RECORD_VERSION + 1}
    record.pop("record_sha256")
    path.write_text(json.dumps({**record, "record_sha256": run_record.digest(record)}))
    finding = only()
    assert "made by a newer dlbench" in finding.what and not finding.repair_action
    path.unlink()
    log = place / "train.jsonl"
    log.write_text(log.read_text().replace('"log_version": 1', '"log_version": 99'))
    finding = only()
    assert "version 99, made by a newer dlbench" in finding.what and not finding.repair_action


@pytest.mark.parametrize(
    ("run", "damage", "what", "content"),
    [
        (ONE, lambda log: log.write_bytes(log.read_bytes()[:-50]), "train.jsonl: expected", False),
        (
            ONE,
            lambda log: log.write_text(log.read_text().replace("0.5", "0.4")),
            "train.jsonl: changed after its record was written",
            True,
        ),
        (
            TWO,
            lambda log: event_log.rank_path(log, 1).unlink(),
            "train.rank1.jsonl: missing",
            False,
        ),
    ],
    ids=["cut", "edited", "rank gone"],
)
def test_a_run_whose_logs_differ_from_its_record_is_trained_again(here, run, damage, what, content):
    log = run_record.folder(run.id) / "train.jsonl"
    damage(log)
    damaged = log.read_bytes()
    assert what in only(content=content).what
    mended(content=content)
    assert judgement.state(run)[0] is State.STALE
    assert (log.parent / "train.attempt1.jsonl").read_bytes() == damaged


@pytest.mark.parametrize(
    ("damage", "kind", "what"),
    [
        (lambda log: log.write_bytes(log.read_bytes()[:-1]), "interrupted", "without an end"),
        (lambda log: log.write_bytes(b"\0" * 99 + b"\n"), "log", "line 1: not an event"),
        (
            lambda log: shutil.copy(run_record.folder(TWO.id) / "train.jsonl", log),
            "run",
            f"its log is that of {TWO.id}",
        ),
    ],
    ids=["cut", "zeros", "foreign"],
)
def test_a_log_without_a_record_that_is_no_result_is_moved_aside(place, damage, kind, what):
    (place / "run.json").unlink()
    damage(place / "train.jsonl")
    old(place / "train.jsonl")
    finding = only()
    assert finding.kind == kind and what in finding.what
    before = contents(listing(place))
    mended()
    assert set(before) <= set(contents(listing()))
    assert judgement.state(ONE)[0] in (State.STALE, State.MISSING)


def test_a_log_that_is_being_written_is_none_of_its_affairs(place):
    (place / "run.json").unlink()
    log = place / "train.jsonl"
    log.write_bytes(log.read_bytes()[:-50])
    assert doctor.examine() == []


def test_the_log_of_an_attempt_that_ended_well_is_rescued(place):
    (place / "run.json").unlink()
    (place / "train.jsonl").rename(place / attempts.OPEN)
    assert "an attempt that came to its end" in only().what
    doctor.repair(doctor.examine())
    assert judgement.state(ONE)[0] is State.UNREAD
    mended()
    assert judgement.state(ONE)[0] is State.CURRENT


def test_a_second_name_of_a_log_is_taken_away(place):
    attempts.link_open_log(place / "train.jsonl")
    assert "a second name" in only().what
    mended()
    assert judgement.state(ONE)[0] is State.CURRENT


def test_tables_of_another_log_are_moved_aside(place):
    table = parquet_files.read(place / "steps.parquet", run_columns.STEPS)
    parquet_files.write(
        place / "steps.parquet", table.to_pylist(), run_columns.STEPS, log_sha256="0" * 64
    )
    (place / "evals.parquet").write_bytes(b"PAR1")
    assert [f.what for f in doctor.examine()] == ["made from another log", "no table of ours"]
    mended()


def test_tables_with_a_flipped_bit_are_named_and_made_again(place):
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
    mended(content=True)
    assert not (imported / "runs.parquet").exists()  # so that the next start imports again
    (study.parent / "from_papers.parquet").write_bytes(b"PAR1")
    assert only().repair_action is None


def test_a_clock_that_was_set_back_is_said_and_the_times_stand(here):
    run = Run(**SHORT, repeat=2)
    dates = [
        "2026-03-29T03:00:00.000000Z",
        "2026-03-29T02:00:01.000000Z",
        "2026-03-29T02:00:04.000000Z",
    ]
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


def test_runs_that_no_study_knows_are_named_where_there_is_a_study(here):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    assert program().returncode == 0
    finished = program("--study", "--json")
    found = json.loads(finished.stdout)["findings"]
    assert finished.returncode == 1
    assert [(f["kind"], f["repairable"]) for f in found] == [("unknown runs", False)]
    assert found[0]["what"].startswith("2 of no run of the study 'test': ")


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
    damaged, unknown = program("--configfile", "mine.yaml", "--study").stdout.splitlines()
    assert damaged == line
    assert (
        unknown.startswith("unknown runs: results/runs: 5 of no run") and " and 2 more; " in unknown
    )


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


def test_the_program_repairs_and_says_what_it_did(place):
    (place / "run.json").write_text("{}")
    finished = program("--repair")
    assert finished.returncode == 0
    assert finished.stdout.startswith("repaired: record: results/runs/")
    assert listing("results/aside").popitem()[1] == b"{}"
