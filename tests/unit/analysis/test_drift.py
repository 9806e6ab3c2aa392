"""drift: what is known of the machine between two sessions, and ratios across them."""

import math
from datetime import datetime, timezone
from types import SimpleNamespace

import numpy as np
import pytest

from dlbench.analysis import base_flags, drift, measures
from dlbench.analysis.drift import Drift
from dlbench.analysis.estimates import Difference
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.metrics import Metric
from support.comparisons import simulated_drift
from support.comparisons.simulated_drift import MARGIN, SHARED, drawn

STUDY = SimpleNamespace(name="made", equivalence_margin=MARGIN)
STUDIES = 20_000


def runs(model, session, logs, devices=1, **changes):
    """A row of the runs table for each logarithm of a throughput."""
    date = {"A": 1, "B": 2, "C": 3}.get(session)
    began = datetime(2026, 11, date, tzinfo=timezone.utc) if date else None
    row = {"model": model, "session": session, "status": "ok", "nodes": 1, "site": "here"}
    row |= {"devices_per_node": devices, "device_kind": "cpu", "started_at": began}
    return [row | {"images_per_second": math.exp(log)} | changes for log in logs]


def rows_of(groups, shared):
    """(condition's rows, base's rows, sentinels) of a study of simulated_drift."""
    new, base, *both = groups
    condition, bases = runs("new", "B", new), runs("base", "A", base)
    if not SHARED[shared]:
        return condition, bases, runs("base", "B", both[1])
    pairs = list(zip(both[::2], both[1::2], strict=True))
    others = [r for i, (early, _) in enumerate(pairs) for r in runs(f"other{i}", "A", early)]
    return (
        condition,
        bases + others,
        [row for i, (_, late) in enumerate(pairs) for row in runs(f"other{i}", "B", late)],
    )


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize(("repeats", "scatter", "share"), [(3, 0.005, 0.01), (10, 0.02, 0.03)])
def test_ratios_across_sessions_cover_the_truth_and_few_verdicts_are_false(
    shared, repeats, scatter, share
):
    chance = np.random.default_rng(repeats)
    for truth in (0.0, math.log1p(MARGIN)):
        for drifted in (0.0, share):
            logs = drawn(chance, STUDIES, shared, repeats, scatter, drifted, truth)
            found = simulated_drift.outcome(logs, shared, truth)
            assert 0.92 <= found["covered"] <= 0.97
            assert found["false"] <= 0.06
            assert drifted < MARGIN or found["allowed"] <= 0.06


@pytest.mark.parametrize("shared", SHARED)
def test_the_formulas_that_are_simulated_are_those_of_the_tables(shared):
    logs = drawn(np.random.default_rng(7), 30, shared, 4, 0.007, 0.002, 0.02)
    ours = [simulated_drift.combined(logs, k) for k in simulated_drift.combinations(shared)]
    allowed = []
    for index in range(logs.shape[1]):
        a, early, sentinels = rows_of(logs[:, index], shared)
        b = [row for row in early if row["model"] == "base"]
        found = Drift([*a, *early], sentinels, MARGIN).compare(a, b)
        for theirs, expected in zip((found.difference, found.drift), ours, strict=True):
            assert (theirs.mean, theirs.error, theirs.freedom) == pytest.approx(
                tuple(part[index] for part in expected)
            )
        allowed.append(found.allowed)
    assert {True, False} == set(allowed)


def test_a_machine_that_slowed_between_sessions_is_no_difference_of_conditions():
    """As in the issue: the same program beside a busy neighbour looks slower by half."""
    early, late = np.log([100, 100.5, 101]), np.log([50, 50.2, 50.4])
    a, b = runs("new", "B", late), runs("base", "A", early)
    plain = Drift([*a, *b]).compare(a, b)
    assert plain.apart and not plain.allowed and plain.flags == ("measured apart",)
    assert plain.difference.ratio.value == pytest.approx(0.5, abs=0.01)
    known = Drift([*a, *b], runs("base", "B", late)).compare(a, b)
    assert known.flags == ("measured apart",)
    assert known.difference.ratio.value == pytest.approx(1)
    assert known.columns["drift"] == pytest.approx(0.5, abs=0.01)
    assert known.label.startswith("drift -50.")


def test_a_speedup_is_corrected_by_the_drift_of_its_bases_devices():
    one = runs("net", "A", np.log([100, 100.1, 100.2]))
    again = runs("net", "B", np.log([90, 90.1, 90.2]))
    four = runs("net", "B", np.log([360, 360.1, 360.2]), devices=4)
    early = runs("other", "A", np.log([50, 50.1, 50.2]), devices=4)
    late = runs("other", "B", np.log([25, 25.1, 25.2]), devices=4)
    both = Drift([*one, *four, *early], [*again, *late]).compare(four, one)
    assert both.difference.ratio.value == pytest.approx(4, rel=0.001)
    # Where nothing is known of the base's devices, that of the point's own is taken.
    alone = Drift([*one, *four, *early], late).compare(four, one)
    assert alone.difference.ratio.value == pytest.approx(7.2, rel=0.01)


@pytest.mark.parametrize("drifted", [0.0, 0.001, -0.05])
def test_sentinels_that_count_as_repeats_are_the_session_that_both_sides_share(drifted):
    base = runs("base", "A", [0.0, 0.001, -0.001], run_id="b")
    late = [drifted, drifted + 0.001, drifted - 0.001]
    again = runs("base", "B", late, run_id="base-s1-r1-0123456789")
    new = runs("new", "B", [0.1 + log for log in late], run_id="n")
    sides = Drift([*base, *again, *new], again).compare(new, [*base, *again])
    # The base's own drift, all of it, is half in the plain ratio and not in the corrected one.
    assert sides.difference.mean == pytest.approx(0.1, abs=1e-12)
    assert sides.drift.mean == pytest.approx(drifted / 2, abs=1e-12)
    assert (sides.apart, sides.flags, sides.difference.runs) == (False, (), (3, 6))
    # A condition that was repeated as often shares its sessions in like shares: nothing to correct.
    both = [*runs("new", "A", [0.1, 0.101, 0.099]), *new]
    plain = Drift([*base, *again, *both], again).compare(both, [*base, *again])
    assert (plain.drift, plain.apart) == (None, False)
    assert plain.difference.mean == pytest.approx(0.1, abs=1e-12)


def test_ratios_to_a_base_with_sentinels_among_its_repeats_cover_the_truth():
    chance = np.random.default_rng(1)
    covered = {"corrected": 0, "plain": 0}
    for _ in range(300):
        early, late, new = (list(m + chance.normal(0, 0.005, 5)) for m in (0.0, 0.03, 0.05))
        base = runs("base", "A", early) + runs("base", "B", late, run_id="b-s1-r1-0123456789")
        sides = runs("new", "B", new), base
        found = Drift([*sides[0], *base]).compare(*sides).difference
        plain = Difference.of(*([row["images_per_second"] for row in side] for side in sides))
        for name, one in (("corrected", found), ("plain", plain)):
            low, high = one.interval(0.95)
            covered[name] += low <= 0.02 <= high
    assert covered["corrected"] > 275 and covered["plain"] < 150


def test_a_sentinel_alone_shares_its_session_though_the_drift_is_not_known():
    base, again = runs("base", "A", [0.0, 0.001, 0.002]), runs("base", "B", [0.01])
    new = runs("new", "B", [0.1, 0.101, 0.099])
    sides = Drift([*base, *again, *new]).compare(new, [*base, *again])
    assert (sides.drift, sides.apart, sides.flags) == (None, False, ())


def test_sessions_are_joined_by_way_of_a_third_one():
    a, b = runs("new", "C", [0, 0.001, 0.002]), runs("base", "A", [0.1, 0.101, 0.102])
    first, second = runs("x", "A", [0.01, 0, 0.02]), runs("x", "B", [0.02, 0, 0.01])
    third, last = runs("y", "B", [1.01, 1, 1.02]), runs("y", "C", [1.02, 1.01, 1])
    found = Drift([*a, *b, *first, *third], [*second, *last]).compare(a, b)
    assert found.drift.mean == pytest.approx(0, abs=1e-9)
    assert found.drift.error == pytest.approx(0.01 * math.sqrt(4 / 3))
    cut = Drift([*a, *b, *first, *third], [*second, *last[:2]]).compare(a, b)
    assert cut.drift is None and not cut.allowed


def test_runs_of_an_unknown_session_are_of_one_of_their_own_study_and_site():
    old = runs("a", None, [0, 0.1]), runs("b", float("nan"), [0, 0.1])
    assert not Drift([*old[0], *old[1]]).compare(*old).apart
    elsewhere = runs("b", None, [0, 0.1], site="there")
    assert Drift([*old[0], *elsewhere]).compare(old[0], elsewhere).flags == ("measured apart",)


def test_one_run_of_a_side_has_a_ratio_and_no_interval():
    a, b = runs("new", "B", [0.1]), runs("base", "A", [0, 0.001, 0.002])
    found = Drift([*a, *b], runs("base", "B", [0, 0.001, 0.002])).compare(a, b)
    assert found.difference.ratio.value == pytest.approx(math.exp(0.099))
    assert math.isnan(found.difference.ratio.low) and found.allowed
    nothing = Drift([*a, *b[:1]], runs("base", "B", [0])).compare(a, b[:1])
    assert not nothing.allowed


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        ([0, 0.001, 0.002], "none"),
        ([-0.03, -0.031, -0.032], "slower"),
        ([0.05] * 3, "faster"),
        ([-0.03, 0.03, 0], "undecided"),
        ([0], "too few runs"),
    ],
)
def test_the_table_has_the_drift_of_each_device_shape_and_pair_of_sessions(tmp_path, late, verdict):
    early = runs("base", "A", [0, 0.001, 0.002])
    other = runs("new", "B", [0, 0.001, 0.002], devices=2)
    (row,) = drift.rows(STUDY, [*early, *other], runs("base", "B", late))
    parquet_files.write(tmp_path / "drift.parquet", [row], table_columns.DRIFT)
    assert (row["earlier_session"], row["later_session"], row["verdict"]) == ("A", "B", verdict)
    assert (row["earlier_runs"], row["later_runs"], row["conditions"]) == (3, len(late), 1)
    assert (row["nodes"], row["devices_per_node"], row["margin"]) == (1, 1, MARGIN)
    assert row["ratio"] == pytest.approx(math.exp(np.mean(late) - 0.001))
    assert row["ratio_ci95_low"] <= row["ratio"] <= row["ratio_ci95_high"]
    swapped = drift.rows(STUDY, runs("base", "B", late), early)
    assert swapped[0]["ratio"] == pytest.approx(row["ratio"])
    # Sessions are in the order of their dates, not of their names.
    (named,) = drift.rows(STUDY, [run | {"session": "Z"} for run in early], runs("base", "B", late))
    assert (named["earlier_session"], named["later_session"]) == ("Z", "B")
    assert named["earlier_started_at"] < named["later_started_at"]


def test_published_failed_and_disturbed_runs_tell_nothing_of_drift():
    early, busy = runs("base", "A", [0, 0.01, 0.02]), {"disturbed": "others used 0.98 of 2 cores"}
    for changed in ({"status": "failed"}, {"timing_source": "published"}, busy):
        again = runs("base", "B", [0, 0.01, 0.02], **changed)
        sides = Drift(early, again).compare(runs("new", "B", [0.1, 0.11, 0.12]), early)
        assert (sides.drift, sides.flags) == (None, (base_flags.APART,))
        assert drift.rows(STUDY, early, again) == []


@pytest.mark.parametrize(("better", "verdict"), [("lower", "worse"), ("higher", "better")])
def test_a_metric_drifts_as_throughput_does_and_in_its_direction(better, verdict):
    def of(session, logs):
        return [r | {"metrics.x": r["images_per_second"]} for r in runs("a", session, logs)]

    logs = [0.0, 0.001, -0.001]
    early, late = of("A", logs), of("B", [0.1 + log for log in logs])
    rate = drift.rows(STUDY, early + late)
    without = [{k: v for k, v in r.items() if k != "images_per_second"} for r in early + late]
    metric = Metric.named("x", "us", better)
    (found,) = drift.rows(STUDY, without, named=measures.Named({metric.name: metric}))
    assert found["ratio"] == pytest.approx(math.exp(0.1)) == pytest.approx(rate[0]["ratio"])
    assert (rate[0]["verdict"], found["verdict"]) == ("faster", verdict)
    # Nothing remains of a difference that is all drift.
    sides = Drift(without, of("B", [0.1 + log for log in logs]), MARGIN, metric)
    assert drift.rows(STUDY, without) == [] and sides.shapes
