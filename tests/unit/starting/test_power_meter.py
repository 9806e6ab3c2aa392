"""power_meter: a command that prints watts, with real children; no real meter was there."""

import json
import shlex
import sys
import time

import pytest

from dlbench.log import event_fields, event_log
from dlbench.starting import power, supervisor
from dlbench.starting.power import Meter, integral
from support.machines.processes import alive
from support.trainers.watched_runs import END, watched

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
    assert (reported["node_energy_source"], reported["scope"]) == ("power meter", "node")
    assert (reported["power_least_w"], reported["power_mean_w"], reported["power_most_w"]) == (
        250,
        250,
        250,
    )
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
    assert (
        reported["node_energy_unknown"] == "the run did not come to its end"
    )  # it has no run_start
    assert reported["command"][-1] == "--token=(hidden)"
    assert "hidden" not in run.log.read_text().replace("(hidden)", "")
    with power.reading(None, run.log, 1) as meter:
        assert meter is None
