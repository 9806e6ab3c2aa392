"""pattern_check: patterns that the linear-time engine cannot read are refused."""

import pytest

from dlbench import Error
from dlbench.plan import pattern_check

COMMAND = {"command": ["train"]}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<=x)(?P<step_time_s>\d+)", "lookaround"),
        (r"(?P<step_time_s>\d+)(?= s)", "lookaround"),
        (r"(?P<loss>.) \1 (?P<step_time_s>\d+)", "reference to a group"),
        (r"(?:x{1000}){1000} (?P<step_time_s>\d+)", "1000"),
    ],
)
def test_a_pattern_that_could_take_forever_is_refused_before_anything_is_started(pattern, why):
    with pytest.raises(Error, match=why) as error:
        pattern_check.check({"theirs": COMMAND | {"log": {"step": pattern}}})
    assert "trainers.theirs.log.step" in str(error.value)


def test_patterns_that_only_slow_engines_cannot_read_are_fine():
    step = r"(?:(?:a+)+)+b (?P<step_time_s>\S+)"
    pattern_check.check({"theirs": COMMAND | {"log": {"step": step}}, "ours": {"log": "auto"}})
