"""What holds for all suites, however pytest was started: when a test runs, and garbage."""

import collections
import datetime
import gc
import os
import signal
from pathlib import Path

# A shell that starts us in the background has us ignore it, and so would all that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers of tests are here, whatever proxy leads elsewhere.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"

# A quarter of the time of imports would be a search for garbage among what stays.
gc.disable()

LEVELS = ("quick", "ci", "slow")  # of `python -m tests`, with --ci and with --all
UNIT = Path(__file__).with_name("unit")


def pytest_collection_finish():
    """What is there by now is never looked through for garbage, and what is new more rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_addoption(parser):
    parser.addoption("--level", choices=LEVELS, help="only tests of this level (default: all)")
    parser.addoption(
        "--number",
        type=int,
        default=datetime.date.today().toordinal(),
        help="which cases of a test marked one_in(n) have its level (default: the date's number)",
    )


def pytest_report_header(config):
    return f"rotating cases: --number {config.getoption('number')}"


def pytest_collection_modifyitems(config, items):
    """Select the tests of a level. Of a test marked one_in(n), all but each nth case are slow."""
    if not (level := config.getoption("level")):
        return
    number, cases = config.getoption("number"), collections.Counter()
    selected, others = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        (selected if level_of(item, cases[test] + number) == level else others).append(item)
        cases[test] += 1
    config.hook.pytest_deselected(items=others)
    items[:] = selected


def level_of(item, number):
    """The level of a test's case: the slowest of its marks, else its file's, else its folder's."""
    rotating = item.get_closest_marker("one_in")
    if rotating and number % rotating.args[0]:
        return "slow"
    marks = [
        *(mark.name for mark in item.iter_markers()),
        "quick" if UNIT in item.path.parents else "slow",
    ]
    own = [mark.name for mark in item.own_markers if mark.name in LEVELS]
    return max(own, key=LEVELS.index) if own else next(name for name in marks if name in LEVELS)
