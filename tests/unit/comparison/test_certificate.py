"""certificate: a page on which nodes keep which bounds, by which archive."""

import datetime
import hashlib
import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dlbench.archive import bag
from dlbench.comparison import certificate
from dlbench.tables import parquet_files
from dlbench.tables.baseline_columns import BASELINES
from support.results import made_tables

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "dlbench"
ALONE = {
    "match": {"measure": "matrix_product"},
    "value": {"value": 100.0, "lower": -0.05, "upper": None, "unit": "TFLOP/s"},
}
TOGETHER = {
    "match": {"measure": "all_reduce", "nodes": "several"},
    "value": {"value": 40.0, "lower": -0.1, "upper": None, "unit": "GB/s"},
}


def product(node, value=100.0):
    return {
        "measure": "matrix_product", "unit": "TFLOP/s", "nodes": 1, "host": node, "node": node,
        "value": value, "device_model": "H100 <b>80GB</b>",
    }  # fmt: skip


def archive(folder, rows, name="archive.zip"):
    """An archive with a table of baselines, in a folder."""
    table = folder / "made/baselines.parquet"
    parquet_files.write(table, rows, BASELINES)
    files = {"results/tables/baselines.parquet": table.read_bytes()}
    bag.write(folder / name, files, [("Bagging-Date", "2026-01-01")])
    return folder / name


def start(folder, *arguments):
    (folder / "b.yaml").write_text(yaml.safe_dump({"references": [ALONE, TOGETHER]}))
    command = [sys.executable, PROGRAM, "accept-nodes", *arguments, "--bounds", "b.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def shown(page):
    """The text of an HTML page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_it_says_what_was_measured_on_which_nodes_against_what_and_by_which_archive(tmp_path):
    path = archive(tmp_path, [product("n1"), product("n2", 80.0), product("n3", 99.0)])
    made = start(tmp_path, path.name, "--nodes", "n[1-4]", "--certificate", "c.html")
    assert made.returncode == 1, made.stderr
    assert "2 nodes passed, 1 failed, 1 not known" in made.stderr
    page = (tmp_path / "c.html").read_text()
    assert "<b>80GB" not in page
    text = shown(page)
    assert "Acceptance of nodes: NOT passed" in text
    assert "passed n[1,3] failed n2 not known n4" in text
    assert "device H100 <b>80GB</b>" in text and "results 3 baselines" in text
    assert "at least 95 TFLOP/s 80 (n2), 99 2 pass, 1 FAIL, 1 not measured" in text
    assert "all_reduce several value at least 36 GB/s - not measured" in text
    assert "n2: matrix_product: expected at least 95 TFLOP/s, found 80" in text
    for name in ("archive.zip", "b.yaml"):
        assert f"{name} {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}" in text


def test_the_command_that_it_names_gives_the_same_bytes_elsewhere(tmp_path):
    path = archive(tmp_path, [product("n1"), product("n2")])
    assert start(tmp_path, str(path), "--certificate", "c.html").returncode == 0
    command = re.search(r"dlbench accept-nodes (archive.zip) --bounds b.yaml",
                        shown((tmp_path / "c.html").read_text()))  # fmt: skip
    assert start(tmp_path, command[1], "--certificate", "d.html").returncode == 0
    assert (tmp_path / "c.html").read_bytes() == (tmp_path / "d.html").read_bytes()


def test_an_archive_alone_is_judged_without_writing_lists_into_it(tmp_path):
    before = archive(tmp_path, [product("n1")]).read_bytes()
    finished = start(tmp_path, "archive.zip")
    assert finished.returncode == 0 and "1 node passed" in finished.stdout
    assert (tmp_path / "archive.zip").read_bytes() == before
    assert not list(tmp_path.rglob("nodes.*"))


def test_a_damaged_archive_certifies_nothing(tmp_path):
    path = archive(tmp_path, [product("n1")])
    content = bytearray(path.read_bytes())
    content[content.index(b"baselines.parquet") + 40] ^= 1
    path.write_bytes(content)
    finished = start(tmp_path, "archive.zip", "--certificate", "c.html")
    assert finished.returncode == 2 and "damaged" in finished.stderr
    assert not (tmp_path / "c.html").exists()


def test_a_folder_has_no_digest_that_a_certificate_could_name(tmp_path):
    parquet_files.write(tmp_path / "results/tables/baselines.parquet", [product("n1")], BASELINES)
    finished = start(tmp_path, "--certificate", "c.html")
    assert finished.returncode == 2
    assert "expected an archive of the results, found results" in finished.stderr
    assert "snakemake archive" in finished.stderr


def test_the_facts_are_those_of_runs_and_baselines(tmp_path):
    (tmp_path / "tables").mkdir()
    made_tables.write(
        tmp_path / "tables",
        [made_tables.run(started_at=datetime.datetime(2026, 11, day, tzinfo=datetime.UTC))
         for day in (3, 1, 2)],
    )  # fmt: skip
    parquet_files.write(tmp_path / "tables/baselines.parquet", [product("n1")], BASELINES)
    facts = dict(certificate.facts(tmp_path))
    assert facts["measured"] == "2026-11-01 to 2026-11-03"
    assert facts["results"] == "3 runs, 1 baseline"
    assert "H100 <b>80GB</b>" in facts["device"]


@pytest.mark.parametrize("nodes", [3, 40])
def test_many_failures_stay_one_page(tmp_path, nodes):
    archive(tmp_path, [product(f"n{n}", 50.0) for n in range(nodes)])
    assert start(tmp_path, "archive.zip", "--certificate", "c.html").returncode == 1
    text = shown((tmp_path / "c.html").read_text())
    assert text.count("expected at least") == min(nodes, certificate.MOST)
    assert (f"and {nodes - certificate.MOST} more" in text) == (nodes > certificate.MOST)
