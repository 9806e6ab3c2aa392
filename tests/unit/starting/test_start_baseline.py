"""start_baseline: processes of a baseline are started, ended and judged by the file they write."""

import argparse
import dataclasses
import json
import os
import socket
import sys
import time

import pytest

from dlbench.machine import hardware
from dlbench.results import collect_runs
from dlbench.starting import start_baseline, start_command
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=1, steps=1)


def options(folder, code, run=RUN, **changes):
    """The flags of start_baseline.py for a command that is some lines of Python."""
    flags = {
        "spec": json.dumps(run.values()),
        "output": folder / "baseline.json",
        "messages": folder / "logs" / "baseline.log",
        "time_limit_s": 60.0,
        "form": None,
        "bind": [],
        "device": "cpu",
        "network": "host",
        "node_address": None,
        "module": [],
        "site": "here",
        "command": ["--", sys.executable, "-c", code],
    }
    return argparse.Namespace(**{**flags, **changes})


def test_a_command_that_writes_its_file_is_a_result(tmp_path, capsys):
    code = f"print('said'); open({str(tmp_path / 'baseline.json')!r}, 'w').write('{{}}')"
    assert start_baseline.start(options(tmp_path, code)) == 0
    assert (tmp_path / "logs/baseline.log").read_text() == "said\n"
    assert "baseline baseline: done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import sys; sys.exit('error: no horovod here')", "exit code 1): error: no horovod here"),
        ("print('well')", "exit code 0): well"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL): no message"),
    ],
)
def test_without_a_file_or_with_a_failure_it_says_why(tmp_path, code, how):
    message = start_baseline.start(options(tmp_path, code))
    assert message == f"baseline baseline: not measured ({how}"


@pytest.mark.parametrize(
    ("arguments", "measures"),
    [
        ((), {"matrix_product", "memory_copy", "host_to_device"}),
        (("--model=lenet5",), {"all_reduce", "all_gather", "reduce_scatter", "sendrecv"}),
    ],
)
def test_a_failure_on_a_named_node_is_a_result_with_the_reason(
    tmp_path, capsys, arguments, measures
):
    run = dataclasses.replace(RUN, node=hardware.short_host(socket.gethostname()))
    given = options(tmp_path, "import sys; sys.exit('NCCL WARN Cuda failure')", run)
    given.command += arguments
    assert start_baseline.start(given) == 0
    reason = "not measured (exit code 1): NCCL WARN Cuda failure"
    assert f"{reason}; delete {given.output} to measure it again" in capsys.readouterr().err
    rows = list(collect_runs.baseline_rows(given.output))
    assert {(row["measure"], row["unknown"], row["node"], row["site"]) for row in rows} == {
        (measure, reason, run.node, "here") for measure in measures
    }


def test_one_that_hangs_on_a_named_node_is_a_result_too(tmp_path):
    run = dataclasses.replace(RUN, node=hardware.short_host(socket.gethostname()))
    given = options(tmp_path, "import time; time.sleep(600)", run, time_limit_s=0.3)
    assert start_baseline.start(given) == 0
    for row in collect_runs.baseline_rows(given.output):
        assert row["unknown"] == "not measured (stopped after 0.3 s): no message"


def test_what_a_signal_ended_on_a_named_node_is_no_result(tmp_path):
    run = dataclasses.replace(RUN, node=hardware.short_host(socket.gethostname()))
    given = options(tmp_path, "import os; os.kill(os.getpid(), 9)", run)
    assert "killed by SIGKILL" in start_baseline.start(given)
    assert not given.output.exists()


def test_one_that_names_another_node_is_not_measured_here(tmp_path):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=1, steps=1, node="n-elsewhere")
    with pytest.raises(start_command.WrongNode, match="expected node n-elsewhere, found"):
        start_baseline.start(options(tmp_path, "pass", run))


def test_one_that_takes_too_long_is_ended(tmp_path):
    code = f"""
import os, time
open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
print("waits", flush=True)
time.sleep(600)
"""
    begin = time.monotonic()
    message = start_baseline.start(options(tmp_path, code, time_limit_s=1.0))
    assert time.monotonic() - begin < 30
    assert "stopped after 1 s" in message
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_container_that_a_rule_would_enter_is_started_by_the_command_line():
    inside = Run(
        model="lenet5", dataset="synthetic", batch_per_device=1, steps=1, runtime="apptainer"
    )
    assert "start=command" in start_baseline.by_command(inside).runtime_options
    assert start_baseline.by_command(RUN) is RUN
