"""An archive of release 0.1.0 can be verified, read and derived again by each later version.

tests/data/archive_of_0.1.0.zip is that of a study of two runs. What its tables do not need was
taken out, to keep it small.
"""

import csv
import io
import json
import zipfile

import pytest

from dlbench.archive import rederive
from support.archives.made_archives import program
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.slow
BEFORE = REPOSITORY / "tests/data/archive_of_0.1.0.zip"
RUNS = "results/tables/runs.csv"
MEASURED = ("images_per_second", "step_time_median_s", "steps", "parameters", "host", "status")
MADE = "12 tables, 1 figure, the report, 6 tables of runs"


def content(name):
    with zipfile.ZipFile(BEFORE) as archive:
        return archive.read(f"archive/data/{name}").decode()


def test_it_is_sound_and_its_records_say_what_their_logs_do():
    output = program("dlbench", "verify", BEFORE, "--deep")
    assert "zip: sound: 298 files, 2 runs; 2 records say what their logs do" in output
    lines = program("dlbench", "rederive", BEFORE, "--list").splitlines()
    assert sorted(line.split("  ")[-1] for line in lines[:2]) == [
        f"lenet5 synthetic batch 8, single on 1 device, repeat {n}" for n in (1, 2)
    ]
    assert lines[2].startswith("2 runs to train: ")


def test_its_own_programs_make_the_same_tables_again(tmp_path):
    if rederive._versions(json.loads(content("archive.json"))["made_with"]):
        pytest.skip("other versions of packages than those that made it")
    output = program("dlbench", "rederive", BEFORE, "--output", tmp_path / "again")
    assert output.splitlines()[0].startswith(f"identical: {MADE}; 2 records")


def test_our_programs_read_the_same_results_from_it_and_name_what_they_write_otherwise(tmp_path):
    arguments = (BEFORE, "--output", tmp_path / "again", "--own-code")
    output = program("dlbench", "rederive", *arguments, code=1)
    assert "results/tables/coverage.csv: differs" in output
    assert f"file(s) differ, of {MADE}: " in output
    now, before = (
        {row["run_id"]: {name: row[name] for name in MEASURED} for row in csv.DictReader(lines)}
        for lines in ((tmp_path / "again" / RUNS).open(), io.StringIO(content(RUNS)))
    )
    assert now == before and len(now) == 2
