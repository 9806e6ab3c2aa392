"""metrics: what a program may name, and what of it is refused."""

import json

import pytest

from dlbench import Error
from dlbench.log import event_fields, metrics

BANDWIDTH = {"name": "busbw_gb_per_s", "value": 230.5, "unit": "GB/s", "better": "higher"}


def event(**changes):
    return json.dumps({"event": "metric", **BANDWIDTH, **changes}).encode()


def test_a_metric_is_a_name_a_finite_number_a_unit_and_a_direction():
    metrics.check([BANDWIDTH, BANDWIDTH | {"name": "skew", "value": -1, "unit": "", "better": ""}])
    assert event_fields.parse_event(event()) == {"event": "metric", **BANDWIDTH}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "2nd"}, "metric '2nd': expected a name of at most 80 letters"),
        ({"value": float("nan")}, "metric busbw_gb_per_s: expected a finite number .* found nan"),
        ({"value": 1e31}, "found 1e\\+31"),
        ({"value": True}, "found True"),
        ({"unit": None}, "metric busbw_gb_per_s: expected its unit as text, found None"),
        ({"better": "more"}, 'expected better as "higher", "lower" or "", not \'more\''),
        ({"rank": 1}, "expected name, value, unit, better, found name, value, unit, better, rank"),
    ],
)
def test_what_is_no_metric_is_refused_with_its_name(changes, message):
    with pytest.raises(Error, match=message):
        metrics.check([BANDWIDTH | changes])
    with pytest.raises(Error, match="metric busbw_gb_per_s twice in one run: expected one value"):
        metrics.check([BANDWIDTH, BANDWIDTH | {"value": 1}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": "nan"}, "metric: expected value to be a number, found nan"),
        ({"name": "a b"}, "metric: expected name to be a name of at most 80 letters"),
        ({"better": "up"}, "metric: expected better to be"),
        ({"step": 1}, "metric: there is no step"),
    ],
)
def test_a_log_with_a_wrong_metric_is_refused(changes, message):
    with pytest.raises(event_fields.LogError, match=message):
        event_fields.parse_event(event(**changes))


def test_a_number_of_a_summary_is_a_column_or_else_a_metric():
    summary = {"images_per_second": 8.0, "top1": None, "metrics": [BANDWIDTH]}
    assert metrics.value_of(summary, "images_per_second") == 8.0
    assert metrics.value_of(summary, "busbw_gb_per_s") == 230.5
    assert metrics.value_of(summary, "top1") is None and metrics.value_of({}, "x") is None
