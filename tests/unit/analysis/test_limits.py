"""What limits a series: losses by hand numbers, and bounds that hold whatever the probes say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis import limits, scaling_series
from support.results import made_explanations
from support.results.made_explanations import TWO, baseline
from support.results.made_explanations import runs as repeats

BASE_MS, TWO_MS = 40.0, 50.0  # of a step: the efficiency is 0.8
PARTS = {"input": 6.0, "exchange": 7.0, "sharing": 1.0, "waits": 1.0, "computation": 35.0}
OF_BASE = {"input": 4.0, "waits": 1.0, "computation": 35.0}
TWO_RUN = repeats(TWO_MS, **TWO)[0]


def limit(own, base=None, explained=(), baselines=(), kind="weak"):
    """The one Limit of a series of two sides."""
    rows = [*(base or repeats(BASE_MS)), *own]
    series = [one for one in scaling_series.all_series(rows) if one.kind == kind]
    found = limits.of_series(series, explained, baselines)
    return found[0] if found else None


def probed(of_two=PARTS, of_base=OF_BASE, base=None, own=None, kind="weak", **changes):
    """The Limit of runs that have probes, and the runs of its base too unless `of_base` is None."""
    base, own = base or repeats(BASE_MS), own or repeats(TWO_MS, **TWO)
    explained = made_explanations.rows(own[0]["run_id"], of_two, **changes)
    if of_base:
        explained += made_explanations.rows(base[0]["run_id"], of_base)
    return limit(own, base, explained, kind=kind)


def losses(found):
    return {part.name: part.loss.value for part in found.parts if part.resolved}


def test_parts_are_what_a_step_takes_longer_than_the_base_and_add_up_to_the_loss():
    found = probed()
    assert found.loss.value == pytest.approx(0.2, abs=1e-4)
    assert found.is_resolved and found.agrees
    assert losses(found) == pytest.approx({"exchange": 0.14, "input": 0.04, "sharing": 0.02})
    assert [part.name for part in found.resolved] == ["exchange", "input", "sharing"]
    assert found.residual.low < 0 < found.residual.high


def test_of_a_base_on_one_device_without_probes_only_exchange_and_sharing_are_known():
    found = probed(of_base=None)
    assert losses(found) == pytest.approx({"exchange": 0.14, "sharing": 0.02})
    assert {part.note for part in found.parts if not part.resolved} == {limits.NO_BASE_PROBES}
    assert found.residual.value == pytest.approx(0.04, abs=1e-4)


def test_strong_scaling_loses_what_fewer_items_take_more_than_their_share():
    # 64 items take 40 ms on one device; 32 on each of two take 22 + 3 ms, of ideally 20.
    own = repeats(25.0, batch=32, **TWO)
    of_two = {"exchange": 3.0, "waits": 1.0, "computation": 21.0}
    of_base = {"waits": 1.0, "computation": 39.0}
    base = repeats(BASE_MS, **TWO | {"devices": 1})
    found = probed(of_two, of_base, base, own, "strong", halves_ms={"computation": 0.2})
    losses = {part.name: part.loss.value for part in found.parts}
    assert losses == pytest.approx({"exchange": 0.12, "waits": 0.02, "computation": 0.06})


def test_the_interval_of_a_difference_comes_of_those_of_both_sides():
    found = probed(halves_ms={"input": 0.3})
    (part,) = (part for part in found.parts if part.name == "input")
    half = math.hypot(0.3, made_explanations.HALF * 4.0) / 50
    assert (part.loss.low, part.loss.high) == pytest.approx((0.04 - half, 0.04 + half))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"halves_ms": {"exchange": 8.0}}, "its interval includes zero"),
        ({"notes": {"exchange": "2 of 6 probes were disturbed"}}, "2 of 6 probes were disturbed"),
        ({"of_two": PARTS | {"exchange": None}}, "no probe completed"),
    ],
    ids=["noise", "doubt", "failed"],
)
def test_a_part_that_may_be_nothing_or_is_unreliable_is_not_resolved(changes, note):
    found = probed(**changes)
    assert "exchange" not in losses(found)
    assert note in {part.note for part in found.parts}


def test_a_doubt_about_the_base_is_one_about_the_difference():
    base, own = repeats(BASE_MS), repeats(TWO_MS, **TWO)
    explained = made_explanations.rows(own[0]["run_id"], PARTS)
    explained += made_explanations.rows(base[0]["run_id"], OF_BASE, notes={"input": "disturbed"})
    found = limit(own, base, explained)
    assert "input" not in losses(found)
    assert "of the base: disturbed" in {part.note for part in found.parts}


def test_a_series_without_an_interval_or_with_another_base_has_no_limit():
    assert limit(repeats(TWO_MS, **TWO)[:1], repeats(BASE_MS)[:1]) is None
    assert limit(repeats(TWO_MS, environment="other", **TWO)) is None
    assert limit(repeats(TWO_MS, framework_version="0", **TWO)) is None


def test_an_all_reduce_of_the_baselines_is_a_share_of_the_step_that_was_measured():
    found = limit(repeats(TWO_MS, **TWO), baselines=[baseline(TWO_RUN, 0.004)])
    assert found.parts == ()
    assert found.all_reduce.bus_bytes == 1_000_000
    loss = found.all_reduce.loss
    assert (loss.value, loss.low, loss.high) == pytest.approx((0.08, 0.072, 0.088), rel=1e-3)
    other = baseline(TWO_RUN, 0.004, framework_version="0")
    assert limit(repeats(TWO_MS, **TWO), baselines=[other]).all_reduce is None


def test_what_an_all_reduce_costs_more_than_in_the_base_is_known_if_both_were_measured():
    four = repeats(80.0, **TWO | {"devices": 4})
    both = [baseline(TWO_RUN, 0.004), baseline(four[0], 0.012)]
    found = limit(four, repeats(TWO_MS, **TWO), baselines=both).all_reduce
    # 12 ms less 4 ms, of a step of 80 ms.
    assert (found.time.value, found.loss.value) == pytest.approx((0.012, 0.1), rel=1e-3)
    found = limit(four, repeats(TWO_MS, **TWO), baselines=both[1:]).all_reduce
    assert found.time.value == pytest.approx(0.012) and found.loss is None


TIMES_MS = st.floats(-2, 30)
HALVES_MS = st.floats(0.01, 20)


@given(
    st.fixed_dictionaries(dict.fromkeys(PARTS, st.tuples(TIMES_MS, HALVES_MS))),
    st.floats(20, 60),
    st.floats(0.0005, 0.05),
)
def test_what_is_resolved_is_above_zero_and_within_the_loss_whatever_the_probes_say(
    drawn, step_ms, scatter
):
    drawn["computation"] = (abs(drawn["computation"][0]) + 5, drawn["computation"][1])
    found = probed(
        {name: value for name, (value, _) in drawn.items()},
        own=repeats(step_ms, scatter, **TWO),
        halves_ms={name: half for name, (_, half) in drawn.items()},
    )
    assert all(part.loss.low > 0 for part in found.resolved)
    assert found.agrees == (found.resolved_loss <= found.loss.high)
    assert found.residual.low <= found.residual.value <= found.residual.high
    if found.is_resolved and found.agrees and found.resolved:
        assert found.residual.value >= found.loss.value - found.loss.high - 1e-12
