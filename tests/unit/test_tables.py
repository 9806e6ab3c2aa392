"""tables: explicit schemas, versions, and the same bytes each time."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench import tables
from dlbench.tables import TableError

STEP = {
    "run_id": "run", "rank": 0, "step": 1, "epoch": 1, "t_s": 0.5, "step_time_s": 0.25,
    "loss": 2.0, "learning_rate": 0.01, "warm_up": True,
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    tables.write(tmp_path / "steps.parquet", [STEP, STEP | {"step": 2}], tables.STEPS, note="x")
    return tmp_path / "steps.parquet"


def test_rows_come_back_with_units_and_notes(path):
    table = tables.read(path, tables.STEPS)
    assert table.to_pylist()[0] == STEP
    assert table.schema.field("step_time_s").metadata[b"unit"] == b"s"
    assert pq.read_schema(path).metadata[b"note"] == b"x"


def test_every_number_with_a_unit_in_its_name_has_it_in_its_metadata():
    for schema in (tables.STEPS, tables.EVALS, tables.RUNS, tables.COMPARISONS):
        for field in schema:
            if field.name.endswith("_s"):
                assert field.metadata[b"unit"] == b"s", field.name


def test_the_same_rows_give_the_same_bytes(path, tmp_path):
    tables.write(tmp_path / "again", [STEP, STEP | {"step": 2}], tables.STEPS, note="x")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_empty_table_keeps_its_columns(tmp_path):
    tables.write(tmp_path / "empty", [], tables.RUNS)
    assert tables.read(tmp_path / "empty", tables.RUNS).column_names == tables.RUNS.names


def test_a_column_without_a_schema_is_refused(tmp_path):
    with pytest.raises(ValueError, match="columns without a schema: speed"):
        tables.write(tmp_path / "table", [STEP | {"speed": 1}], tables.STEPS)
    assert not list(tmp_path.iterdir())


def test_a_table_of_a_newer_version_is_refused(path, monkeypatch):
    monkeypatch.setattr(tables, "SCHEMA_VERSION", 0)
    with pytest.raises(TableError, match="made by a newer dlbench"):
        tables.read(path, tables.STEPS)


def test_a_file_that_is_no_table_is_named(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(TableError, match="text cannot be read as Parquet"):
        tables.read(tmp_path / "text", tables.STEPS)
    pq.write_table(pa.table({"run_id": ["run"]}), tmp_path / "other")
    with pytest.raises(TableError, match="columns missing: rank, step"):
        tables.read(tmp_path / "other", tables.STEPS)


def test_a_table_knows_the_log_it_was_made_from(tmp_path):
    tables.write(tmp_path / "steps", [STEP], tables.STEPS, log_sha256="a")
    assert tables.made_from(tmp_path / "steps", "a")
    assert not tables.made_from(tmp_path / "steps", "b")
    assert not tables.made_from(tmp_path / "absent", "a")


def test_csv_leaves_out_what_is_absent(tmp_path):
    tables.write(tmp_path / "t", [{"run_id": "a", "status": "ok"}], tables.COVERAGE)
    tables.write_csv(tmp_path / "t.csv", tables.read(tmp_path / "t", tables.COVERAGE))
    header, row = (tmp_path / "t.csv").read_text().splitlines()
    assert header == '"run_id","combination","status","reason"'
    assert row == '"a",,"ok",'
