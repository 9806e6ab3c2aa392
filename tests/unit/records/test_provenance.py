"""provenance: what a record says of the dlbench that trained its run."""

import json

import pytest

from support.runs.ended_runs import ONE, finish


@pytest.mark.parametrize("release", ["0.1.0+sha256.0123456789ab", None])
def test_the_release_of_a_wheel_is_kept(place, release):
    record = json.loads((finish(ONE, launch={"release": release}) / "run.json").read_text())
    assert record["provenance"]["release"] == release


@pytest.mark.parametrize("release", [{"version": "0.1.0"}, 1, ["0.1.0"]])
def test_what_is_no_release_is_left_out(place, release):
    record = json.loads((finish(ONE, launch={"release": release}) / "run.json").read_text())
    assert record["provenance"]["release"] is None
