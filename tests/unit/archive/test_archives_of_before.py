"""An archive of an earlier version, 6301a48, can be verified, read and derived again.

tests/data/archive_of_6301a48.zip is that of a study of two runs. Programs that its tables do not
need were taken out, to keep it small.
"""

import csv
import io
import json
import re
import zipfile

import pytest
import yaml

from dlbench.archive import rederive
from support.archives import made_archives
from support.archives.made_archives import program
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.slow
BEFORE = REPOSITORY / "tests/data/archive_of_6301a48.zip"
RUNS = "results/tables/runs.csv"
NOT_COMPARED = "records not compared with their logs: 2 of version 4 of the parser"
MEASURED = ("images_per_second", "step_time_median_s", "steps", "parameters", "host", "status")


def content(name):
    with zipfile.ZipFile(BEFORE) as archive:
        return archive.read(f"archive/data/{name}")


def test_it_is_sound_and_says_that_only_its_own_parser_compares_records_with_logs():
    output = program("dlbench", "verify", BEFORE, "--deep")
    assert re.search(r"zip: sound: \d+ files, 2 runs; 0 records say what their logs do", output)
    assert NOT_COMPARED in output
    lines = program("dlbench", "rederive", BEFORE, "--list").splitlines()
    assert [line.split("  ")[-1] for line in lines[:2]] == [
        f"lenet5 synthetic batch 8, single on 1 device, repeat {n}" for n in (1, 2)
    ]
    assert lines[2].startswith("2 runs to train: ")


def test_its_own_programs_make_the_same_tables_again(tmp_path):
    with zipfile.ZipFile(BEFORE) as archive:
        about = json.loads(archive.read("archive/data/archive.json"))
    if rederive._versions(about["made_with"]):
        pytest.skip("other versions of packages than those that made it")
    output = program("dlbench", "rederive", BEFORE, "--output", tmp_path / "again")
    assert output.splitlines()[0].startswith(NOT_COMPARED)
    assert output.splitlines()[1] == (
        "identical: 6 tables, 1 figure, the report, 6 tables of runs; "
        "0 records say what their logs do"
    )


def test_our_programs_read_the_same_results_from_it_and_name_what_they_write_otherwise(tmp_path):
    """Also where its config cannot name imports or other trainers yet."""
    settings = yaml.safe_load(content("config.yaml"))
    for name in ("imports", "references", "trainers"):
        assert settings.pop(name) in ([], {})
    config = {"config.yaml": yaml.safe_dump(settings).encode()}
    made_archives.changed(BEFORE, tmp_path / "older.zip", config)
    arguments = (tmp_path / "older.zip", "--output", tmp_path / "again", "--own-code")
    output = program("dlbench", "rederive", *arguments, code=1)
    assert NOT_COMPARED in output and f"{RUNS}: differs" in output
    assert "file(s) differ, of 6 tables, 1 figure, the report, 6 tables of runs: " in output
    assert "without --own-code, that in the archive does it" in output or "versions above" in output
    now, before = (
        {row["run_id"]: {name: row[name] for name in MEASURED} for row in csv.DictReader(lines)}
        for lines in ((tmp_path / "again" / RUNS).open(), io.StringIO(content(RUNS).decode()))
    )
    assert now == before and len(now) == 2
