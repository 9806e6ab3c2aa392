"""certificate: a page on which nodes keep which bounds, by which archive."""

import hashlib
import html
import re
from pathlib import Path

import yaml

from dlbench.archive import bag
from dlbench.tables import parquet_files
from dlbench.tables.baseline_columns import BASELINES
from support.programs.in_process import dlbench

ALONE = {
    "match": {"measure": "matrix_product"},
    "value": {"value": 100.0, "lower": -0.05, "upper": None, "unit": "TFLOP/s"},
}


def product(node, value=100.0):
    row = {"measure": "matrix_product", "unit": "TFLOP/s", "nodes": 1, "host": node, "node": node}
    return row | {"value": value, "device_model": "H100 <b>80GB</b>"}


def test_it_says_what_was_measured_on_which_nodes_against_what_and_by_which_archive(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("b.yaml").write_text(yaml.safe_dump({"references": [ALONE]}))
    table = Path("baselines.parquet")
    rows = [product("n1"), product("n2", 80.0), product("n3", 99.0)]
    parquet_files.write(table, rows, BASELINES)
    files = {"results/tables/baselines.parquet": table.read_bytes()}
    bag.write(Path("archive.zip"), files, [("Bagging-Date", "2026-01-01")])
    words = ["archive.zip", "--bounds", "b.yaml", "--nodes", "n[1-4]", "--certificate", "c.html"]
    made = dlbench("accept-nodes", *words)
    assert made.returncode == 1, made.stderr
    assert "2 nodes passed, 1 failed, 1 not known" in made.stderr
    page = Path("c.html").read_text()
    assert "<b>80GB" not in page
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
    assert "Acceptance of nodes: NOT passed" in text
    assert "passed n[1,3] failed n2 not known n4" in text
    assert "device H100 <b>80GB</b>" in text and "results 3 baselines" in text
    assert "at least 95 TFLOP/s 80 (n2), 99 2 pass, 1 FAIL, 1 not measured" in text
    assert "n2: matrix_product: expected at least 95 TFLOP/s, found 80" in text
    for name in ("archive.zip", "b.yaml"):
        assert f"{name} {hashlib.sha256(Path(name).read_bytes()).hexdigest()}" in text
