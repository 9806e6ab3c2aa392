"""log_patterns: what patterns of a log may say, and what is refused before anything is started."""

import pytest

from dlbench import Error
from dlbench.study import log_patterns, other_trainers
from support.studies.made_studies import BLOCK, refused, study

STEP = r"iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_time_ms>\S+)ms"
ASKED = BLOCK | {"trainer": "theirs", "model": "gpt", "dataset": "text", "steps": 5}


@pytest.fixture(autouse=True)
def nothing_registered():
    yield
    other_trainers.register({})


def trainers(log):
    return {"theirs": {"command": ["train"], "log": log}}


def test_patterns_of_a_config_are_known_with_their_defaults():
    more = {"settings": "batch (?P<global_batch>.*)", "metrics": {"bw": r"bandwidth (\S+)"}}
    patterns = log_patterns.parse({"step": STEP, **more}, "log")
    assert patterns.means == "mean since the last line"
    assert (patterns.of, patterns.rank, patterns.warm_up) == ("all devices", None, None)
    assert [key for key, _ in patterns.all()] == ["step", "settings", "metrics.bw"]
    assert log_patterns.speed(patterns.step) == "step_time_ms"
    assert study(ASKED, trainers=trainers({"step": STEP})).runs
    bandwidth = {"bw": {"pattern": r"(\d+) GB", "better": "higher"}}
    (metric,) = log_patterns.parse({"metrics": bandwidth}, "log").metrics
    assert (metric.pattern, metric.unit, metric.better) == (r"(\d+) GB", "", "higher")


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({"step": "iter (?P<step>"}, "log.step: 'iter (?P<step>' is no regular expression"),
        ({"step": STEP.replace("_ms", "_min")}, "no number 'step_time_min' (did you mean 'step_t"),
        ({"step": r"(?P<time>\d+)"}, "names have their unit, and here there are: step, loss"),
        (
            {"step": r"(?P<epoch>.): (?P<elapsed_s>.*)"},
            "of a line of an epoch the number of its steps",
        ),
        ({"step": r"time (\d+)"}, r"log.step: 'time (\d+)' has no named group"),
        ({"step": STEP + "(x|y)"}, "a group without a name"),
        ({"step": STEP + r" (?P<step_time_s>\d+)"}, "step_time_ms and step_time_s are one number"),
        ({"step": STEP + r" (?P<tokens_per_second>\d+)"}, "step_time_ms and tokens_per_second are"),
        ({"step": r"iter (?P<step>\d+)"}, "no group has a time or a rate, so nothing is measured"),
        ({"rate": r"(?P<rate_per_s>\d+)"}, "no number 'rate_per_s'"),
        ({"metrics": {"a": "x (.*)", "b": "x (.*)"}}, "b and a have the same pattern"),
        ({"metrics": {"a": "x"}}, "log.metrics.a: expected one group"),
        ({"metrics": {"a": "(x) (y)"}}, "expected one group, the number in parentheses, found 2"),
        ({"metrics": {"a": "(?P<number>x)"}}, "expected (?P<value>...), and (?P<unit>...)"),
        ({"metrics": {"a" * 90: "(x)"}}, "at most 80 letters"),
        ({"step": STEP, "failed": "a*"}, "'a*' matches every line"),
        ({"step": STEP, "failed": "(?P<step>x)"}, "here there are: none"),
        ({"step": STEP, "means": "mean"}, "expected one of mean since the last line, of one step"),
        ({"rate": r"(?P<items_per_second>.*)", "means": "running mean"}, "and it has none"),
        ({"step": STEP, "evaluation_in_step": True}, "there is no pattern of an evaluation"),
        ({"step": STEP, "rank": "all"}, "rank: expected the number of a rank, or alone"),
        ({"step": STEP, "stop": "x"}, "unknown key 'stop' (did you mean 'step'?)"),
        ({"step": STEP, "metrics": {"a": {"unit": "s"}}}, "missing key: pattern"),
        (5, "expected a text or a mapping, found 5"),
        ("nanogtp", "no file importers/nanogtp.py"),
    ],
)
def test_patterns_that_cannot_be_are_refused_in_words(log, message):
    said = refused(ASKED, trainers=trainers(log))
    assert message in said and "trainers.theirs.log" in said


def test_other_patterns_are_another_trainer_and_another_name_of_a_kind_is_not():
    def digest(log):
        other_trainers.register(trainers(log))
        return other_trainers.digest("theirs")

    assert digest("auto") == digest("mxnet")
    assert digest({"step": STEP}) not in (digest("auto"), digest({"step": STEP, "warm_up": 3}))


def test_patterns_of_a_file_have_the_rules_of_a_config():
    assert "nanogpt" in log_patterns.names()
    assert study(ASKED, trainers=trainers("nanogpt")).runs
    with pytest.raises(Error, match=r"patterns\.step: there is no number 'time'"):
        log_patterns.parse({"step": "(?P<time>.)"}, "patterns")
