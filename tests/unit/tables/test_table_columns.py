"""table_columns: every table has its columns under its name."""

import pyarrow as pa

from dlbench.analysis.frames import Tables
from dlbench.common.run_fields import DEFAULTS
from dlbench.tables import cells, parquet_files, table_columns
from dlbench.tables.table_columns import with_parameters


def test_the_names_of_the_tables_are_those_that_have_columns():
    assert tuple(table_columns.STUDY_TABLES) == cells.OF_STUDY
    assert tuple(table_columns.RUN_TABLES) == cells.OF_RUN
    assert tuple(table_columns.MACHINE_TABLES) == cells.OF_MACHINES


TEXTS = ("tensor_parallel=1 recompute=true", "tensor_parallel=2 share=0.5 kind=1", "kind=a", "")


def rows(texts):
    return [{"run_id": f"r{n}", "trainer_parameters": text} for n, text in enumerate(texts)]


def test_a_table_without_parameters_has_the_columns_that_it_had():
    for name, schema in table_columns.STUDY_TABLES.items():
        assert with_parameters(schema, rows(["", ""])) == (schema, rows(["", ""])), name
    assert with_parameters(table_columns.RUNS, [{"run_id": "imported"}])[0] == table_columns.RUNS
    assert DEFAULTS["trainer_parameters"] == ""


def test_each_parameter_is_a_column_of_the_kind_of_its_values():
    schema, made = with_parameters(table_columns.RUNS, rows(TEXTS))
    types = {name: schema.field(name).type for name in schema.names[len(table_columns.RUNS) :]}
    assert types == {
        "parameters.kind": pa.dictionary(pa.int32(), pa.string()),
        "parameters.recompute": pa.bool_(),
        "parameters.share": pa.float64(),
        "parameters.tensor_parallel": pa.int64(),
    }
    assert [row.get("parameters.tensor_parallel") for row in made] == [1, 2, None, None]
    assert [row.get("parameters.kind") for row in made] == [None, "1", "a", None]


def test_a_written_table_has_them_and_so_have_data_frames_of_it(tmp_path):
    schema, made = with_parameters(table_columns.RUNS, rows(TEXTS))
    parquet_files.write(tmp_path / "runs.parquet", made, schema)
    names = parquet_files.read_any(tmp_path / "runs.parquet").column_names
    assert names[-1] == "parameters.tensor_parallel"
    frame = Tables(tmp_path, tmp_path).runs
    assert list(frame["parameters.tensor_parallel"].dropna()) == [1, 2]
    assert list(frame.columns[: len(table_columns.RUNS)]) == table_columns.RUNS.names
    parquet_files.write(tmp_path / "runs.parquet", rows(["", None]), table_columns.RUNS)
    assert list(Tables(tmp_path, tmp_path).runs.columns) == table_columns.RUNS.names
