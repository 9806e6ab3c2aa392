"""run_record: what a record says of the dlbench that trained its run."""

import json

import pytest

from support.runs.ended_runs import ONE, finish

RELEASE = "0.1.0+sha256.0123456789ab"


@pytest.mark.parametrize(
    ("given", "kept"), [(RELEASE, RELEASE), (None, None), (1, None), ([RELEASE], None)]
)
def test_the_release_of_a_wheel_is_kept_and_what_is_none_left_out(place, given, kept):
    record = json.loads((finish(ONE, launch={"release": given}) / "run.json").read_text())
    assert record["provenance"]["release"] == kept
