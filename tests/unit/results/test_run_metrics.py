"""run_metrics: the table of metrics, and what is printed of those that are not compared."""

from types import SimpleNamespace

from dlbench.results import run_metrics
from dlbench.tables import parquet_files
from dlbench.tables.metric_columns import METRICS

BANDWIDTH = {"name": "busbw", "value": 230.5, "unit": "GB/s", "better": "higher"}
STUDY = SimpleNamespace(name="made", compare=[], equivalence_margin=0.01, without_probes=[])


def run(run_id, **changes):
    return {"run_id": run_id, "status": "ok"} | changes


def test_rows_are_those_of_the_record_and_an_old_record_has_none():
    record = {"run_id": "a", "summary": {"metrics": [BANDWIDTH]}}
    assert run_metrics.rows(record) == [{"run_id": "a", **BANDWIDTH}]
    assert run_metrics.rows({"run_id": "a", "summary": {}}) == []


def test_an_import_of_an_earlier_version_has_no_metrics(tmp_path):
    assert run_metrics.imported_rows(tmp_path) == []
    rows = [{"run_id": "a", **BANDWIDTH}]
    parquet_files.write(tmp_path / "metrics.parquet", rows, METRICS)
    assert run_metrics.imported_rows(tmp_path) == rows


def test_metrics_that_cannot_be_compared_are_printed_with_the_reason(capsys):
    table = [
        {"run_id": "a", **BANDWIDTH},
        {"run_id": "b", **BANDWIDTH, "unit": "MB/s"},
        {"run_id": "b", **BANDWIDTH, "name": "skew", "value": -1.0},
    ]
    study = SimpleNamespace(**vars(STUDY) | {"compare": [{"metric": "skev"}, {"metric": "top1"}]})
    study.compare = [entry | {"field": "runtime", "base": "bare"} for entry in study.compare]
    assert run_metrics.compared(study, [run("a"), run("b")], [], table) == ([], [])
    assert capsys.readouterr().err.splitlines() == [
        "metric busbw: unit is 'GB/s' in a and 'MB/s' in b: not compared until all runs agree",
        "compare: no run has a metric 'skev' (did you mean 'skew'?)",
        "metric skew: -1 in b: no ratio",
    ]
