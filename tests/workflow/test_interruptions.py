"""Whatever is killed, filled or closed: finished runs stay, and the next start completes."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from dlbench.log.event_fields import SUCCEEDED
from support.campaigns.killed_workflows import (
    PATIENCE_S,
    finished_files,
    processes,
    started,
    wait_for,
)

FIGURES = ["scaling"]
LENET5 = "workflow_scripts/dlbench/trainer/keras/models/convolutional/lenet5.py"
LONG = {"name": "long", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
        "warmup_steps": 1}  # fmt: skip


@pytest.fixture
def campaign(campaign):
    """One with one figure: it is drawn after each of the interruptions."""
    campaign.configure(figures=FIGURES)
    return campaign


def forget(campaign, *starts):
    for start in starts:
        for path in campaign.record(start).parent.iterdir():
            path.unlink()


def doctor(campaign, *flags):
    return subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "doctor", *flags],
        cwd=campaign.folder,
        text=True,
        env=campaign.environment(),
        capture_output=True,
        check=False,
    )


def completes(campaign, before):
    """The next start does what is left and nothing else; then all is well."""
    campaign.succeed()
    assert {path: path.read_bytes() for path in before} == before
    records = [json.loads(p.read_text()) for p in campaign.folder.glob("results/runs/*/run.json")]
    assert len(records) == len(campaign.ids())
    assert {record["status"] for record in records} <= set(SUCCEEDED)
    assert campaign.scheduled() == {}
    found = doctor(campaign, "--content", "--repair")
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("program", "gone"),
    [
        ("convert_dataset.py", ["data"]),
        ("start_run.py", ["runs"]),
        ("train.py", ["runs"]),
        ("collect_runs.py", ["tables"]),
        ("draw_figure.py", ["figures"]),
    ],
)
def test_a_program_that_is_killed_at_any_moment_costs_only_its_own_work(campaign, program, gone):
    chance, folder, pids = random.Random(program), campaign.folder, []
    for _ in range(5):  # on a busy machine one may be over before it is seen
        lose(campaign, gone)
        before = finished_files(campaign)
        with started(campaign) as workflow:
            wait_for(lambda: processes(folder, program) or workflow.poll() is not None, program)
            pids = processes(folder, program)
            time.sleep(chance.uniform(0, 0.4))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            workflow.wait(PATIENCE_S)
        assert {path: path.read_bytes() for path in before} == before
        if pids:
            break
    assert pids
    completes(campaign, before)


def lose(campaign, gone):
    """Have the workflow make some of the results again."""
    if "runs" in gone or "data" in gone:
        forget(campaign, "lenet5-digits")
    for name in {"data", "tables", "figures"} & set(gone):
        subprocess.run(["rm", "-r", campaign.folder / "results" / name], check=True)


@pytest.mark.ci
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_workflow_that_is_killed_again_and_again_completes_in_the_end(campaign, seed):
    chance = random.Random(seed)
    forget(campaign, "cnn12-", "lenet5-digits")
    before = finished_files(campaign)
    for _ in range(3):
        with started(campaign) as workflow:
            time.sleep(chance.uniform(1.5, 9))
            victims = [workflow.pid, *processes(campaign.folder)]
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
            time.sleep(chance.uniform(0, 1))
        assert {path: path.read_bytes() for path in before} == before
        before |= finished_files(campaign)
        message = doctor(campaign, "--repair")
        assert message.returncode in (0, 1), message.stderr
    completes(campaign, before)


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
@pytest.mark.one_in(2)
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
    assert "disk: results: 0 MiB are free" in doctor(campaign).stdout
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
    assert "disk: results: it cannot be written" in doctor(campaign).stdout
    assert mount("-o", "remount,rw,size=2g").returncode == 0
    completes(campaign, before)


@pytest.mark.ci
def test_a_second_workflow_in_the_same_folder_is_refused_and_harms_nothing(campaign):
    matrix = yaml.safe_load((campaign.folder / "config.yaml").read_text())["matrix"]
    campaign.configure(figures=FIGURES, matrix=[*matrix, LONG | {"steps": 3000}])
    before = finished_files(campaign)
    with started(campaign) as workflow:
        (log,) = wait_for(lambda: logs_begun(campaign, before), "training")
        trainers = processes(campaign.folder, "train.py")
        signal_all(trainers, signal.SIGSTOP)  # until all else was tried, however long it takes
        second = campaign.snakemake()
        assert second.returncode != 0
        assert "Directory cannot be locked" in second.stdout and "--unlock" in second.stdout
        repair = doctor(campaign, "--repair")
        assert repair.returncode == 0 or "a workflow is at work here" in repair.stderr
        assert trainers and log.is_file()
        assert processes(campaign.folder, "train.py") == trainers
        signal_all(trainers, signal.SIGCONT)
        assert workflow.wait(PATIENCE_S) == 0, (campaign.folder / "said").read_text()
    assert json.loads(log.with_name("run.json").read_text())["summary"]["resumes"] == 0
    completes(campaign, before)


def signal_all(pids, number):
    for pid in pids:
        os.kill(pid, number)


def logs_begun(campaign, before):
    logs = (campaign.folder / "results/runs").glob("*/train.jsonl")
    return [p for p in logs if p not in before and b'"step"' in p.read_bytes()]


@pytest.mark.ci
def test_a_log_that_was_cut_somewhere_is_read_or_trained_again_and_never_believed(campaign):
    chance = random.Random(9)
    record = campaign.record("lenet5-digits")
    log = record.with_name("train.jsonl")
    whole = log.read_bytes()
    others = {p: c for p, c in finished_files(campaign).items() if p.parent != log.parent}
    record.unlink()
    end = whole.index(b'{"event": "neighbours"')  # what comes after the end may be missing
    for length in (0, chance.randrange(end), end - 1):
        log.write_bytes(whole[:length])
        assert campaign.scheduled()["train"] == [log.parent.name], length
    completes(campaign, others)


def test_a_log_that_was_edited_stops_the_tables_and_the_next_start_trains_it_again(campaign):
    log = campaign.record("lenet5-digits").with_name("train.jsonl")
    others = {p: c for p, c in finished_files(campaign).items() if p.parent != log.parent}
    log.write_bytes(log.read_bytes().replace(b'"warm_up": false', b'"warm_up":  true', 1))
    assert doctor(campaign).returncode == 0  # its size is as recorded
    assert "changed after its record was written" in doctor(campaign, "--content").stdout
    subprocess.run(["rm", "-r", campaign.folder / "results/tables"], check=True)
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert f"{log.parent.name}/train.jsonl: changed after its record was" in finished.stdout
    assert "1 run forgotten, the logs kept aside: the next start trains again" in finished.stdout
    assert campaign.scheduled()["train"] == [log.parent.name]
    completes(campaign, others)


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


def test_the_log_of_a_run_that_is_trained_again_stays_beside_the_new_one(campaign):
    log = campaign.record("lenet5-digits").with_name("train.jsonl")
    before = log.read_bytes()
    with open(campaign.folder / LENET5, "a") as file:
        file.write("\nUNUSED = 1\n")
    campaign.succeed()
    assert log.with_name("train.attempt1.jsonl").read_bytes() == before != log.read_bytes()
    assert campaign.scheduled() == {}


def test_what_ends_before_its_first_step_is_no_result_and_is_trained_by_the_next_start(fresh):
    study = {"matrix": [LONG | {"batch_per_device": 4, "steps": 2}], "figures": []}
    fresh.configure(**study, time_limit_s=0.5)
    fresh.succeed()
    (run_id,) = fresh.ids()
    record = json.loads(fresh.record("lenet5").read_text())
    status, reason = record["status"], record["message"]
    assert (status, reason[:49]) == ("failed", "stopped at time_limit_s, 0.5 s; no step yet; last")
    assert len(list((fresh.folder / "results/runs" / run_id).glob("train.attempt*.jsonl"))) == 1
    assert fresh.scheduled()["train"] == [run_id]
    assert f"measured nothing: {reason}" in fresh.output
    fresh.configure(**study)
    fresh.succeed()
    assert json.loads(fresh.record("lenet5").read_text())["status"] in SUCCEEDED


@pytest.mark.ci
@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_workflow_goes_on_from_the_last_checkpoint(number, fresh):
    block = {"name": "long", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4}
    fresh.configure(matrix=[block | {"steps": 3000}], checkpoint_every_min=0.01, figures=[])
    runs = fresh.folder / "results/runs"
    with started(fresh) as workflow:
        wait_for(lambda: list(runs.glob("*/checkpoint/latest.json")), "a checkpoint")
        if number == signal.SIGINT:
            os.killpg(workflow.pid, number)  # as Ctrl-C does
        else:
            workflow.send_signal(number)
        workflow.wait()
    if number == signal.SIGKILL:
        fresh.succeed("--unlock")
    else:
        message = (fresh.folder / "said").read_text()
        assert (
            ": interrupted (stopped by " in message
            and "; the next start goes on after step" in message
        )
        assert "the same command, started again, goes on with the rest" in message
    output = fresh.succeed()
    assert "goes on after step" in output
    record = json.loads(fresh.record("lenet5-").read_text())
    assert record["status"] in ("ok", "unstable")
    assert record["summary"]["resumes"] == 1
    assert record["summary"]["account_s"]["restarts"] > 1  # Python alone takes longer to start
    # Warm-up are the first ten steps, and ten after the resume.
    stopped_after = int(re.search(r"goes on after step (\d+)", output)[1])
    assert record["summary"]["steps_measured"] == 3010 - min(10, stopped_after) - 10
    assert not list(runs.glob("*/checkpoint"))
    assert fresh.scheduled() == {}
