"""Runs for the tests of the supervisor: real children, a few lines of Python each."""

import sys

from dlbench.log import event_fields
from dlbench.starting.supervisor import SupervisedRun

WRITES = """
import json, os, subprocess, sys, time, signal
def write(event, **values):
    with open({log!r}, "a") as log:
        log.write(json.dumps({{"event": event, **values}}) + chr(10))
"""
DATE = "2026-01-01T00:00:00.000000Z"
END = f'write("run_end", status="ok", message="", t_utc="{DATE}", weights_sha256=["0"])\n'
# Without site-packages it starts at once, also on a busy machine.
PYTHON = (sys.executable, "-I", "-S", "-c")


def watched(folder, python, **changes):
    log = folder / "runs" / "run" / "train.jsonl"
    values = {
        "log": log,
        "messages": folder / "messages",
        "command": (*PYTHON, WRITES.format(log=str(log)) + python),
        "label": "lenet5 synthetic",
        "position": "1/2",
        "launch": {"made_from": {}},
        "time_limit_s": 30,
        "last_attempt": True,
    }
    return SupervisedRun(**values | changes)


def ends(log):
    """The run_end events in a log, which may have other lines or none."""
    events = map(event_fields.parse_event, log.read_bytes().splitlines())
    return [event for event in events if event["event"] == "run_end"]
