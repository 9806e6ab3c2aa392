"""gate: a judged session as text, Markdown, HTML and JSON."""

import dataclasses
import json
from datetime import datetime

import numpy as np
import pytest

from dlbench.history import gate
from dlbench.history.gate import predict
from dlbench.pages import formats

PREDICTED = predict(np.log([100, 101, 99, 100, 102, 98, 100, 100]), np.full(8, 3), 1e-4, 3, None)
LABELS = {
    "condition_id": "c1",
    "metric": "images_per_second",
    "unit": "items/s",
    "better": "higher",
}
WORSE = gate.Judged(
    **LABELS, condition="lenet5 batch 8", verdict=gate.WORSE, runs=3, mean_log=float(np.log(90)),
    sessions=8, prediction=PREDICTED, p=0.001,
)  # fmt: skip
MISSING = gate.Judged(
    **LABELS, condition="lenet5 <batch> 16", verdict=gate.MISSING, reason="it was measured in s1"
)
NEW = gate.Judged(**LABELS, condition="lenet5 batch 32", verdict=gate.NEW, reason="not before")
JUDGED = gate.Gate(
    session="s2", study="nightly", site="here", machine_id="abc", machine="1 x CPU",
    started_at=datetime(2026, 11, 27), base=gate.SINCE_CHANGE, base_first=datetime(2026, 11, 1),
    base_last=datetime(2026, 11, 26), others=(), changed=("kernel 6.1 -> 6.2",), least=0.01,
    judged=(WORSE, MISSING, NEW),
)  # fmt: skip


def test_the_page_says_the_outcome_first_and_then_why():
    text = formats.text(gate.page(JUDGED), 120)
    assert text.splitlines()[0] == "Session s2: failed"
    assert "3 conditions of here: 1 worse, 1 missing, 1 new." in text
    assert "2026-11-01 to 2026-11-26; the newest is 1 day old" in " ".join(text.split())
    assert "kernel 6.1 -> 6.2" in text
    assert "0.900" in text and "(97.04 to 103)" in text


def test_every_form_of_it_escapes_what_others_wrote():
    assert "&lt;batch&gt; 16" in formats.html_page(gate.page(JUDGED))
    assert "lenet5 \\<batch\\> 16" in formats.markdown(gate.page(JUDGED))


def test_the_json_has_numbers_that_say_the_same_and_none_for_what_is_unknown():
    plain = json.loads(json.dumps(gate.values(JUDGED), allow_nan=False))
    assert plain["passed"] is False and plain["base_age_days"] == 1
    worse, missing, new = plain["conditions"]
    assert worse["ratio"] == pytest.approx(0.9, abs=1e-3) and worse["fails"]
    assert worse["prediction95_low"] < worse["expected"] < worse["prediction95_high"]
    assert missing["ratio"] is None and missing["fails"] and not new["fails"]
    assert plain["power"]["0.05"] > plain["power"]["0.01"]


def test_where_nothing_could_be_judged_nothing_has_passed():
    first = dataclasses.replace(JUDGED, judged=(NEW,))
    page = gate.page(first)
    assert page.kind == "open" and page.title == "Session s2: nothing could be judged"
    assert gate.values(first)["passed"] is None
    failed = dataclasses.replace(JUDGED, judged=(NEW, MISSING))
    assert gate.page(failed).title == "Session s2: failed"


def test_allowed_verdicts_fail_nothing_and_are_named():
    allowed = dataclasses.replace(JUDGED, allowed=(gate.WORSE, gate.MISSING))
    page = gate.page(allowed)
    assert page.kind == "good" and page.title == "Session s2: passed"
    assert "worse, missing" in formats.text(page)
