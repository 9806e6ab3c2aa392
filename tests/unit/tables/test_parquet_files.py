"""parquet_files: explicit schemas, versions, and the same bytes each time."""

import csv
import re

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.tables import parquet_files, table_columns
from dlbench.tables.parquet_files import TableError

STEP = {
    "run_id": "run",
    "rank": 0,
    "step": 1,
    "epoch": 1,
    "t_s": 0.5,
    "step_time_s": 0.25,
    "loss": 2.0,
    "learning_rate": 0.01,
    "warm_up": True,
    "window_steps": None,
}

UNITS = {
    "_s": b"s",
    "_j": b"J",
    "_bytes": b"B",
    "images_per_second": b"items/s",
    "tokens_per_second": b"tokens/s",
    "batch": b"items",
    "_bytes_per_s": b"B/s",
    "_gb_per_s": b"GB/s",
    "_percent": b"%",
    "_cores": b"cores",
    "_mhz": b"MHz",
}


@pytest.fixture
def path(tmp_path):
    parquet_files.write(
        tmp_path / "steps.parquet", [STEP, STEP | {"step": 2}], table_columns.STEPS, note="x"
    )
    return tmp_path / "steps.parquet"


def test_rows_come_back_with_units_and_notes(path):
    table = parquet_files.read(path, table_columns.STEPS)
    assert table.to_pylist()[0] == STEP
    assert table.schema.field("step_time_s").metadata[b"unit"] == b"s"
    assert pq.read_schema(path).metadata[b"note"] == b"x"


@pytest.mark.parametrize(
    "schema", [table_columns.STEPS, table_columns.RUNS, table_columns.COVERAGE]
)
def test_pandas_has_the_units_of_all_columns_that_have_one(tmp_path, schema):
    parquet_files.write(tmp_path / "table", [], schema)
    units = pandas.read_parquet(tmp_path / "table").attrs["units"]
    described = {field.name: (field.metadata or {}).get(b"unit") for field in schema}
    assert units == {name: unit.decode() for name, unit in described.items() if unit}


def test_every_number_with_a_unit_in_its_name_has_it_in_its_metadata():
    for schema in (
        table_columns.STEPS,
        table_columns.EVALS,
        table_columns.SAMPLES,
        table_columns.RUNS,
        table_columns.COMPARISONS,
        table_columns.SPEEDUPS,
    ):
        for field in schema:
            endings = [ending for ending in UNITS if field.name.endswith(ending)]
            if endings:
                assert field.metadata[b"unit"] == UNITS[max(endings, key=len)], field.name


def test_the_same_rows_give_the_same_bytes(path, tmp_path):
    parquet_files.write(
        tmp_path / "again", [STEP, STEP | {"step": 2}], table_columns.STEPS, note="x"
    )
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_empty_table_keeps_its_columns(tmp_path):
    parquet_files.write(tmp_path / "empty", [], table_columns.RUNS)
    assert (
        parquet_files.read(tmp_path / "empty", table_columns.RUNS).column_names
        == table_columns.RUNS.names
    )


def test_a_column_without_a_schema_is_refused(tmp_path):
    with pytest.raises(ValueError, match="columns without a schema: speed"):
        parquet_files.write(tmp_path / "table", [STEP | {"speed": 1}], table_columns.STEPS)
    assert not list(tmp_path.iterdir())


def test_a_table_of_a_newer_version_is_refused(path, monkeypatch):
    monkeypatch.setattr(parquet_files, "SCHEMA_VERSION", 0)
    with pytest.raises(TableError, match="made by a newer dlbench"):
        parquet_files.read(path, table_columns.STEPS)


def test_a_file_that_is_no_table_is_named(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(TableError, match="text cannot be read as Parquet"):
        parquet_files.read(tmp_path / "text", table_columns.STEPS)
    pq.write_table(pa.table({"run_id": ["run"]}), tmp_path / "other")
    with pytest.raises(TableError, match="columns missing: rank, step"):
        parquet_files.read(tmp_path / "other", table_columns.STEPS)


def test_a_table_knows_the_log_it_was_made_from(tmp_path):
    parquet_files.write(tmp_path / "steps", [STEP], table_columns.STEPS, log_sha256="a")
    assert parquet_files.is_made_from(tmp_path / "steps", "a")
    assert not parquet_files.is_made_from(tmp_path / "steps", "b")
    assert not parquet_files.is_made_from(tmp_path / "absent", "a")


def test_a_table_that_was_cut_short_or_is_another_file_was_made_from_no_log(tmp_path):
    path = tmp_path / "steps"
    parquet_files.write(path, [STEP], table_columns.STEPS, log_sha256="a")
    content = path.read_bytes()
    for damaged in (
        content[:-1],
        content[:20],
        b"",
        b"a",
        b"PAR1",
        content[:-8] + b"\xff" * 4 + b"PAR1",
    ):
        path.write_bytes(damaged)
        assert not parquet_files.is_made_from(path, "a")


def test_a_table_of_another_writer_is_believed_if_its_metadata_says_the_same(tmp_path):
    path = tmp_path / "steps"
    notes = {"log_sha256": "a", "schema_version": str(parquet_files.SCHEMA_VERSION)}
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(notes), path)
    assert parquet_files.is_made_from(path, "a")


def test_a_digest_among_the_values_is_not_that_of_the_log(tmp_path):
    parquet_files.write(
        tmp_path / "steps",
        [STEP | {"run_id": "a" * 64}],
        table_columns.STEPS,
        log_sha256="b",
    )
    assert not parquet_files.is_made_from(tmp_path / "steps", "a" * 64)


def test_csv_leaves_out_what_is_absent(tmp_path):
    parquet_files.write(tmp_path / "t", [{"run_id": "a", "status": "ok"}], table_columns.COVERAGE)
    parquet_files.write_csv(
        tmp_path / "t.csv", parquet_files.read(tmp_path / "t", table_columns.COVERAGE)
    )
    header, row = (tmp_path / "t.csv").read_text().splitlines()
    assert header == '"run_id","combination","status","reason"'
    assert row == '"a",,"ok",'


TEXTS = ("=1+1", "+cmd|x", "-x", "@SUM(A1)", "\tx", "\rx", "'=1", "''x", "a=b", "-1.5", "+3e-4", "")


@given(st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=8)), min_size=1, max_size=5))
def test_no_text_of_a_csv_is_a_formula_and_all_come_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    column = pa.array([text.encode(errors="replace").decode() for text in texts])
    parquet_files.write_csv(path, pa.table({"message": column.dictionary_encode()}))
    with open(path, newline="", encoding="utf-8") as file:
        cells = [row["message"] for row in csv.DictReader(file)]
    for cell in cells:
        assert cell[:1] not in tuple("=+-@\t\r") or re.fullmatch(parquet_files.NUMBER, cell)
    read = pa.table({"message": pa.array(cells)})
    assert parquet_files.from_csv(read).column("message").to_pylist() == column.to_pylist()


def test_negative_numbers_of_a_csv_stay_numbers(tmp_path):
    numbers = pa.table(
        {"loss": [-1.5, None], "message": pa.array(["-2", "-x"]).dictionary_encode()}
    )
    parquet_files.write_csv(tmp_path / "t.csv", numbers)
    assert (tmp_path / "t.csv").read_text().splitlines()[1:] == ['-1.5,"-2"', ',"\'-x"']
