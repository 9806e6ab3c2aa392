"""The doctor: a healthy folder is healthy, and each illness of it is named."""

import json
import shutil
from pathlib import Path

import pytest

from dlbench.analysis import run_tables
from dlbench.campaign import doctor
from dlbench.common.files import sha256
from dlbench.log import event_log
from dlbench.records import judgement, parse_run, run_record
from dlbench.records.judgement import State
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns
from support.programs import in_process
from support.runs.ended_runs import ONE, SHORT, TWO, finish
from support.runs.made_runs import SETTINGS


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    for run in (ONE, TWO):
        place = finish(run)
        run_tables.ensure_run_tables(run.id, sha256(place / "train.jsonl"))
    return tmp_path


@pytest.fixture
def place(here):
    return run_record.folder(ONE.id)


def program(*arguments):
    return in_process.dlbench("doctor", *arguments)


def listing():
    return {str(p): p.read_bytes() for p in Path("results").rglob("*") if p.is_file()}


def only(**how):
    (finding,) = doctor.examine(**how)
    return finding


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


def edited(path):
    path.write_text(path.read_text().replace("0.5", "0.4"))


def cut(path, by):
    path.write_bytes(path.read_bytes()[:-by])


def of_two(name):
    return run_record.folder(TWO.id) / name


# {what is wrong: (how that comes about, the text of the finding, its advice)}.
AGAIN, UPDATE = "the next start reads its log again or", "update dlbench"
ILLNESSES = {
    "half a record": (lambda p: cut(p / "run.json", 100), "run.json: not a whole record", AGAIN),
    "record of another": (
        lambda p: shutil.copy(of_two("run.json"), p), f"it is the record of {TWO.id}", AGAIN
    ),
    "newer record": (
        lambda p: record(p, record_version=run_record.RECORD_VERSION + 1),
        "made by a newer dlbench", UPDATE,
    ),
    "cut log": (lambda p: cut(p / "train.jsonl", 50), "train.jsonl: expected", AGAIN),
    "no log of a rank": (
        lambda p: event_log.rank_path(of_two("train.jsonl"), 1).unlink(),
        "train.rank1.jsonl: missing", AGAIN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("illness", ILLNESSES)
def test_each_illness_of_a_record_is_named(place, illness):
    damage, what, advice = ILLNESSES[illness]
    damage(place)
    finding = only()
    assert finding.kind == "run" and what in finding.what
    assert finding.advice.startswith(advice)


def test_a_run_without_a_record_is_none_of_its_affairs(place):
    (place / "run.json").unlink()
    cut(place / "train.jsonl", 50)
    assert doctor.examine(content=True) == []


def test_a_changed_log_is_named_where_content_is_read_and_forgetting_has_it_trained_again(place):
    edited(place / "train.jsonl")
    assert doctor.examine() == []
    finding = only(content=True)
    assert finding.what == "train.jsonl: changed after its record was written"
    assert finding.advice.startswith(f"dlbench forget {ONE.id}, ")
    assert judgement.state(ONE)[0] is State.CURRENT
    assert in_process.dlbench("forget", ONE.id).returncode == 0
    assert judgement.state(ONE)[0] is State.STALE
    assert doctor.examine(content=True) == []


def test_an_edited_record_is_named_where_content_is_read_and_read_again_once_removed(place):
    good = (place / "run.json").read_bytes()
    faster(place)
    assert doctor.examine() == []
    finding = only(content=True)
    assert "its summary.images_per_second is not what its log" in finding.what
    assert finding.advice == "remove it: the next start reads the log again"
    Path(finding.where).unlink()
    assert judgement.state(ONE)[0] is State.UNREAD
    parse_run.parse(ONE, place / "train.jsonl", place / "run.json")
    assert (place / "run.json").read_bytes() == good


def test_tables_with_a_flipped_bit_are_named(place):
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
    assert [(f.where, f.advice) for f in found] == [
        (str(study), "remove it: `snakemake tables` makes it again"),
        (
            str(imported / "evals.parquet"),
            "remove it: `snakemake results/imports/x/evals.parquet` makes it again",
        ),
        (
            str(place / "steps.parquet"),
            "remove it: `snakemake --forcerun collect_runs` makes it again",
        ),
    ]
    assert {f.what for f in found} == {"is damaged: it does not match the digest in it"}
    (study.parent / "from_papers.parquet").write_bytes(b"PAR1")
    study.unlink()
    assert only().advice == "take it anew from its origin"


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
    of_study = program("--configfile", "mine.yaml", "--json")
    assert [one["kind"] for one in json.loads(of_study.stdout)["findings"]] == ["run"]
    assert len(program().stdout.splitlines()) == 2


def test_a_folder_without_results_and_a_bad_config_are_refused(here, tmp_path_factory):
    finished = program(str(tmp_path_factory.mktemp("empty")))
    assert finished.returncode == 2 and "no results of dlbench" in finished.stderr
    Path("config.yaml").write_text("study: 3")
    finished = program("--configfile", "config.yaml")
    assert finished.returncode == 2 and finished.stderr.startswith("error: ")
    assert program("--no-such-flag").returncode == 2
    assert program("results").returncode == 0


def test_a_name_with_a_newline_stays_on_one_line(here):
    finish(Run(**SHORT, repeat=2)).rename("results/runs/a\nb\x1b[31m")
    finished = program()
    assert len(finished.stdout.splitlines()) == 1
    assert "\x1b" not in finished.stdout


def test_shards_of_another_size_or_content_and_a_manifest_that_is_none_are_named(here):
    place = Path("results/data/digits")
    place.mkdir(parents=True)
    shard = {"file": "train-0", "records": 1, "bytes": 4, "sha256": None}
    reader = {"encoding": "raw", "shape": [2, 2, 1], "classes": 10, "first_label": 0}
    splits = {"train": {"records": 1, "shards": [shard]}}
    manifest = {"dataset": "digits", "kind": "image", "reader": reader, "splits": splits}
    (place / "manifest.json").write_text(json.dumps(manifest))
    (place / "train-0").write_bytes(b"012")
    assert "expected 4 bytes, found 3" in only().what
    assert only().advice.startswith("remove results/data/digits/manifest.json: ")
    (place / "train-0").write_bytes(b"0123")  # as large as expected, but no TFRecord file
    assert doctor.examine() == []
    assert "train-0" in only(content=True).where + only(content=True).what
    for text in ("[]", "{}", "[" * 100_000, '{"splits": 3}'):
        (place / "manifest.json").write_text(text)
        assert only().kind == "data", text
