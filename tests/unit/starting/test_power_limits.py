"""power_limits: set for a run on its GPUs, restored at its end, refused where it cannot be.

nvidia-smi itself was not run: no GPU is here, so a program of its name takes its place.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.log import event_fields, event_log
from dlbench.starting import supervisor
from dlbench.starting.power import Limits, Refused
from support.machines.nvidia_smi import NvidiaSmi
from support.programs import in_process
from support.trainers.watched_runs import DATE, PYTHON, watched

pytestmark = pytest.mark.usefixtures("impatient")

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
SEES = "import subprocess; subprocess.run('nvidia-smi --query-gpu=power.limit>seen', shell=True)"
FAILED = f'{{"event": "run_end", "status": "oom", "message": "full", "t_utc": "{DATE}"}}'


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Two GPUs of 300 W, in a folder with results of its own."""
    smi = NvidiaSmi(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{smi.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return smi


def test_the_limit_holds_in_the_block_and_is_then_what_it_was(gpus):
    gpus.set_limit(1, 310.0)
    limits = Limits(250, 2)
    with limits.held():
        assert gpus.limits == [250, 250]
    assert gpus.limits == [300, 310]
    reported = event_fields.parse_event(
        json.dumps({"event": "power_limit", **limits.fields()}).encode()
    )
    assert (reported["asked_w"], reported["trouble"], limits.changed) == (250, None, "")
    assert reported["gpus"][1] == {
        "uuid": gpus.uuids[1], "found_w": 310, "enforced_w": 250, "enforced_last_w": 250,
        "restored": True,
    }  # fmt: skip


def test_it_is_restored_where_the_block_fails(gpus):
    with pytest.raises(ZeroDivisionError), Limits(200, 1).held():
        assert gpus.limits == [200, 300]
        raise ZeroDivisionError
    assert gpus.limits == [300, 300]


@pytest.mark.parametrize(
    ("visible", "limits"),
    [("1", [300, 200]), ("GPU-bbbb", [300, 200]), ("1,0", [300, 200]), ("0,-1", [200, 300])],
)
def test_only_the_gpus_of_the_run_are_limited(gpus, monkeypatch, visible, limits):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with Limits(200, 1).held():
        assert gpus.limits == limits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"power.max_limit": 220.0}, "GPU-bbbb2222-0000 takes from 100 to 220 W"),
        ({"power.min_limit": 260.0}, "GPU-bbbb2222-0000 takes from 260 to 400 W"),
        ({"power.limit": "[N/A]"}, "GPU-bbbb2222-0000 tells no power limit that could be set"),
        ({"persistence_mode": "Disabled"}, "is without persistence mode: its driver would forget"),
        ({"allowed": False}, "takes from 100 to 400 W and enforces 300 W now; nvidia-smi said: F"),
        ({"allowed": False}, "Insufficient Permissions Terminating early due to previous errors. "
         "(exit code 4). Only root of the host may set it, and whom the site lets by site.pow"),
        ({"supported": False}, "Treating as warning and moving on. All done. (exit code 0)"),
        ({"capped": True, "enforced.power.limit": 180.0}, "enforces 180 W now; nvidia-smi said: "),
    ],
)  # fmt: skip
def test_a_limit_that_one_gpu_cannot_have_is_refused_and_all_stay_as_they_were(
    gpus, change, message
):
    gpus.change(1, **change)
    before = gpus.limits
    with pytest.raises(Refused) as refusal, Limits(250, 2).held():
        pytest.fail("the run was started")
    assert str(refusal.value).startswith("power_limit_w 250: ")
    assert message in str(refusal.value)
    assert gpus.limits == before


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        ("0", "the run has 2 GPUs, and CUDA_VISIBLE_DEVICES names 1"),
        ("MIG-cccc,0", "MIG-cccc is a part of a GPU, and a limit is that of the whole GPU"),
        ("0,7", "GPU 7 is not among the 2 that nvidia-smi lists"),
        ("GPU-,0", "GPU GPU- is not among the 2 that nvidia-smi lists"),
    ],
)
def test_gpus_that_are_not_to_be_had_are_named(gpus, monkeypatch, visible, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(Refused, match=f"^power_limit_w 250: {message}$"), Limits(250, 2).held():
        pytest.fail("the run was started")


def test_without_a_driver_the_message_says_what_is_missing(gpus, monkeypatch):
    gpus.break_down()
    with pytest.raises(Refused, match="lists no GPUs here: NVIDIA-SMI has failed"):
        Limits(250, 1).held().__enter__()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Refused, match=r"comes with NVIDIA's driver, lists no GPUs here: .*No such"):
        Limits(250, 1).held().__enter__()


def test_the_limit_that_there_is_needs_no_permission(gpus):
    gpus.change(0, allowed=False)
    limits = Limits(300, 1)
    with limits.held():
        assert gpus.limits == [300, 300]
    assert limits.fields()["gpus"][0]["restored"]


def test_a_site_may_name_another_command(gpus):
    (gpus.folder / "sudo").write_text('#!/bin/sh\necho "$*" >> asked\nshift; exec "$@"\n')
    (gpus.folder / "sudo").chmod(0o755)
    with Limits(250, 1, "sudo -n nvidia-smi").held():
        assert gpus.limits == [250, 300]
    uuid = gpus.uuids[0]
    assert Path("asked").read_text().splitlines() == [
        f"-n nvidia-smi -i {uuid} -pl 250",
        f"-n nvidia-smi -i {uuid} -pl 300",
    ]
    with pytest.raises(Refused, match="power_limit_command 'sudo \"x': No closing quotation"):
        Limits(250, 1, 'sudo "x').held().__enter__()


def test_what_somebody_else_has_set_meanwhile_is_let_be_and_told(gpus):
    limits = Limits(250, 1)
    with limits.held():
        gpus.set_limit(0, 350.0)
    assert gpus.limits == [350, 300]
    assert limits.changed == (
        "the power limit of GPU-aaaa1111-0000 was 250 W at the start and 350 W at the end"
    )
    assert not limits.fields()["gpus"][0]["restored"]


def test_a_limit_that_cannot_be_restored_is_told_with_the_command_that_does_it(gpus, capfd):
    limits = Limits(250, 1)
    with limits.held():
        gpus.change(0, allowed=False)
    words = "Have root run nvidia-smi -i GPU-aaaa1111-0000 -pl 300"
    assert words in limits.fields()["trouble"] and words in capfd.readouterr().err
    assert not limits.fields()["gpus"][0]["restored"]


def test_a_supervised_run_says_what_its_limit_was(gpus, tmp_path):
    sees = "subprocess.run('nvidia-smi --query-gpu=power.limit > seen', shell=True)"
    run = watched(tmp_path, sees, power_limit=Limits(250, 1))
    assert supervisor.supervise(run)
    assert Path("seen").read_text().split() == ["250.00", "300.00"]
    assert gpus.limits == [300, 300]
    events = {event["event"]: event for event in event_log.read(run.log)}
    assert events["power_limit"]["gpus"][0]["enforced_w"] == 250
    assert events["neighbours"]["power_limit_changed"] is None


def arguments(folder, python, *flags, **changes):
    words = ["--log", folder / "train.jsonl", "--messages", folder / "messages"]
    return [*words, f"--spec={json.dumps(SPEC | changes)}", *flags, "--", *PYTHON, python]


def start(folder, python, *flags, **changes):
    folder.mkdir(exist_ok=True)
    return in_process.program("start_run.py", *arguments(folder, python, *flags, **changes))


def record(folder):
    return json.loads((folder / "run.json").read_text())


def writes_end(folder, before=""):
    return f"{before}; open({str(folder / 'train.jsonl')!r}, 'a').write({FAILED!r} + chr(10))"


def test_a_run_has_its_limit_in_its_record(gpus, tmp_path):
    finished = start(tmp_path / "run", writes_end(tmp_path / "run", SEES), power_limit_w=200)
    assert finished.returncode == 0, finished.stderr
    assert Path("seen").read_text().split() == ["200.00", "300.00"] and gpus.limits == [300, 300]
    found = record(tmp_path / "run")
    assert found["spec"]["power_limit_w"] == 200
    assert found["summary"]["power_limit_found_w"] == 300
    assert found["summary"]["power_limit_enforced_w"] == 200


def test_all_copies_of_a_run_have_the_limit(gpus, tmp_path):
    start(tmp_path / "run", SEES, "--device=gpu", power_limit_w=200, copies_per_node=2)
    assert Path("seen").read_text().split() == ["200.00", "200.00"] and gpus.limits == [300, 300]


def test_a_run_whose_limit_is_refused_is_recorded_once_and_never_started(gpus, tmp_path):
    gpus.change(0, allowed=False)
    finished = start(tmp_path / "run", "open('began', 'w')", "--attempts=3", power_limit_w=200)
    assert finished.returncode == 0, finished.stderr
    found = record(tmp_path / "run")
    assert found["status"] == "failed"
    assert found["message"].startswith("power_limit_w 200: GPU-aaaa1111-0000 takes from 100 to 400")
    assert not Path("began").exists() and gpus.limits == [300, 300]


WAITS = "import time; open('began', 'w'); time.sleep(60)"


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_restores_the_limit(gpus, tmp_path, number):
    process = begun(tmp_path / "run")
    assert gpus.limits == [200, 300]
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 1 and gpus.limits == [300, 300]


def begun(folder):
    """A run of 200 W whose trainer is at work."""
    folder.mkdir()
    command = [sys.executable, PROGRAM, *arguments(folder, WAITS, power_limit_w=200)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not Path("began").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    return process
