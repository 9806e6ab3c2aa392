"""The doctor on what lies around runs: locks, parts of files, data, images, rights and disks."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.campaign import doctor, snakemake_files
from dlbench.common import files
from dlbench.records import run_record, sessions
from dlbench.study import batch_searches
from support.runs.ended_runs import ONE
from support.runs.healthy_folder import here as here
from support.runs.healthy_folder import old, only, program


def test_parts_of_files_are_moved_aside_once_their_writer_is_gone(here):
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tables_folder = Path("results/tables")
    tables_folder.mkdir()
    (tables_folder / f".runs.parquet.{ended}.part").write_bytes(b"half")
    (tables_folder / f".evals.parquet.{os.getpid()}.part").write_bytes(b"being written")
    (tables_folder / ".x.abc.part").mkdir()
    (tables_folder / ".old.abc.part").mkdir()
    old(tables_folder / ".old.abc.part")
    assert [Path(f.where).name for f in doctor.examine()] == [
        f".runs.parquet.{ended}.part",
        ".old.abc.part",
    ]


def test_a_lock_is_named_once_its_workflow_is_gone_and_nothing_is_repaired_before(here):
    snakemake_files.LOCKS.mkdir(parents=True)
    (snakemake_files.LOCKS / "0.input.lock").write_text("results/runs/x/run.json\n")
    finding = only()
    assert finding.kind == "lock" and "snakemake --unlock" in finding.repair
    Path("snakemake").write_text("import time; print('on', flush=True); time.sleep(60)")
    command = [sys.executable, "snakemake"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workflow:
        workflow.stdout.readline()
        assert doctor.examine() == []  # the lock is its own
        (run_record.folder(ONE.id) / "run.json").unlink()
        finished = program("--repair")
        workflow.kill()
    assert finished.returncode == 2
    assert f"a workflow is at work here (process {workflow.pid})" in finished.stderr
    assert not (here / "results/aside").exists()


def test_marks_of_half_written_files_of_runs_and_sessions_are_named(here):
    session = sessions.file("20260101T000000Z-abcdef")
    session.parent.mkdir(parents=True, exist_ok=True)
    session.write_text("{}")
    snakemake_files.INCOMPLETE.mkdir(parents=True)
    for name in (str(session), f"results/runs/{ONE.id}/run.json"):
        mark = snakemake_files.INCOMPLETE / base64.urlsafe_b64encode(name.encode()).decode()
        mark.write_text("{}")
        assert only().where == name
        mark.unlink()
    # Other files there name nothing.
    (snakemake_files.INCOMPLETE / "cmVz.dWx0").write_text("{}")
    assert [name for _, name in snakemake_files.marks()] == [None]


def test_a_trainer_that_nobody_waits_for_is_named_with_its_process(here):
    Path("train.py").write_text("import time; print('on', flush=True); time.sleep(60)")
    command = [sys.executable, "train.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        trainer.stdout.readline()
        finding = only()
        trainer.kill()
    assert (finding.kind, finding.repair) == ("process", f"kill {trainer.pid}")


def test_shards_of_another_size_or_content_and_a_manifest_that_is_none_are_named(here):
    place = Path("results/data/digits")
    place.mkdir(parents=True)
    shard = {"file": "train-0", "records": 1, "bytes": 4, "sha256": None}
    reader = {"encoding": "raw", "shape": [2, 2, 1], "classes": 10, "first_label": 0}
    splits = {"train": {"records": 1, "shards": [shard]}}
    manifest = {"dataset": "digits", "kind": "image", "reader": reader, "splits": splits}
    (place / "manifest.json").write_text(json.dumps(manifest))
    (place / "train-0").write_bytes(b"012")
    assert "expected 4 bytes, found 3" in only().what
    (place / "train-0").write_bytes(b"0123")  # as large as expected, but no TFRecord file
    assert doctor.examine() == []
    assert "train-0" in only(content=True).where + only(content=True).what
    for text in ("[]", "{}", "[" * 100_000, '{"splits": 3}'):
        (place / "manifest.json").write_text(text)
        assert only().kind == "data", text


def test_images_whose_files_are_gone_are_made_again(here):
    place = Path("results/images/train")
    place.mkdir(parents=True)
    (place / "image.json").write_text(json.dumps({"path": f"{place}/oci"}))
    (place / "podman.json").write_text(json.dumps({"prepared": "localhost/dlbench/train:0"}))
    assert "results/images/train/oci is gone" in only().what


def test_files_that_shut_out_the_group_are_opened_to_it(here):
    Path("results").chmod(0o770)
    for path in Path("results").rglob("*"):
        path.chmod(0o770 if path.is_dir() else 0o660)
    assert doctor.examine() == []
    shut = run_record.folder(ONE.id)
    (shut / "run.json").chmod(0o600)
    shut.chmod(0o700)
    assert "2 files or folders shut out the group" in only().what
    Path("results").chmod(0o700)
    assert doctor.examine() == []  # the group is kept out on purpose


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize(
    ("options", "what"), [("size=1m", "MiB are free"), ("ro", "it cannot be written")]
)
def test_a_disk_that_is_full_or_read_only_is_said(here, options, what):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", "results"],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        finding = only()
    finally:
        subprocess.run(["umount", "results"], check=True)
    assert finding.kind == "disk" and what in finding.what


def test_locks_in_snakemakes_database_are_said_not_to_be_looked_at(here):
    assert snakemake_files.NOT_READ not in program().stderr
    snakemake_files.DATABASE.parent.mkdir(exist_ok=True)
    snakemake_files.DATABASE.touch()
    assert snakemake_files.NOT_READ in program().stderr


def test_a_file_of_a_largest_batch_that_does_not_say_what_was_found_is_named(here):
    path = batch_searches.FOLDER / "one" / batch_searches.RESULT_FILE
    path.parent.mkdir(parents=True)
    found = {"search": "one", "batch_per_device": 8, "reason": "9 do not fit", "tries": []}
    files.write_json(path, found | {"search": "another"})
    problem = only()
    assert problem.kind == "largest batch" and "searches again" in problem.repair
    files.write_json(path, found)
    assert doctor.examine() == []
