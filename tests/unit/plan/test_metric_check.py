"""metric_check: a misspelt metric is reported before anything is started."""

import pytest

from dlbench import Error
from dlbench.plan import planning
from support.studies.planned_runs import STUDY

PATTERNS = {
    "step": r"time (?P<step_time_ms>\S+)ms",
    "metrics": {"busbw_gb_per_s": r"bandwidth: (\S+)"},
}
BLOCK = {
    **{"name": "all", "trainer": "theirs", "framework": "own", "model": "m", "dataset": "none"},
    **{"batch_per_device": 8, "strategy": ["single", "mirrored"], "steps": 9},
}


def make(log, **changes):
    trainers = {"theirs": {"command": ["true"], "log": log}}
    changes = {"matrix": [BLOCK], "repeats": 1, "compare": []} | changes
    return planning.make_plan(STUDY | {"trainers": trainers} | changes)


def compared(metric):
    return {"compare": [{"field": "strategy", "base": "single", "metric": metric}]}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (compared("busbw_gb_per"), r"compare\[0\].metric"),
        (
            {"repeats": {"target_interval": 0.1, "min": 2, "max": 3, "metric": "busbw_gb_per"}},
            "repeats.metric",
        ),
        ({"matrix": [BLOCK | {"must_reach": {"metrics": {"busbw_gb_per": 1}}}]}, "must_reach"),
    ],
)
def test_a_metric_that_no_pattern_names_is_refused_with_the_nearest(alone, changes, where):
    with pytest.raises(Error, match=f"{where}.*: .*did you mean 'busbw_gb_per_s'"):
        make(PATTERNS, **changes)


def test_metrics_of_patterns_and_columns_of_runs_and_what_other_logs_name_can_be_compared(alone):
    for metric in ("busbw_gb_per_s", "step_time_p95_s"):
        assert make(PATTERNS, **compared(metric)).runs
    for log in ("auto", "dlbench"):  # not known before a program has run
        assert make(log, **compared("busbw_gb_per")).runs


def test_files_of_patterns_name_their_metrics_too(alone):
    with pytest.raises(Error, match="under metrics, which are: none, or a column of the table"):
        make("nanogpt", **compared("busbw_gb_per"))
