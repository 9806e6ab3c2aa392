"""power: limits are set for a run on its GPUs, restored at its end, refused where it cannot be.

nvidia-smi itself was not run: no GPU is here, so a program of its name takes its place.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.log import event_fields, event_log
from dlbench.starting import power, supervisor
from dlbench.starting.power import Limits, Meter, Refused, integral
from support.machines.nvidia_smi import NvidiaSmi
from support.machines.processes import alive
from support.programs import in_process
from support.trainers.watched_runs import DATE, END, PYTHON, watched

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
    folder.mkdir()
    command = [sys.executable, PROGRAM, *arguments(folder, WAITS, power_limit_w=200)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not Path("began").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    return process


PATIENCE_S = 20.0


def python(code):
    return shlex.join([sys.executable, "-I", "-S", "-c", f"import os, time, sys\n{code}"])


def wait_for(condition, meter):
    deadline = time.monotonic() + PATIENCE_S
    while not condition(meter):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def metered(folder, code, until, is_started=lambda meter: True, ran_s=1.0):
    """What a meter says of a run that started once `begun(meter)` and ended once `until(meter)`."""
    log = folder / "train.jsonl"
    meter = Meter(python(code), log)
    wait_for(is_started, meter)
    events = event_log.EventLog(log)
    events.start(spec={})
    wait_for(until, meter)
    meter.stop()
    end = {"status": "ok", "message": "", "weights_sha256": ["0"]}
    events.write("run_end", t_utc=event_log.utc_now(), t_s=ran_s, **end)
    events.close()
    reported = meter.fields()
    event_fields.parse_event(json.dumps({"event": "power_meter", **reported}).encode())
    return reported


def ended(meter):
    return meter._process.poll() is not None


@pytest.mark.ci
def test_energy_is_the_power_from_run_start_to_its_end_over_time(tmp_path):
    reported = metered(
        tmp_path,
        "while True:\n  print(250.0, flush=True)\n  time.sleep(0.05)",
        until=lambda meter: len(meter._points) > 3,
        is_started=lambda meter: len(meter._points) > 1,
    )
    assert reported["node_energy_j"] == pytest.approx(250.0, rel=1e-3)
    assert (reported["node_energy_source"], reported["scope"]) == ("node: power meter", "node")
    names = ("power_least_w", "power_mean_w", "power_most_w")
    assert [reported[name] for name in names] == [250, 250, 250]
    assert reported["node_energy_sampled_share"] > 0.5
    assert (reported["trouble"], reported["node_energy_unknown"]) == (None, None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit(3)", "it ended during the run, exit code 3"),
        ("print('no sensor at password=abc'); sys.exit(3)", "exit code 3; 1 line was no number"),
        ("print('nan\\n-5\\n\\ninf')", "exit code 0; 3 lines were no number of watts, the first"),
        ("while True: print('1 2')", "it printed more than 100 lines a second; "),
        ("print(5, flush=True)", "it ended during the run, exit code 0"),
    ],
)
def test_a_meter_that_ends_or_prints_something_else_is_a_reason(tmp_path, code, reason):
    reported = metered(tmp_path, code, ended)
    assert reported["node_energy_j"] is None
    assert reason in reported["node_energy_unknown"]
    assert "abc" not in reported["node_energy_unknown"]


def test_a_meter_that_hangs_is_a_reason_and_ends_with_the_run_with_its_children(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(power, "GRACE_S", 0.1)
    child = tmp_path / "child"
    reported = metered(
        tmp_path,
        f"import subprocess, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"started = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(child)!r}, 'w').write(str(started.pid))\ntime.sleep(60)",
        lambda meter: child.is_file() and child.read_text(),
    )
    assert reported["node_energy_unknown"] == "it printed 0 numbers: two are needed"
    deadline = time.monotonic() + 10  # it was sent SIGKILL, which takes effect on a busy core later
    while alive(int(child.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(int(child.read_text()))


@pytest.mark.parametrize("command", ["/no/meter --all", "/no/meter 'unclosed", "  "])
def test_a_meter_that_cannot_be_started_is_a_reason(tmp_path, command):
    meter = Meter(command, tmp_path / "train.jsonl")
    meter.stop()
    assert meter.fields()["trouble"].startswith("it could not be started: ")


def test_of_a_run_across_nodes_the_meter_would_see_one(tmp_path):
    meter = Meter("true", tmp_path / "train.jsonl", nodes=2)
    meter.stop()
    assert meter.fields()["trouble"].startswith("the run has 2 nodes, and the meter is read on")


def test_power_is_interpolated_within_the_run_and_gaps_are_not_covered():
    points = [(0, 100), (1, 100), (2, 200), (3, 200), (9, 200), (10, 300)]
    joules, share, seen = integral(points, 1.5, 9.5)
    assert joules == pytest.approx(0.5 * 175 + 7 * 200 + 0.5 * 225)
    assert (share, seen) == (2 / 8, 3)
    assert integral([(4, 50), (5, 50)], 0, 10)[:2] == (500, 0.1)


def test_readings_of_one_second_are_one_mean(tmp_path, monkeypatch):
    meter = Meter("/no/meter", tmp_path / "train.jsonl")
    for now_s, power_w in ((0.1, 100), (0.5, 200), (0.9, 300), (1.5, 50)):
        meter._add(now_s, power_w)
    assert meter._points == [(pytest.approx(0.5), pytest.approx(200)), (1.5, 50)]


def test_a_supervised_run_has_what_the_meter_said_without_the_secrets_of_its_command(tmp_path):
    code = "while True:\n  print(9, flush=True)\n  time.sleep(0.05)"
    command = f"{python(code)} --token=hidden"
    run = watched(tmp_path, END, power_meter=command)
    assert supervisor.supervise(run)
    events = map(event_fields.parse_event, run.log.read_bytes().splitlines())
    (reported,) = (event for event in events if event["event"] == "power_meter")
    # It has no run_start.
    assert reported["node_energy_unknown"] == "the run did not come to its end"
    assert reported["command"][-1] == "--token=(hidden)"
    assert "hidden" not in run.log.read_text().replace("(hidden)", "")
    with power.reading(None, run.log, 1) as meter:
        assert meter is None
