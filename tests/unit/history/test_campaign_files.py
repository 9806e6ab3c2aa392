"""campaign_files: learning gates, licence and citation of a campaign enter the history with it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench.archive import bag
from dlbench.common.files import read_json
from dlbench.history import add_campaign, campaign_files, dataset, sources
from support.history import made_campaigns as made

CITATION = """
cff-version: 1.2.0
title: Nightly runs of the north
authors: [{family-names: Lovelace, given-names: Ada}]
license: CC-BY-4.0
"""
# Seven lists of nine, each of which stands nine times in the next.
LEVELS = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]" for n in range(7)]
BOMB = "\n".join([*LEVELS, "authors: [*a6]"]).encode()


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """A results folder with a condition of two runs, one of which missed its gate."""
    monkeypatch.chdir(tmp_path)
    results = made.add_session(tmp_path / "project" / "results", 0, {8: [100.0, 101.0], 16: [90.0]})
    records = [read_json(path) for path in sorted(results.glob("runs/*/run.json"))]
    gates = ["reached", "missed: top1 0.1, expected at least 0.9", None]
    (results / "tables").mkdir()
    columns = {"learning_gate": gates, "log_sha256": [r["log_sha256"] for r in by_batch(records)]}
    pq.write_table(pa.table(columns), results / campaign_files.RUNS)
    (results.parent / campaign_files.CITATION).write_text(CITATION)
    return results


def by_batch(records):
    return sorted(
        records, key=lambda r: (r["spec"]["batch_per_device"], r["spec"].get("repeat", 1))
    )


def rows(path):
    receipt = add_campaign.add(sources.Source(str(path)), sources.HISTORY)
    assert not receipt["refused"], receipt
    columns = ["fields", "missed", "citation"]
    (file,) = receipt["files"]
    return {
        json.loads(row["fields"]).get("batch_per_device"): row
        for row in dataset.rows_of(sources.HISTORY, file, columns)
    }, receipt["notes"]


def archived(campaign):
    files = {
        str(path.relative_to(campaign.parent)): path
        for path in sorted(campaign.parent.rglob("*"))
        if path.is_file() and "sessions" not in path.parts
    }
    bag.write(campaign.parent / "a.zip", files, [("Source-Organization", "tests")])
    return campaign.parent / "a.zip"


@pytest.mark.parametrize("source", [lambda campaign: campaign, archived])
def test_of_a_folder_and_of_an_archive(campaign, source):
    found, notes = rows(source(campaign))
    assert not notes
    assert found[8]["missed"] == 1 and found[16]["missed"] is None
    kept = json.loads(found[8]["citation"])
    assert kept["license"] == "CC-BY-4.0" and kept["authors"][0]["family-names"] == "Lovelace"
    assert "cff-version" not in kept


@pytest.mark.parametrize(
    "content", [b"", b"authors: none", b"\xff\xfe", b"[" * 3000, b"- a\n- b", BOMB]
)
def test_files_that_cannot_be_read_are_named_and_keep_no_campaign_out(campaign, content):
    (campaign / campaign_files.RUNS).write_bytes(content)
    (campaign.parent / campaign_files.CITATION).write_bytes(content)
    found, notes = rows(campaign)
    assert all(row["missed"] is None and row["citation"] is None for row in found.values())
    assert any("learning gates are not known" in note for note in notes)
    assert any("its licence and authors are not known" in note for note in notes)


def test_a_file_of_before_is_read_without_them(tmp_path):
    table = pa.table({"session": ["s"], "logs": [["a"]]})
    pq.write_table(table, tmp_path / "s-1.parquet")
    (row,) = dataset.rows_of(tmp_path, "s-1.parquet", ["session", "missed", "citation"])
    assert row == {"session": "s", "missed": None, "citation": None}
