"""Whatever is killed, filled or closed: finished runs stay, and the next start completes."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dlbench.log.event_fields import SUCCEEDED
from support.campaigns.campaign import TRAINED
from support.campaigns.killed_workflows import (
    PATIENCE_S,
    finished_files,
    processes,
    started,
    wait_for,
)

FIGURES = ["scaling"]
ARCHIVE = "results/archive.zip"


@pytest.fixture
def campaign(campaign):
    """One with one figure: it is drawn after each of the interruptions."""
    campaign.configure(figures=FIGURES)
    return campaign


def forget(campaign, *starts):
    for start in starts:
        for path in campaign.record(start).parent.iterdir():
            path.unlink()


def completes(campaign, before):
    """The next start does what is left and nothing else; then all is well."""
    campaign.succeed()
    assert {path: path.read_bytes() for path in before} == before
    records = campaign.records()
    assert sorted(records) == campaign.ids()
    assert {record["status"] for record in records.values()} <= set(SUCCEEDED)
    assert campaign.scheduled() == {}
    campaign.dlbench("doctor", "--content")


def kill(*pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("program", "lost", "target"),
    [
        ("convert_dataset.py", "data", "all"),
        ("start_run.py", "runs", "all"),
        ("train.py", "runs", "all"),
        ("collect_runs.py", "tables", "all"),
        ("draw_figure.py", "figures", "all"),
        ("/dlbench", "archive.zip", "archive"),
    ],
)
def test_a_program_that_is_killed_at_any_moment_costs_only_its_own_work(
    campaign, program, lost, target
):
    chance, folder, pids = random.Random(program), campaign.folder, []
    if target == "archive":
        campaign.succeed("report")
    for _ in range(5):  # on a busy machine one may be over before it is seen
        if lost in ("runs", "data"):
            forget(campaign, "lenet5-digits")
        if lost != "runs":
            subprocess.run(["rm", "-rf", folder / "results" / lost], check=True)
        before = finished_files(campaign)
        with started(campaign, target) as workflow:
            wait_for(lambda: processes(folder, program) or workflow.poll() is not None, program)
            pids = processes(folder, program)
            time.sleep(chance.uniform(0, 0.4))
            kill(*pids)
            workflow.wait(PATIENCE_S)
        assert {path: path.read_bytes() for path in before} == before
        # Whole or not there: what was killed leaves no half of it under that name.
        if (folder / ARCHIVE).exists():
            campaign.dlbench("verify", ARCHIVE)
        if pids:
            break
    assert pids
    completes(campaign, before)
    if target == "archive":
        campaign.succeed("archive")
        assert "3 runs; SHA-256" in campaign.dlbench("verify", ARCHIVE)


@pytest.mark.ci
def test_a_workflow_that_is_killed_again_and_again_completes_in_the_end(campaign, pytestconfig):
    chance = random.Random(pytestconfig.getoption("number"))
    forget(campaign, "cnn12-", "lenet5-digits")
    before = finished_files(campaign)
    for _ in range(2):
        with started(campaign) as workflow:
            time.sleep(chance.uniform(1.5, 9))
            kill(chance.choice([workflow.pid, *processes(campaign.folder)]))
            time.sleep(chance.uniform(0, 1))
        assert {path: path.read_bytes() for path in before} == before
        before |= finished_files(campaign)
    campaign.succeed("--unlock")
    completes(campaign, before)


@pytest.mark.ci
def test_a_run_goes_on_from_its_last_checkpoint_after_ctrl_c_and_after_a_kill(fresh):
    block = {"name": "long", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4}
    fresh.configure(matrix=[block | {"steps": 3000}], checkpoint_every_min=0.01, figures=[])
    latest = "results/runs/*/checkpoint/latest.json"
    with started(fresh) as workflow:
        wait_for(lambda: list(fresh.folder.glob(latest)), "a checkpoint")
        os.killpg(workflow.pid, signal.SIGINT)  # as Ctrl-C does
        workflow.wait()
    message = (fresh.folder / "said").read_text()
    assert ": interrupted (stopped by " in message
    assert "; the next start goes on after step" in message
    assert "the same command, started again, goes on with the rest" in message
    (checkpoint,) = fresh.folder.glob(latest)
    stopped = checkpoint.read_bytes()
    with started(fresh) as workflow:
        wait_for(lambda: checkpoint.read_bytes() != stopped, "another checkpoint")
        kill(workflow.pid)
    fresh.succeed("--unlock")
    output = fresh.succeed()
    stopped_after = int(re.search(r"goes on after step (\d+)", output)[1])
    record = json.loads(fresh.record("lenet5-").read_text())
    assert record["status"] in TRAINED
    assert record["summary"]["resumes"] == 2
    assert record["summary"]["account_s"]["restarts"] > 1  # Python alone takes longer to start
    # Warm-up are the first ten steps, and at most ten after each resume.
    assert stopped_after > 10 and 2970 <= record["summary"]["steps_measured"] < 2990
    assert not list(fresh.folder.glob("results/runs/*/checkpoint"))
    assert fresh.scheduled() == {}


@pytest.fixture
def disk(trained):
    """A campaign, and a function that mounts its results anew, as mount's options say.

    Not in /dev/shm: podman refuses to start a container while there is a mount below it.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        campaign = trained.copy(Path(place) / "project")
        campaign.configure(figures=FIGURES)
        results = campaign.folder / "results"

        def mount(*options):
            return subprocess.run(["mount", *options, results], capture_output=True, check=False)

        results.rename(campaign.folder / "copy")
        results.mkdir()
        mounted = mount("-t", "tmpfs", "-o", "size=64m", "tmpfs")
        if mounted.returncode:
            pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
        try:
            subprocess.run(["cp", "-a", f"{campaign.folder}/copy/.", results], check=True)
            yield campaign, mount
        finally:
            subprocess.run(["umount", "--lazy", results], check=True)


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize("room_kib", [0, 8, 32])
def test_on_a_full_disk_nothing_is_believed_that_was_not_written(disk, room_kib):
    campaign, mount = disk
    forget(campaign, "lenet5-digits")
    before = finished_files(campaign)
    filler = campaign.folder / "results/filler"
    found = os.statvfs(campaign.folder / "results")
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        file.write(bytes(max(0, found.f_bavail * found.f_frsize - room_kib * 1024)))
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert {path: path.read_bytes() for path in before} == before
    for path in set(finished_files(campaign)) - set(before):  # where there was just room enough
        assert path.name != "run.json" or json.loads(path.read_text())["status"] in SUCCEEDED
    assert f"{campaign.folder}/results is full" in finished.stdout
    filler.unlink()
    assert mount("-o", "remount,size=2g").returncode == 0
    completes(campaign, before)


def test_results_that_cannot_be_written_are_said_and_not_harmed(disk):
    campaign, mount = disk
    forget(campaign, "lenet5-digits")
    before = finished_files(campaign)
    assert mount("-o", "remount,ro").returncode == 0
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert "results is not writable for this user, so that no workflow can be" in finished.stdout
    assert mount("-o", "remount,rw,size=2g").returncode == 0
    completes(campaign, before)


DIES_AT_ITS_END = """
    import os
    from pathlib import Path

    try:
        run_program(main)
    finally:
        if not Path("died").exists():
            Path("died").touch()
            os._exit(1)
"""


def test_a_job_that_dies_after_its_run_was_recorded_is_not_trained_again(campaign):
    """So it is where a scheduler forgets a job, or its node goes down just then."""
    place = campaign.record("lenet5-digits").parent
    forget(campaign, "lenet5-digits")
    program = campaign.folder / "workflow_scripts/start_run.py"
    program.write_text(program.read_text().replace("\n    run_program(main)\n", DIES_AT_ITS_END))
    output = campaign.succeed()
    assert (campaign.folder / "died").exists() and "Trying to restart job" in output
    assert "an earlier job of this start recorded it" in output
    log = (place / "train.jsonl").read_bytes()
    assert log.count(b'"event": "launch"') == log.count(b'"event": "run_end"') == 1
    assert not list(place.glob("train.attempt*"))
    assert not (campaign.folder / "results/recorded").exists()
    assert campaign.scheduled() == {}
    # A user may force what is done.
    campaign.succeed("--forcerun", "train")
    assert (place / "train.jsonl").read_bytes() != log
