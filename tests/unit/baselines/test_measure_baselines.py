"""measure_baselines: its flags. tests/frameworks/test_baselines.py has what it measures."""

import pytest

from dlbench.baselines import measure_baselines


def test_fields_of_a_run_that_are_no_json_are_refused(capsys):
    with pytest.raises(SystemExit):
        measure_baselines.parser().parse_args(["--spec", "{", "--output", "x"])
    assert "--spec: invalid" in capsys.readouterr().err
