"""A judged session as a page, as plain values for JSON, and as JUnit XML for CI systems."""

import math
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from dlbench.common import phrases
from dlbench.history import gate
from dlbench.history.gate import SIZES, Gate, Judged
from dlbench.history.history_rows import LABELS, day
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study import wording

NOT_JUDGED = (gate.TOO_FEW, gate.NEW)
KINDS = {gate.BETTER: "good", gate.PASS: "same", **dict.fromkeys(NOT_JUDGED, "open")}
KINDS |= dict.fromkeys(gate.FAILING, "bad")
# XML has no other control characters, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def page(judged: Gate) -> Page:
    """The Page of a judged session."""
    words = {True: "passed", False: "failed", None: "nothing could be judged"}
    passed = _passed(judged)
    return Page(
        title=f"Session {judged.session}: {words[passed]}",
        lead=lead(judged),
        sections=(_facts(judged), _conditions(judged)),
        kind={True: "good", False: "bad", None: "open"}[passed],
    )


def _passed(judged):
    """Whether the gate is passed; None if nothing fails it and nothing could be judged."""
    is_open = judged.passed and not any(one.prediction for one in judged.judged)
    return None if is_open else judged.passed


def lead(judged: Gate) -> str:
    """The outcome in a sentence or two."""
    counts = judged.counts
    verdicts = ", ".join(f"{counts[name]} {name}" for name in gate.VERDICTS if counts[name])
    text = f"{phrases.counted(len(judged.judged), 'condition')} of {judged.site}: {verdicts}."
    if judged.others:
        text += (
            f" The history has no session of this machine, {judged.machine_id} "
            f"({judged.machine}), but of {'; '.join(judged.others)}. If that is the same "
            "machine, name both keys under `machines` in the config."
        )
    return text


def values(judged: Gate) -> dict[str, Any]:
    """A judged session as plain values; what is not known is None."""
    names = ("session", "study", "site", "machine_id", "machine")
    return {
        **{name: getattr(judged, name) for name in names},
        "started_at": _utc(judged.started_at),
        "passed": _passed(judged),
        "base": judged.base,
        "tag": judged.tag or None,
        "base_first": _utc(judged.base_first),
        "base_last": _utc(judged.base_last),
        "base_age_days": judged.age_days,
        "changed": list(judged.changed),
        "least": judged.least,
        "allowed": list(judged.allowed),
        "power": {f"{size:g}": _power(judged, size) for size in SIZES},
        "conditions": [_condition(one, judged) for one in judged.judged],
    }


def junit(judged: Gate) -> str:
    """A judged session as JUnit XML: a test case for each condition and metric."""
    failures = {id(one) for one in judged.failures}
    suite = ElementTree.Element(
        "testsuite",
        name=f"dlbench gate {judged.study or ''}".strip(),
        tests=str(len(judged.judged)),
        failures=str(len(failures)),
        errors="0",
        skipped=str(sum(one.verdict in NOT_JUDGED for one in judged.judged)),
        timestamp=f"{judged.started_at:%Y-%m-%dT%H:%M:%S}",
        hostname=judged.site,
    )
    for one in judged.judged:
        case = ElementTree.SubElement(
            suite, "testcase", classname=one.metric, name=one.condition, time="0"
        )
        if id(one) in failures:
            ElementTree.SubElement(case, "failure", type=one.verdict, message=_sentence(one))
        elif one.verdict in NOT_JUDGED:
            ElementTree.SubElement(case, "skipped", message=f"{one.verdict}: {one.reason}")
    ElementTree.indent(suite)
    text = _NOT_XML.sub("", ElementTree.tostring(suite, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _facts(judged):
    rows: list[list[str | Cell]] = [
        ["session", f"{judged.session}, {day(judged.started_at)}"],
        ["study", judged.study or "without a name"],
        ["machine", f"{judged.machine_id} at {judged.site}: {judged.machine}"],
        ["judged by", _base(judged)],
    ]
    if judged.base_last is not None:
        changed = "; ".join(judged.changed) or "nothing that is recorded"
        rows.append(["changed since then", changed])
    if any(one.prediction for one in judged.judged):
        powers = ", ".join(f"{100 * s:g} %: {100 * _power(judged, s):.0f} %" for s in SIZES)
        rows.append(["chance to find a loss in one condition", f"{powers} (the median of them)"])
    if judged.refused:
        rows.append(["left out", "; ".join(judged.refused)])
    if judged.allowed:
        rows.append(["fails nothing", ", ".join(judged.allowed)])
    return Section("What was judged", (), Table(("", ""), rows))


def _base(judged):
    if judged.base_last is None:
        return "nothing: the history has no session before it on this machine"
    age = f"{phrases.counted(round(judged.age_days), 'day')} old"
    if judged.base == gate.SINCE_CHANGE:
        first, last = day(judged.base_first), day(judged.base_last)
        return f"the sessions since the last change, {first} to {last}; the newest is {age}"
    names = {gate.LAST: "the session before it"}
    name = f"{judged.tag} ({judged.base})" if judged.tag else names.get(judged.base, judged.base)
    return f"{name} of {day(judged.base_last)}, {age}"


def _conditions(judged):
    family = sum(one.prediction is not None for one in judged.judged)
    method = (
        "Expected: level of the base, and in parentheses the 95 % prediction interval of a "
        "session's mean, of each condition alone. Verdicts are at the 5 % level after Holm's "
        f"correction for {phrases.counted(family, 'condition')}; a change below "
        f"{100 * judged.least:g} % fails nothing."
    )
    metrics = {one.metric for one in judged.judged}
    rows = [
        [
            one.condition if len(metrics) == 1 else f"{one.condition}: {one.metric}",
            _expected(one),
            _measured(one),
            _ratio(one, judged.least),
            Cell(one.verdict, KINDS[one.verdict], one.reason),
        ]
        for one in judged.judged
    ]
    headings = ("condition", "expected", "measured (runs)", "ratio", "verdict")
    heading = f"Conditions, {min(metrics)}" if len(metrics) == 1 else "Conditions"
    return Section(heading, (method,), Table(headings, rows, right=(1, 2, 3)))


def _expected(one):
    if one.prediction is None:
        return "-"
    expected = one.prediction.expected
    numbers = expected.value, expected.low, expected.high
    return "{} ({} to {})".format(*map(wording.number, numbers))


def _measured(one):
    if one.mean_log is None:
        return "-"
    return f"{wording.number(math.exp(one.mean_log))} {one.unit} ({one.runs})".replace("  ", " ")


def _ratio(one, least):
    if one.ratio is None:
        return "-"
    # Of the ratio itself: what was measured, as sure as the prediction is.
    expected = one.prediction.expected
    low, high = (one.ratio * end / expected.value for end in (expected.low, expected.high))
    return Cell(f"{one.ratio:.3f}", drawn=(one.ratio, low, high, least))


def _sentence(one):
    """A failure in words."""
    if one.ratio is None:
        return f"{one.verdict}: {one.reason}"
    return (
        f"{one.verdict}: {100 * (one.ratio - 1):+.1f} %: measured {_measured(one)}, expected "
        f"{_expected(one)} from {phrases.counted(one.sessions, 'session')}, p = {one.p:.2g}"
    )


def _power(judged, size):
    """The chance that a loss of a size in one condition would fail; None if nothing is judged."""
    tested = [one.prediction for one in judged.judged if one.prediction]
    if not tested:
        return None
    powers = [prediction.power(size, judged.least, len(tested)) for prediction in tested]
    return float(np.median(powers))


def _condition(one: Judged, judged: Gate):
    expected = one.prediction and one.prediction.expected
    return {
        **{name: getattr(one, name) for name in (*LABELS, "verdict")},
        "fails": one in judged.failures,
        "reason": one.reason,
        "runs": one.runs,
        "value": None if one.mean_log is None else math.exp(one.mean_log),
        "sessions": one.sessions,
        "expected": expected and expected.value,
        "prediction95_low": expected and expected.low,
        "prediction95_high": expected and expected.high,
        "ratio": one.ratio,
        "p": one.p,
    }


def _utc(date):
    return date and f"{date.isoformat()}Z"
