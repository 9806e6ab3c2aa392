"""Check that the account of a run's time adds up, for all runs of a test session."""

import math

import pytest

from dlbench.records import run_record

MAX_DIFFERENCE = 0.005  # of the whole


@pytest.fixture(scope="session", autouse=True)
def accounts_add_up(tmp_path_factory):
    """At the end, check the record of each run that the tests wrote."""
    yield
    differing = {}
    for path in tmp_path_factory.getbasetemp().rglob("results/runs/*/run.json"):
        try:
            summary = run_record.read(path)["summary"]
        except (OSError, run_record.RecordError):
            continue  # damaged by a test
        if parts_s := summary.get("account_s"):
            summed_s, wall_s = math.fsum(parts_s.values()), summary["wall_s"]
            if abs(summed_s - wall_s) > MAX_DIFFERENCE * wall_s:
                differing[str(path)] = (summed_s, wall_s, parts_s)
    assert not differing
