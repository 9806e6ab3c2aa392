"""parquet_files: explicit schemas, versions, and the same bytes each time."""

import contextlib
import csv
import os
import random
import re
from pathlib import Path

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.tables import parquet_files, table_columns
from dlbench.tables.parquet_files import TableError
from support.results import made_run_tables, made_tables

STEP = {
    "run_id": "run", "rank": 0, "step": 1, "epoch": 1, "t_s": 0.5, "step_time_s": 0.25, "loss": 2.0,
    "learning_rate": 0.01, "warm_up": True, "window_steps": None,
}  # fmt: skip

UNITS = {
    "_s": b"s", "_j": b"J", "_bytes": b"B", "images_per_second": b"items/s",
    "tokens_per_second": b"tokens/s", "batch": b"items", "_bytes_per_s": b"B/s",
    "_gb_per_s": b"GB/s", "_percent": b"%", "_cores": b"cores", "_mhz": b"MHz",
}  # fmt: skip


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


def test_a_table_knows_the_log_it_was_made_from_unless_it_is_damaged(tmp_path):
    path, other = tmp_path / "steps", "b" * 64
    parquet_files.write(path, [STEP | {"run_id": other}], table_columns.STEPS, log_sha256="a")
    assert parquet_files.is_made_from(path, "a")
    assert not parquet_files.is_made_from(path, other)  # which is among its values
    assert not parquet_files.is_made_from(tmp_path / "absent", "a")
    content = path.read_bytes()
    lengths = content[:-8] + b"\xff" * 4 + b"PAR1"
    for damaged in (content[:-1], content[:20], b"", b"a", b"PAR1", lengths):
        path.write_bytes(damaged)
        assert not parquet_files.is_made_from(path, "a")
    # Another writer is believed if its metadata says the same.
    notes = {"log_sha256": "a", "schema_version": str(parquet_files.SCHEMA_VERSION)}
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(notes), path)
    assert parquet_files.is_made_from(path, "a")


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


FLIPS = 400  # in each table
RUN = made_tables.run()
TABLES = {
    "steps": (made_run_tables.steps(RUN), table_columns.STEPS),
    "samples": (made_run_tables.samples(RUN), table_columns.SAMPLES),
    "runs": ([made_tables.run(repeat=repeat) for repeat in (1, 2)], table_columns.RUNS),
}


def flipped(content, bit):
    """The content with one bit that is another."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("name", TABLES)
def test_no_flipped_bit_is_read_as_another_number(tmp_path, name):
    rows, schema = TABLES[name]
    path = tmp_path / f"{name}.parquet"
    parquet_files.write(path, rows, schema, log_sha256="a" * 64)
    whole, content = parquet_files.read(path, schema), path.read_bytes()
    refused = 0
    for bit in random.Random(38).sample(range(8 * len(content)), FLIPS):
        path.write_bytes(flipped(content, bit))
        try:
            # What is read in spite of it is of a bit of the digest's own name.
            assert parquet_files.read(path, schema).equals(whole), f"bit {bit}"
        except TableError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 0.95 * FLIPS


def test_every_bit_of_a_tables_digest_can_be_lost_and_what_is_read_stays_the_same(tmp_path):
    path = tmp_path / "steps.parquet"
    parquet_files.write(path, *TABLES["steps"])
    whole, content = parquet_files.read(path, table_columns.STEPS), path.read_bytes()
    place = content.index(parquet_files.DIGEST.encode())
    for bit in range(8 * place, 8 * (place + len(parquet_files.DIGEST) + 2 + 64)):
        path.write_bytes(flipped(content, bit))
        with contextlib.suppress(TableError):
            assert parquet_files.read(path, table_columns.STEPS).equals(whole)


def test_a_table_of_an_earlier_version_without_a_digest_is_read_and_its_damage_named(tmp_path):
    path = tmp_path / "steps.parquet"
    rows, schema = TABLES["steps"]
    table = parquet_files.table(rows, schema)
    pq.write_table(table, path)
    assert parquet_files.read(path, schema).equals(table)
    content = path.read_bytes()
    for bit in random.Random(38).sample(range(8 * len(content)), FLIPS):
        path.write_bytes(flipped(content, bit))
        try:
            parquet_files.read(path, schema)
        except TableError as error:
            assert str(path) in str(error)


def test_other_readers_find_the_digest_as_an_entry_of_the_metadata(tmp_path):
    parquet_files.write(tmp_path / "runs.parquet", *TABLES["runs"])
    metadata = pq.read_metadata(tmp_path / "runs.parquet").metadata
    assert len(metadata[parquet_files.DIGEST.encode()]) == 64
    assert pq.read_table(tmp_path / "runs.parquet").num_rows == 2


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("results/tables/runs.parquet", "snakemake tables"),
        ("results/tables/baselines.parquet", "snakemake baselines"),
        ("results/imports/far/evals.parquet", "snakemake results/imports/far/evals.parquet"),
        ("results/runs/lenet5/steps.parquet", "snakemake --forcerun collect_runs"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 100], ids=len)
def test_a_table_that_is_empty_or_cut_is_named_with_the_command_that_makes_it(
    here, path, command, content
):
    for place in (Path(path), Path(path).absolute()):
        with pytest.raises(TableError, match=f"there is no such table; `{command}` makes it"):
            parquet_files.read_any(place)
    Path(path).parent.mkdir(parents=True)
    Path(path).write_bytes(content)
    with pytest.raises(TableError, match=f"^{path} cannot be .*; remove it: `{command}` makes it"):
        parquet_files.read_any(path)


def test_a_damaged_table_from_elsewhere_is_refused_as_runs_of_others_too(tmp_path):
    path = tmp_path / "runs.parquet"
    parquet_files.write(path, *TABLES["runs"])
    assert len(parquet_files.table_rows(path)) == 2
    path.write_bytes(flipped(path.read_bytes(), 8 * 2000))
    with pytest.raises(TableError, match=r"is damaged.*; take it anew from its origin"):
        parquet_files.table_rows(path)


def test_a_table_that_a_disk_damages_after_it_was_checked_is_refused_though_its_date_stays(
    tmp_path,
):
    path = tmp_path / "runs.parquet"
    parquet_files.write(path, *TABLES["runs"])
    parquet_files.check(path)
    dates = path.stat()
    path.write_bytes(flipped(path.read_bytes(), 8 * 2000))
    os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    for read in (parquet_files.check, parquet_files.read_any):
        with pytest.raises(TableError, match="is damaged"):
            read(path)
