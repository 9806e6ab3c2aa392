"""rederive: tables, figures and report are derived again from an archive alone."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from dlbench.archive import crate, rederive
from dlbench.records import run_record
from dlbench.tables import cells
from support.archives import made_archives
from support.archives.made_archives import ARCHIVE, program
from support.runs import made_runs

# Programs of an archive that need no package: each writes what the real one would be asked for.
WRITES = """
import pathlib, sys
for name in {names}:
    path = pathlib.Path(name.format(*sys.argv))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(" ".join(sys.argv[1:]))
"""
TABLE, FIGURE = "results/tables/runs.csv", "results/figures/scaling.svg"
REPORT = "results/report.html"


def writing(*names):
    return WRITES.format(names=names).encode()


@pytest.fixture
def small(study, tmp_path):
    """An archive with one run, whose programs write a table, a table of the run and two figures."""
    made_runs.finish(study.runs[0], 60)
    place = str(run_record.folder(study.runs[0].id))
    files = {
        f"{place}/{name}": Path(place, name).read_bytes() for name in ("run.json", "train.jsonl")
    }
    scripts = {
        "collect_runs.py": writing(TABLE, "results/tables/runs.parquet", f"{place}/steps.parquet"),
        "draw_figure.py": writing("results/figures/{1}.svg"),
        "dlbench/__main__.py": writing(REPORT),
    }
    files |= {f"workflow_scripts/{name}": text for name, text in scripts.items()}
    about = {"figures": ["scaling", "loss"], "tables": ["runs"], "made_with": {}}
    files |= {TABLE: b"", "results/tables/runs.parquet": b"", f"{place}/steps.parquet": b""}
    files |= {f"results/figures/{name}.svg": name.encode() for name in about["figures"]}
    files |= {REPORT: b"report --figures scaling loss", "archive.json": json.dumps(about).encode()}
    crate.write(tmp_path / "small.zip", files, [("Bagging-Date", "2026-01-01")])
    return tmp_path / "small.zip"


def rederived(*arguments, code=0):
    return program("dlbench", "rederive", *arguments, code=code)


def archive():
    return made_archives.archived() / ARCHIVE


def content(archive, name):
    with zipfile.ZipFile(archive) as opened:
        return opened.read(f"archive/data/{name}")


def with_record(archive, output, change):
    """The archive with a changed record, whose digest is right. Returns the record's name."""
    with zipfile.ZipFile(archive) as opened:
        name = min(n for n in opened.namelist() if n.endswith("run.json"))
    record = json.loads(content(archive, name := name.removeprefix("archive/data/")))
    change(record)
    del record["record_sha256"]
    forged = json.dumps({**record, "record_sha256": run_record.digest(record)}).encode()
    made_archives.changed(archive, output, {name: forged})
    return name


def test_the_programs_of_the_archive_derive_everything_and_it_is_compared(small, tmp_path):
    output = rederived(small, "--output", tmp_path / "again")
    assert output == (
        "identical: 1 table, 2 figures, the report, 1 table of runs; "
        "1 records say what their logs do\n"
    )
    assert (tmp_path / "again" / REPORT).read_bytes() == content(small, REPORT)
    # A record that says otherwise than its log is named, also as JSON.
    x, output = tmp_path / "x.zip", ("--output", tmp_path / "more")
    name = with_record(small, x, lambda record: record["provenance"].update(device_model="another"))
    made_archives.changed(x, x, {FIGURE: b"another"})
    said = json.loads(rederived(x, *output, "--json", code=1))
    assert (said["tables"], said["figures"], said["run_tables"]) == (1, 2, 1)
    assert said["differing"] == [FIGURE]
    (line,) = said["records"]["differing"]
    assert line == f"{name}: provenance.device_model: 'another', by its logs None"


def test_an_archive_of_others_and_one_whose_program_fails_are_named_with_the_reason(
    small, tmp_path
):
    fails = {"workflow_scripts/collect_runs.py": b"raise SystemExit('no table today')"}
    for changes, words in (
        (fails, "error: collect_runs.py of the archive failed:\nno table today\n"),
        *(({"archive.json": about}, "archive.json") for about in (None, b"[]", b"{}", b"no")),
    ):
        path = made_archives.changed(small, tmp_path / "x.zip", changes)
        output = rederived(path, "--output", tmp_path / "again", code=2)
        assert words in output and "Traceback" not in output
    assert "one of the arguments --output --list is required" in rederived(small, code=2)


def test_what_differs_is_named_with_the_versions_that_differ(small, tmp_path):
    about = json.loads(content(small, "archive.json"))
    about["made_with"] |= {"pyarrow": "0.1", "python": "3.11.0"}
    changes = {"archive.json": json.dumps(about).encode(), TABLE: b"more\n", FIGURE: None}
    changes["workflow_scripts/dlbench/__main__.py"] = b"# writes no report"
    path = made_archives.changed(small, tmp_path / "x.zip", changes)
    output = rederived(path, "--output", tmp_path / "again", code=1)
    for name in (TABLE, FIGURE, REPORT):
        assert f"{name}: differs\n" in output
    assert "runs.parquet: differs" not in output
    assert re.search(r"^pyarrow: 0\.1 in the archive, [\d.]+ here$", output, re.MULTILINE)
    assert "3 file(s) differ, of 1 table, 2 figures" in output
    assert " run --project FOLDER`, with the unpacked archive as FOLDER, takes those" in output


def test_an_archive_that_is_not_sound_is_not_unpacked(small, tmp_path):
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(tmp_path / "x.zip", "w") as new:
        for entry in old.infolist():
            more = b" " if entry.filename.endswith(TABLE) else b""
            new.writestr(entry, old.read(entry) + more)
    output = rederived(tmp_path / "x.zip", "--output", tmp_path / "again", code=2)
    assert "x.zip is not sound:" in output and f"data/{TABLE}: changed" in output
    assert not (tmp_path / "again").exists()


def test_packages_that_are_missing_are_named_before_anything_is_unpacked(small, tmp_path):
    about = json.loads(content(small, "archive.json")) | {"made_with": {"numpy": "2", "pip": "1"}}
    made_archives.changed(small, tmp_path / "x.zip", {"archive.json": json.dumps(about).encode()})
    ours = made_archives.REPOSITORY / "workflow_scripts/dlbench"
    command = [sys.executable, "-S", ours, "rederive", tmp_path / "x.zip", "--output", "again"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "error: this Python has no numpy, pip: start it with `" in finished.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.ci
def test_our_own_programs_derive_what_an_earlier_version_archived_and_none_of_it_is_run(tmp_path):
    settings = yaml.safe_load(content(archive(), "config.yaml"))
    imported = "results/imports/others/runs.parquet"
    (tmp_path / "new.parquet").write_bytes(content(archive(), imported))
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
    mined = ("collect_runs.py", "draw_figure.py", "dlbench/__main__.py")
    changes |= {f"workflow_scripts/{name}": b"raise SystemExit('run')\n" for name in mined}
    made_archives.changed(archive(), tmp_path / "old.zip", changes)
    output = rederived(tmp_path / "old.zip", "--output", tmp_path / "a", "--own-code")
    assert output == (
        f"identical: {len(cells.OF_STUDY)} tables, 2 figures, the report, "
        "21 tables of runs; 8 records say what their logs do\n"
    )
    assert b"-s1-r" in content(archive(), "results/tables/runs.csv")
    assert (tmp_path / "a" / "config.yaml").read_bytes() == changes["config.yaml"]
    assert (tmp_path / "a" / REPORT).read_bytes() == content(archive(), REPORT)


def test_the_list_says_what_would_be_trained_and_what_it_took():
    lines = rederived(archive(), "--list").splitlines()
    assert len(lines) == 8
    assert lines[0].split()[:5] == ["64.0", "s", "1", "x", "1"]
    assert sum("(failed)" in line for line in lines) == 1
    assert lines[-1] == "7 runs to train: 0.119 node-hours of training as they took there"
    said = json.loads(rederived(archive(), "--list", "--json"))
    assert (len(said["runs"]), said["skipped"]) == (7, 0)
    assert (said["runs"][0]["duration_s"], said["runs"][0]["nodes"]) == (64.0, 1)
    assert sum(run["status"] == "failed" for run in said["runs"]) == 1


def test_the_list_of_an_archive_of_others_neither_fails_nor_speaks_to_the_terminal(small, tmp_path):
    def listed(code=0, **values):
        with_record(small, tmp_path / "x.zip", lambda record: record["spec"].update(values))
        return rederived(tmp_path / "x.zip", "--list", code=code)

    output = listed(model="\x1b[2J")
    assert "\x1b" not in output and "\\x1b[2J" in output
    for values in ({"nodes": "many"}, {"learning_rate": []}, {"unknown": 1}):
        assert "no field of a run, or of another type" in listed(2, **values)
