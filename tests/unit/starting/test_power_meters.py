"""power_meters: a Redfish service and Slurm's accounting as meters of a node."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dlbench.log import event_fields, event_log
from dlbench.starting import power
from dlbench.starting.power_meters import redfish, slurm

PASSWORD = "pl4nted-s3cret"
PLACE = "/redfish/v1/Chassis/1"


@pytest.fixture
def service(monkeypatch, tmp_path):
    """A Redfish service on this machine: `answers` are its next ones, the last one for ever."""

    class Service(BaseHTTPRequestHandler):
        answers, asked = [], []

        def do_GET(self):
            Service.asked.append(self.headers.get("Authorization"))
            answer = Service.answers.pop(0) if len(Service.answers) > 1 else Service.answers[0]
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            if isinstance(answer, dict):
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Service.url = f"http://127.0.0.1:{server.server_port}{PLACE}"
    monkeypatch.setattr(redfish, "EVERY_S", 0.02)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    yield Service
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "resource",
    [
        {"PowerControl": [{"PowerConsumedWatts": 344}]},
        {"PowerWatts": {"Reading": 344}, "EnergykWh": {"Reading": 1}},
        {"ReadingType": "Power", "Reading": 344},
    ],
)
def test_the_watts_of_a_resource_are_printed_until_it_is_gone(service, resource, capsys):
    service.answers = [resource, 503, resource, 404]
    reason = redfish.main(service.url)
    assert capsys.readouterr().out.splitlines() == ["344", f"{service.url}: HTTP Error 503: "
        "Service Unavailable", "344"]  # fmt: skip
    assert reason.startswith(f"{service.url}: HTTP Error 404") and redfish.USER in reason


def test_a_counter_of_energy_gives_the_power_between_two_of_its_values(service, capsys):
    reading = {"ReadingType": "EnergykWh"}
    service.answers = [reading | {"Reading": n} for n in (7.0, 7.0, 7.00001)] + [{"Name": "x"}, 401]
    began_s = time.monotonic()
    redfish.main(service.url)
    printed = capsys.readouterr().out.splitlines()
    watts = float(printed[0])
    assert 36 / (time.monotonic() - began_s) < watts <= 36 / 0.04 * 1.01
    assert "expected PowerConsumedWatts" in printed[1] and len(printed) == 2


@pytest.mark.parametrize("by_file", [True, False])
def test_its_meter_asks_as_a_user_whose_password_is_in_no_record(
    service, monkeypatch, tmp_path, by_file
):
    if by_file:
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {PASSWORD}\n")
    else:
        monkeypatch.setenv(redfish.USER, "me")
        monkeypatch.setenv(redfish.PASSWORD, PASSWORD)
    service.answers = [{"PowerControl": [{"PowerConsumedWatts": 250}]}]
    log = tmp_path / "train.jsonl"
    with power.reading(f"redfish {service.url}", log, 1) as meter:
        deadline, events = time.monotonic() + 20, event_log.EventLog(log)
        for points in (1, 3):
            while len(meter._points) < points and time.monotonic() < deadline:
                time.sleep(0.02)
            if points == 1:
                events.start(spec={})
    end = {"status": "ok", "message": "", "t_s": 0.5, "node_energy_j": 100.0}
    events.write("run_end", t_utc=event_log.utc_now(), weights_sha256=["0"], **end)
    events.close()
    told = meter.fields()
    event_fields.parse_event(json.dumps({"event": "power_meter", **told}).encode())
    assert told["node_energy_j"] == pytest.approx(125)
    assert told["node_energy_source"] == "node with losses of its supply: Redfish"
    assert told["node_energy_note"] == "the power meter's is 25 % more than its counter"
    assert PASSWORD not in json.dumps(told) + log.read_text()
    coded = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    assert set(service.asked) == {f"Basic {coded}"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://bmc/redfish/v1", "a password is not sent over http"),
        ("https://me:you@bmc/redfish/v1", "expected redfish https://HOST/..., the user in"),
        ("file:///etc/passwd", "expected redfish https://HOST/..., the user in"),
        ("", "expected redfish https://HOST/..., the user in"),
    ],
)
def test_an_address_that_would_show_a_password_is_refused(monkeypatch, url, reason):
    monkeypatch.setenv(redfish.USER, "me")
    monkeypatch.setenv(redfish.PASSWORD, PASSWORD)
    said = redfish.main(url)
    assert reason in said and PASSWORD not in said and "you" not in said


def metered_by_slurm(folder, monkeypatch, program, printed, ran_s=60.0):
    monkeypatch.setattr(slurm, "PATIENCE_S", 0.05)
    monkeypatch.setattr(slurm, "EVERY_S", 0.01)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    program(
        "sacct", script=f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $*" >>{folder}/asked\n{printed}\n'
    )
    with power.reading("slurm", folder / "train.jsonl", 2) as meter:
        events = event_log.EventLog(folder / "train.jsonl")
        events.start(spec={})
    events.write("run_end", status="failed", message="", t_utc=event_log.utc_now(), t_s=ran_s)
    events.close()
    told = meter.fields()
    event_fields.parse_event(json.dumps({"event": "power_meter", **told}).encode())
    return told


def steps(*lines):
    now_s = int(time.time())
    return "\n".join(
        f"echo '{line.format(a=now_s + 1, b=now_s + 71, c=now_s - 9)}'" for line in lines
    )


def test_slurm_has_the_energy_of_the_step_that_srun_started(tmp_path, monkeypatch, program):
    # Before: the step of an earlier run, and of the whole job; after: one that ended soon.
    printed = steps("7|{c}|{b}|99", "7.0|{c}|{b}|98", "7.batch|{a}|{b}|97", "7.1|{a}|{b}|45000",
        "7.2|{a}|{a}|3", "7.3|{a}|Unknown|")  # fmt: skip
    told = metered_by_slurm(tmp_path, monkeypatch, program, printed)
    assert (told["node_energy_j"], told["trouble"]) == (45000, None)
    assert told["node_energy_source"] == "node: Slurm step 7.1"
    assert told["node_energy_note"] == "of its step, which took 70 s, the run 60 s"
    assert (tmp_path / "asked").read_text() == f"%s {' '.join(slurm.COMMAND[1:])} --jobs=7\n"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["7|{c}|{b}|99", "7.0|{c}|{b}|98"], "no step of srun ended in job 7 with the run"),
        (["7.1|{a}|{b}|"], "Slurm counts no energy of step 7.1: see AcctGatherEnergyType"),
        (["7.1|{a}|{b}|0"], "Slurm counts no energy of step 7.1: see AcctGatherEnergyType"),
        (["slurm accounting is off", "7.1|x"], "no step of srun ended in job 7"),
    ],
)
def test_a_step_without_energy_and_a_job_without_steps_are_reasons(
    tmp_path, monkeypatch, program, lines, reason
):
    told = metered_by_slurm(tmp_path, monkeypatch, program, steps(*lines))
    assert told["node_energy_j"] is told["node_energy_note"] is None
    assert told["node_energy_unknown"].startswith(reason) and told["trouble"].startswith(reason)


def test_an_accounting_that_fails_is_a_reason(tmp_path, monkeypatch, program):
    told = metered_by_slurm(tmp_path, monkeypatch, program, "echo no database >&2; exit 1")
    assert told["node_energy_unknown"] == "sacct: env failed (exit code 1): no database"
