"""Archives and results folders that enter the history, and those that are refused."""

import json
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench.archive import crate
from dlbench.common.files import read_json
from dlbench.history import add_campaign, dataset
from dlbench.history.sources import Source
from support.history import made_campaigns as made

RATES = {8: [100.0, 101.0, 99.0], 16: [200.0, 202.0]}
HISTORY = Path("history")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def add(path, **options):
    return add_campaign.add(Source(str(path), options), HISTORY)


def current():
    return [one.file for one in dataset.standings(HISTORY) if one.standing == dataset.CURRENT]


def test_an_archive_enters_with_its_digest_and_the_name_of_its_study():
    made.archive(made.add_session("results", 1, RATES), "a.zip", "mine")
    (file,) = add("a.zip")["files"]
    assert file.startswith("site=here/year=2026/20260112T080000Z-000001-")
    columns = ["condition", "n", "mean", "study", "archive_sha256", "driver"]
    rows = dataset.rows_of(HISTORY, file, columns)
    assert [row["n"] for row in rows] == [2, 3]
    assert rows[1]["mean"] == pytest.approx(100, rel=1e-3)
    assert rows[0]["study"] == "mine" and len(rows[0]["archive_sha256"]) == 64


def test_conditions_of_a_session_have_names_that_differ():
    for framework in ("tensorflow", "jax"):
        made.add_session("results", 1, {8: [100.0]}, fields={"framework": framework})
    rows = dataset.rows_of(HISTORY, add("results")["files"][0], ["condition"])
    assert sorted(row["condition"].partition("device")[2] for row in rows) == [
        ", framework jax",
        ", framework tensorflow",
    ]


def test_an_archive_of_an_early_version_enters():
    assert len(add(made.EARLY)["files"]) == 1


def test_a_tampered_archive_is_refused_and_named():
    made.archive(made.add_session("results", 1, RATES), "a.zip")
    with zipfile.ZipFile("a.zip") as old, zipfile.ZipFile("b.zip", "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            name = entry.filename
            new.writestr(
                entry, content.replace(b"100.0", b"999.0") if "run.json" in name else content
            )
    receipt = add("b.zip")
    assert not receipt["files"] and not HISTORY.exists()
    (line,) = add_campaign.refusals([Path(Source("b.zip").receipt)])
    assert line.startswith("b.zip: it was changed after it was written") and "run.json" in line


@pytest.mark.parametrize(
    ("content", "message"), [(b"no zip", "no whole zip file"), (None, "expected a results folder")]
)
def test_what_is_no_archive_and_no_results_folder_is_refused(content, message):
    Path("x.zip").mkdir() if content is None else Path("x.zip").write_bytes(content)
    (reason,) = add("x.zip")["refused"]
    assert message in reason


def test_a_campaign_that_is_added_twice_counts_once():
    made.add_session("results", 1, RATES)
    first = add("results")
    assert add("results")["files"] == first["files"] == current()
    made.archive("results", "a.zip")  # of the same runs, with a digest
    add("a.zip")
    (counting,) = current()
    assert dataset.of_archive(HISTORY, counting)
    assert len(dataset.standings(HISTORY)) == 2


def test_a_session_that_has_grown_replaces_the_earlier_one():
    made.add_session("results", 1, {8: [100.0]})
    add("results")
    made.add_session("results", 1, RATES)
    add("results")
    assert [len(dataset.logs(HISTORY, name)) for name in current()] == [5]


def test_two_archives_of_one_session_that_differ_are_refused_unless_one_corrects_the_other():
    made.archive(made.add_session("one", 1, RATES), "a.zip")
    made.archive(made.add_session("two", 1, RATES | {16: [150.0, 151.0]}), "b.zip")
    first = add("a.zip")
    (reason,) = add("b.zip")["refused"]
    assert "is in the history already, with other logs" in reason
    assert "images_per_second 201 (2 runs) there, 150.5 (2 runs) here" in reason
    assert current() == first["files"]
    assert add("b.zip", corrects=True)["files"] == current() != first["files"]


def test_contradictory_files_that_were_copied_together_do_not_count():
    made.add_session("one", 1, RATES)
    made.add_session("two", 1, {8: [1.0]})
    add_campaign.add(Source("one"), HISTORY)
    (other,) = add_campaign.add(Source("two"), Path("theirs"))["files"]
    Path("theirs", other).rename(HISTORY / other)
    assert {one.standing for one in dataset.standings(HISTORY)} == {dataset.CONTRADICTORY}


def test_a_session_is_taken_back_by_a_mark():
    made.add_session("results", 1, RATES)
    (file,) = add("results")["files"]
    (HISTORY / file).with_suffix(".withdrawn").write_text("wrong BIOS\n")
    (one,) = dataset.standings(HISTORY)
    assert (one.standing, one.reason) == (dataset.WITHDRAWN, "wrong BIOS")


def test_what_is_taken_back_does_not_return_by_another_file_of_the_same_runs():
    made.add_session("results", 1, RATES)
    (file,) = add("results")["files"]
    (HISTORY / file).with_suffix(".withdrawn").write_text("wrong BIOS\n")
    made.archive("results", "a.zip")
    (archived,) = add("a.zip")["files"]
    reasons = {one.file: one.reason for one in dataset.standings(HISTORY)}
    assert current() == [] and reasons[archived].startswith("wrong BIOS (of ")
    (HISTORY / file).with_suffix(".withdrawn").unlink()
    assert current() == [archived]


def test_a_correction_that_is_taken_back_does_not_bring_back_what_it_corrected():
    made.add_session("wrong", 1, RATES)
    made.add_session("right", 1, RATES | {16: [150.0, 151.0]})
    add("wrong")
    (right,) = add("right", corrects=True)["files"]
    (HISTORY / right).with_suffix(".withdrawn").write_text("not right either")
    standings = {one.standing for one in dataset.standings(HISTORY)}
    assert standings == {dataset.WITHDRAWN, dataset.REPLACED}
    assert add("wrong", corrects=True)["files"] == current()  # it can be said by hand


def test_a_damaged_file_that_is_taken_back_does_not_hide_the_whole_one_beside_it():
    made.add_session("results", 1, {8: [100.0]})
    (file,) = add("results")["files"]
    made.add_session("results", 1, RATES)
    (grown,) = add("results")["files"]
    (HISTORY / file).write_bytes(b"no Parquet")
    assert current() == []
    (HISTORY / file).with_suffix(".withdrawn").write_text("damaged")
    assert current() == [grown]


def test_a_results_folder_that_is_being_written_to_enters_with_what_is_whole():
    made.add_session("results", 1, RATES)
    torn = sorted(Path("results").glob("runs/*/run.json"))[0]
    whole = torn.read_text()
    torn.write_text(whole[:200])
    receipt = add("results")
    assert "not a whole record" in receipt["notes"][0]
    assert len(dataset.logs(HISTORY, receipt["files"][0])) == 4
    torn.write_text(whole)
    assert not Source("results").is_added()
    add("results")
    assert [len(dataset.logs(HISTORY, name)) for name in current()] == [5]


def test_a_folder_without_records_is_refused():
    Path("results/runs").mkdir(parents=True)
    (reason,) = add("results")["refused"]
    assert reason.startswith("expected records of runs (runs/*/run.json), found none")


def test_a_session_that_goes_on_waits_and_the_others_enter():
    made.add_session("results", 1, {8: [100.0]})
    made.add_session("results", 2, {16: [200.0]}, ended=False)
    receipt = add("results")
    assert len(receipt["files"]) == 1 and "goes on" in receipt["waiting"][0]
    source = Source("results", {})
    assert source.is_added()
    Path(f"results/sessions/{made.session_id(2)}.done").touch()
    assert not source.is_added()
    assert len(add("results")["files"]) == 2


@pytest.mark.parametrize("year", [1970, 2199])
def test_a_clock_that_stood_in_1970_or_is_ahead_is_named_and_can_be_corrected(year):
    made.add_session(
        "results", 1, {8: [100.0]}, started_at=datetime(year, 1, 1, tzinfo=timezone.utc)
    )
    (reason,) = add("results")["refused"]
    assert f"{year}-01-01" in reason and "Give the entry of the config a date" in reason
    assert "/year=2026/" in add("results", date="2026-02-03")["files"][0]


def test_a_record_that_was_changed_is_left_out_and_named():
    made.add_session("results", 1, RATES)
    record = sorted(Path("results").glob("runs/*/run.json"))[0]
    record.write_text(record.read_text().replace('"ok"', '"oom"'))
    receipt = add("results")
    assert "changed after it was written" in receipt["notes"][0]
    assert len(dataset.logs(HISTORY, receipt["files"][0])) == 4


def test_failed_and_disturbed_runs_are_counted_and_left_out():
    made.add_session("results", 1, {8: [100.0, None]})
    made.add_session("results", 1, {16: [200.0]}, disturbed="others used 2 cores")
    (file,) = add("results")["files"]
    rows = dataset.rows_of(HISTORY, file, ["n", "failed", "disturbed"])
    assert sorted(map(tuple, (row.values() for row in rows))) == [(0, 0, 1), (1, 1, 0)]


def test_metrics_that_programs_name_are_series_of_their_own():
    metrics = [{"name": "loss_end", "value": 0.5, "unit": "", "better": "lower"}]
    metrics += [{"name": "balance", "value": -1.0, "unit": "1", "better": ""}]
    made.add_session("results", 1, {8: [100.0]}, metrics=metrics)
    receipt = add("results")
    rows = dataset.rows_of(HISTORY, receipt["files"][0], ["metric", "better", "n", "mean"])
    assert {row["metric"]: row["n"] for row in rows} == {
        "images_per_second": 1,
        "loss_end": 1,
        "balance": 0,
    }
    assert "balance: 1 of 1 values are not above 0" in receipt["notes"][0]


def with_gates():
    """A results folder with a condition of two runs, one of which missed its learning gate."""
    results = made.add_session(Path("project/results"), 0, {8: [100.0, 101.0], 16: [90.0]})
    records = [read_json(path) for path in sorted(results.glob("runs/*/run.json"))]
    records.sort(key=lambda r: (r["spec"]["batch_per_device"], r["spec"].get("repeat", 1)))
    gates = ["reached", "missed: top1 0.1, expected at least 0.9", None]
    (results / "tables").mkdir()
    columns = {"learning_gate": gates, "log_sha256": [r["log_sha256"] for r in records]}
    pq.write_table(pa.table(columns), results / add_campaign.RUNS)
    return results


def archived(results):
    files = {
        str(path.relative_to(results.parent)): path
        for path in sorted(results.rglob("*"))
        if path.is_file() and "sessions" not in path.parts
    }
    crate.write("a.zip", files, [("Source-Organization", "tests")])
    return "a.zip"


@pytest.mark.parametrize("source", [lambda results: results, archived])
def test_learning_gates_that_were_missed_enter_from_a_folder_and_from_an_archive(source):
    receipt = add(source(with_gates()))
    assert not receipt["refused"] and not receipt["notes"]
    rows = dataset.rows_of(HISTORY, receipt["files"][0], ["fields", "missed"])
    missed = {json.loads(row["fields"])["batch_per_device"]: row["missed"] for row in rows}
    assert missed == {8: 1, 16: None}


@pytest.mark.parametrize("content", [b"", b"authors: none", b"\xff\xfe"])
def test_a_table_of_runs_that_cannot_be_read_is_named_and_keeps_no_campaign_out(content):
    results = with_gates()
    (results / add_campaign.RUNS).write_bytes(content)
    receipt = add(results)
    rows = dataset.rows_of(HISTORY, receipt["files"][0], ["missed"])
    assert all(row["missed"] is None for row in rows)
    assert any("learning gates are not known" in note for note in receipt["notes"])


def test_a_file_of_before_is_read_without_the_columns_that_it_lacks():
    pq.write_table(pa.table({"session": ["s"], "logs": [["a"]]}), "s-1.parquet")
    (row,) = dataset.rows_of(Path(), "s-1.parquet", ["session", "missed"])
    assert row == {"session": "s", "missed": None}
