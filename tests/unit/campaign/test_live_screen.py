"""The screen of a campaign, on a real terminal and without one."""

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
import termios

import pytest

from dlbench.campaign import live_screen
from dlbench.campaign.live_campaign import LiveCampaign
from dlbench.plan import planning
from support.runs.made_runs import SETTINGS, finish

# A campaign with a bar, whose job prints; what it does then is an argument.
SHOWS = """
import os, signal, subprocess, sys
from dlbench.campaign import live_screen
from dlbench.campaign.live_campaign import LiveCampaign
from dlbench.plan import planning
from support.runs.made_runs import SETTINGS
screen = live_screen.open_screen(LiveCampaign(planning.make_plan(SETTINGS)), True, True)
subprocess.run("echo a job on stdout; echo a job on stderr >&2; printf half >&2", shell=True)
print("bar", os.environ.get("DLBENCH_BAR"), file=sys.stderr)
screen.print("a line: \\x1b[31mok")
exec(sys.argv[1])
screen.close()
print("after", os.isatty(1), os.isatty(2), os.environ.get("DLBENCH_BAR"))
"""


def on_terminal(work="", **variables):
    """What a process shows on a terminal, and whether the terminal is as it was."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"} | variables
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", SHOWS, work], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment,
    )  # fmt: skip
    shown = b""
    while process.poll() is None or select.select([ours], [], [], 0.1)[0]:
        with contextlib.suppress(OSError):
            shown += os.read(ours, 4096) if select.select([ours], [], [], 0.1)[0] else b""
    same = termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
    return shown.decode(), same


@pytest.mark.ci
def test_what_jobs_print_is_above_the_bar_and_the_terminal_is_as_it_was(study):
    shown, same = on_terminal()
    for text in ("a job on stdout", "a job on stderr", "0/4 runs", "4 left", "bar 1", "a line"):
        assert text in shown
    assert shown.rstrip().endswith("after True True None") and same
    assert "half" in shown and shown.rfind("\x1b[?25l") < shown.rfind("\x1b[?25h")
    shown, _ = on_terminal(TERM="dumb")
    assert "\x1b" not in shown and "a line: ok" in shown and "0/4" not in shown


@pytest.mark.ci
@pytest.mark.parametrize(
    "work", ["raise KeyboardInterrupt", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_however_it_ends_the_terminal_is_usable(study, work):
    shown, same = on_terminal(work)
    assert same and shown.rfind("\x1b[?25l") < shown.rfind("\x1b[?25h")
    assert "KILL" in work or "a job on stderr" in shown


def test_without_a_terminal_there_are_lines_without_control_characters(study, capfd):
    campaign = LiveCampaign(planning.make_plan(SETTINGS))
    screen = live_screen.open_screen(campaign, True, True)
    screen.print("\x1b[31mred\x07", "red")
    screen.refresh()
    screen.close()
    assert capfd.readouterr().err == "red\n"


def test_the_bar_fits_its_width_and_has_the_numbers(study):
    from rich.console import Console

    finish(study.runs[0], 60)
    campaign = LiveCampaign(planning.make_plan(SETTINGS))
    for width in (40, 80, 120):
        console = Console(width=width, file=io.StringIO(), record=True)
        console.print(live_screen.bar(campaign, width))
        first = console.export_text().splitlines()[0]
        assert len(first) <= width and "1/4 runs · 3 left" in first
        assert "3 min to go" in first or width == 40
