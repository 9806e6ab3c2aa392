"""What a start shows on a terminal: a bar, a line for each run, and errors."""

import contextlib
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from support.trainers.other_trainer import SCRIPT

BLOCK = {
    "name": "one", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "batch_per_device": 16, "steps": 40,
}  # fmt: skip
COMMAND = [sys.executable, "softmax.py", "{batch_per_device}", "{steps}", "none"]
TRAINER = {"command": COMMAND, "log": "tf_cnn_benchmarks", "files": ["softmax.py"]}


def on_terminal(campaign, *arguments):
    """(exit code, what is shown) of a start on a terminal, without control characters."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        campaign.command(*arguments), cwd=campaign.folder, stdin=theirs, stdout=theirs,
        stderr=theirs, env=campaign.environment() | {"TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # of a terminal that nobody has open any more
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 4096)
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\r", "", shown.decode())


@pytest.mark.ci
def test_a_start_shows_a_bar_a_line_for_its_run_and_its_error_in_full(fresh):
    (fresh.folder / "softmax.py").write_text(SCRIPT)
    fresh.configure(matrix=[BLOCK], trainers={"softmax": TRAINER}, figures=["scaling"])
    with open(fresh.folder / "workflow_scripts/dlbench/drawing/figures/scaling.py", "a") as figure:
        figure.write("\nraise RuntimeError('no column speed')\n")
    code, shown = on_terminal(fresh)
    assert code == 1
    assert "0/1 runs · 1 running · time to go not known yet" in shown
    assert len(re.findall(r"run 1/1  softmax .*: (?:ok|unstable)", shown)) == 1
    assert "Error in rule draw_figure" in shown and "RuntimeError: no column speed" in shown
    assert "collect_runs: done" in shown and "1 of 1 runs done" in shown
    for bookkeeping in (": starts", "Select jobs", "Finished jobid", "Job stats"):
        assert bookkeeping not in shown
