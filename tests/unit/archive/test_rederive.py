"""rederive: tables, figures and report are derived again from an archive alone."""

import json
import re
import subprocess
import sys
import zipfile

import pyarrow.parquet as pq
import pytest
import yaml

from dlbench.archive import rederive
from dlbench.records import run_record
from dlbench.tables import table_names
from support.archives import made_archives
from support.archives.made_archives import ARCHIVE, program

TABLES = len(table_names.OF_STUDY)


def rederived(*arguments, code=0):
    return program("dlbench", "rederive", *arguments, code=code)


def archive():
    return made_archives.archived() / ARCHIVE


def content(name):
    with zipfile.ZipFile(archive()) as opened:
        return opened.read(f"archive/data/{name}")


def names():
    with zipfile.ZipFile(archive()) as opened:
        return [name.removeprefix("archive/data/") for name in opened.namelist()]


def test_everything_comes_out_the_same_byte_for_byte(tmp_path):
    output = rederived(archive(), "--output", tmp_path / "again")
    assert output == (
        f"identical: {TABLES} tables, 2 figures, the report, 21 tables of runs; "
        "8 records say what their logs do\n"
    )
    assert b"-s1-r" in content("results/tables/sentinels.csv")
    for name in (
        "results/tables/runs.parquet",
        "results/figures/scaling.png",
        "results/report.html",
    ):
        assert (tmp_path / "again" / name).read_bytes() == content(name)


def test_our_own_programs_do_it_too_and_none_of_the_archive_is_run(tmp_path):
    mined = {
        f"workflow_scripts/{name}.py": b"raise SystemExit('run')\n"
        for name in ("collect_runs", "draw_figure", "build_report")
    }
    made_archives.changed(archive(), tmp_path / "mined.zip", mined)
    arguments = (tmp_path / "mined.zip", "--output")
    output = rederived(*arguments, tmp_path / "one", code=2)
    assert "collect_runs.py of the archive failed:\nrun" in output
    assert rederived(*arguments, tmp_path / "two", "--own-code").startswith(
        f"identical: {TABLES} tables"
    )


def test_an_archive_of_an_earlier_version_is_made_again_by_our_own_programs(tmp_path):
    settings = yaml.safe_load(content("config.yaml"))
    imported = "results/imports/others/runs.parquet"
    (tmp_path / "new.parquet").write_bytes(content(imported))
    table = pq.read_table(tmp_path / "new.parquet")
    later = ["session", "disturbed", "others_cpu_cores"]
    assert (
        set(later) <= set(table.column_names) and rederive.DEFAULTS_SINCE.keys() <= settings.keys()
    )
    pq.write_table(table.drop_columns(later), tmp_path / "old.parquet")
    # This study has some imports, references and trainers; of data one key is new.
    later = rederive.DEFAULTS_SINCE.keys() - {"imports", "references", "trainers", "data"}
    of_before = {name: value for name, value in settings.items() if name not in later}
    of_data = rederive.DEFAULTS_SINCE["data"].keys()
    of_before["data"] = {k: v for k, v in settings["data"].items() if k not in of_data}
    changes = {
        "config.yaml": yaml.safe_dump(of_before).encode(),
        imported: (tmp_path / "old.parquet").read_bytes(),
    }
    made_archives.changed(archive(), tmp_path / "old.zip", changes)
    output = rederived(tmp_path / "old.zip", "--output", tmp_path / "a", "--own-code")
    assert output.startswith(f"identical: {TABLES} tables, 2 figures, the report"), output
    assert (tmp_path / "a" / "config.yaml").read_bytes() == changes["config.yaml"]


def test_a_record_that_says_otherwise_than_its_log_is_named(tmp_path):
    name = min(n for n in names() if n.endswith("run.json"))
    record = json.loads(content(name))
    record["provenance"]["device_model"] = "another"
    del record["record_sha256"]
    forged = json.dumps({**record, "record_sha256": run_record.digest(record)}).encode()
    path = made_archives.changed(archive(), tmp_path / "x.zip", {name: forged})
    output = rederived(path, "--output", tmp_path / "again", code=1)
    assert f"{name}: provenance.device_model: 'another', by its logs None" in output


def test_programs_get_the_outcome_as_json(tmp_path):
    changed = {"results/figures/scaling.png": b"another"}
    made_archives.changed(archive(), tmp_path / "x.zip", changed)
    arguments = tmp_path / "x.zip", "--output", tmp_path / "again", "--json"
    said = json.loads(rederived(*arguments, code=1))
    assert said["differing"] == ["results/figures/scaling.png"]
    assert (said["tables"], said["figures"], said["run_tables"]) == (TABLES, 2, 21)
    assert said["records"] == {"same": 8, "differing": [], "of_other_versions": 0}


def test_what_differs_is_named_with_the_versions_that_differ(tmp_path):
    about = json.loads(content("archive.json"))
    about["made_with"] |= {"pyarrow": "0.1", "python": "3.11.0"}
    path = made_archives.changed(
        archive(),
        tmp_path / "x.zip",
        {
            "archive.json": json.dumps(about).encode(),
            "results/tables/runs.csv": content("results/tables/runs.csv") + b"more\n",
            "results/figures/scaling.svg": None,
        },
    )
    output = rederived(path, "--output", tmp_path / "again", code=1)
    assert "results/tables/runs.csv: differs\n" in output
    assert "results/figures/scaling.svg: differs\n" in output
    assert "runs.parquet: differs" not in output
    assert re.search(r"^pyarrow: 0\.1 in the archive, [\d.]+ here$", output, re.MULTILINE)
    assert f"2 file(s) differ, of {TABLES} tables, 2 figures" in output
    assert "uv run --project FOLDER`, with the unpacked archive as FOLDER, takes those" in output


def test_an_archive_that_is_not_sound_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(archive()) as old, zipfile.ZipFile(tmp_path / "x.zip", "w") as new:
        for entry in old.infolist():
            more = b" " if entry.filename.endswith("LICENSE") else b""
            new.writestr(entry, old.read(entry) + more)
    output = rederived(tmp_path / "x.zip", "--output", tmp_path / "again", code=2)
    assert "x.zip is not sound:" in output and "data/LICENSE: changed" in output
    assert not (tmp_path / "again").exists()


def test_packages_that_are_missing_are_named_before_anything_is_unpacked(tmp_path):
    finished = subprocess.run(
        [
            sys.executable,
            "-S",
            made_archives.REPOSITORY / "workflow_scripts/dlbench",
            "rederive",
            archive(),
            "--output",
            tmp_path / "again",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "this Python has no matplotlib, numpy," in finished.stderr
    assert "uv run" in finished.stderr and not (tmp_path / "again").exists()


def test_an_archive_of_another_program_is_refused(tmp_path):
    for about in (None, b"[]", b"{}", b"no"):
        path = made_archives.changed(archive(), tmp_path / "x.zip", {"archive.json": about})
        output = rederived(path, "--output", tmp_path / "again", code=2)
        assert "archive.json" in output and "Traceback" not in output


def test_the_list_says_what_would_be_trained_and_what_it_took(tmp_path):
    lines = rederived(archive(), "--list").splitlines()
    assert len(lines) == 8
    assert lines[0].split()[:5] == ["64.0", "s", "1", "x", "1"]
    assert sum("(failed)" in line for line in lines) == 1
    assert lines[-1] == "7 runs to train: 0.119 node-hours of training as they took there"


def test_programs_get_the_list_as_json():
    said = json.loads(rederived(archive(), "--list", "--json"))
    assert (len(said["runs"]), said["skipped"]) == (7, 0)
    assert (said["runs"][0]["duration_s"], said["runs"][0]["nodes"]) == (64.0, 1)
    assert sum(run["status"] == "failed" for run in said["runs"]) == 1


def with_spec(path, **values):
    """The archive with other values in one run's spec and a valid record."""
    with zipfile.ZipFile(archive()) as opened:
        name = min(n for n in opened.namelist() if n.endswith("/run.json"))
        record = json.loads(opened.read(name))
    record.pop("record_sha256")
    record["spec"] |= values
    record["record_sha256"] = run_record.digest(record)
    name = name.removeprefix("archive/data/")
    return made_archives.changed(archive(), path, {name: json.dumps(record).encode()})


def test_the_list_of_an_archive_of_others_neither_fails_nor_speaks_to_the_terminal(tmp_path):
    output = rederived(with_spec(tmp_path / "x.zip", model="\x1b[2J"), "--list")
    assert "\x1b" not in output and "\\x1b[2J" in output
    for values in ({"nodes": "many"}, {"learning_rate": []}, {"unknown": 1}):
        output = rederived(with_spec(tmp_path / "x.zip", **values), "--list", code=2)
        assert "not a record of this version of dlbench" in output


@pytest.mark.parametrize("option", [(), ("--list", "--output", "x")])
def test_either_a_folder_or_the_list_is_asked_for(option):
    rederived(archive(), *option, code=2)
