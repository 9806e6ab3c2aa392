"""Damaged tables: no changed bit is read as another number, and each message says what helps."""

import contextlib
import os
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dlbench.tables import parquet_files, table_columns
from dlbench.tables.parquet_files import TableError
from support.results import made_run_tables, made_tables

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
