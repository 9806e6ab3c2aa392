"""dashboards: a judged session as text for Prometheus and as JSON for Bencher."""

import dataclasses
import json
import re
from datetime import datetime

import numpy as np
import pytest

from dlbench.history import dashboards, gate
from dlbench.history.prediction import predict

PREDICTED = predict(np.log([100, 101, 99, 100, 102, 98, 100, 100]), np.full(8, 3), 1e-4, 3, None)
LABELS = {"metric": "images_per_second", "unit": "items/s", "better": "higher"}
WORSE = gate.Judged(
    **LABELS, condition_id="c1", condition="lenet5 batch 8", verdict=gate.WORSE, runs=3,
    mean_log=float(np.log(90)), sessions=8, prediction=PREDICTED, p=0.001,
)  # fmt: skip
MISSING = gate.Judged(**LABELS, condition_id="c2", condition="lenet5 batch 16",
                      verdict=gate.MISSING)  # fmt: skip
JUDGED = gate.Gate(
    session="s2", study=None, site='a "site"\\with\nlines', machine_id="abc", machine="1 x CPU",
    started_at=datetime(2026, 11, 27), base=gate.LAST, base_first=None, base_last=None, others=(),
    changed=(), least=0.01, judged=(WORSE, MISSING),
)  # fmt: skip
SAMPLE = re.compile(r'(dlbench_\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)')


def samples(text):
    """{(name, condition_id or ""): value} of all lines that are no comments."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
            assert labels["site"] == 'a \\"site\\"\\\\with\\nlines'
            found[name, labels.get("condition_id", "")] = float(value)
    return found


def test_prometheus_gets_what_is_known_with_its_labels_escaped():
    text = dashboards.prometheus(JUDGED)
    found = samples(text)
    assert found["dlbench_value", "c1"] == pytest.approx(90)
    assert found["dlbench_expected", "c1"] == pytest.approx(100, rel=0.01)
    assert ("dlbench_value", "c2") not in found
    assert (found["dlbench_fails", "c1"], found["dlbench_fails", "c2"]) == (1, 1)
    assert found["dlbench_gate_passed", ""] == 0
    assert found["dlbench_session_start_timestamp_seconds", ""] == 1795737600
    names = re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    assert sorted(names) == sorted({name for name, _ in found})
    assert text.endswith("\n")


def test_a_family_of_which_nothing_is_known_has_no_lines():
    text = dashboards.prometheus(dataclasses.replace(JUDGED, judged=(MISSING,)))
    assert "dlbench_value" not in text and "dlbench_fails" in text


def test_bencher_gets_values_by_condition_and_metric():
    latency = dataclasses.replace(WORSE, metric="latency_us", mean_log=float(np.log(7)))
    found = dashboards.bencher(dataclasses.replace(JUDGED, judged=(WORSE, latency, MISSING)))
    assert found == {
        "lenet5 batch 8": {
            "images_per_second": {"value": pytest.approx(90)},
            "latency_us": {"value": pytest.approx(7)},
        }
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_conditions_of_one_label_stay_apart():
    other = dataclasses.replace(WORSE, condition_id="c9", mean_log=float(np.log(70)))
    found = dashboards.bencher(dataclasses.replace(JUDGED, judged=(WORSE, other)))
    assert sorted(found) == ["lenet5 batch 8 c1", "lenet5 batch 8 c9"]
