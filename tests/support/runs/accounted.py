"""See that where the time of runs went adds up, whatever the tests did to them."""

import math

import pytest

from dlbench.records import run_record

MAX_APART = 0.005  # of the whole


@pytest.fixture(scope="session", autouse=True)
def accounts_add_up(tmp_path_factory):
    """At the end, look at the record of each run that the tests have left."""
    yield
    apart = {}
    for path in tmp_path_factory.getbasetemp().rglob("results/runs/*/run.json"):
        try:
            summary = run_record.read(path)["summary"]
        except (OSError, run_record.RecordError):
            continue  # damaged by a test
        if parts_s := summary.get("account_s"):
            told_s, wall_s = math.fsum(parts_s.values()), summary["wall_s"]
            if abs(told_s - wall_s) > MAX_APART * wall_s:
                apart[str(path)] = (told_s, wall_s, parts_s)
    assert not apart
