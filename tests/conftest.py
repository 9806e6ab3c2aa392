"""What holds for all suites, however pytest was started."""

import collections
import gc
import signal

import pytest

# A shell that starts us in the background has us ignore it, and so would all that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A quarter of the time of imports would be a search for garbage among what stays.
gc.disable()


def pytest_collection_finish():
    """What is there by now is never looked through for garbage, and what is new more rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run tests marked slow, too")


def pytest_collection_modifyitems(config, items):
    """Skip what --slow alone runs: what is marked slow, and of one_in(n) all but each nth case."""
    if config.getoption("slow"):
        return
    seen = collections.Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: --slow runs it"))
        elif sampled := item.get_closest_marker("one_in"):
            (every,), name = sampled.args, item.nodeid.partition("[")[0]
            if seen[name] % every:
                item.add_marker(pytest.mark.skip(reason=f"one in {every} cases: --slow runs all"))
            seen[name] += 1
