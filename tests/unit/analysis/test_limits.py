"""What limits a series: losses by hand numbers, and bounds that hold whatever the probes say."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis import limits, scaling_series
from dlbench.report import sentences
from dlbench.tables import table_columns
from support.results import made_explanations
from support.results.made_explanations import TWO, baseline
from support.results.made_explanations import runs as repeats
from support.studies.made_studies import BLOCK, study

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


BLOCK_OF_TWO = BLOCK | {"steps": 20, "explain": True, "dataset": "digits"}
BLOCK_OF_TWO |= {"strategy": "mirrored", "devices_per_node": 2}
# Seconds of a step of each probe: 10 ms of input, 5 of copies, 8 of exchange, 2 of sharing, 1 of
# waits, 35.
STEP_S = {"whole": 0.061, "no_reading": 0.051, "no_input": 0.046, "no_exchange": 0.038}
STEP_S |= {"one_device": 0.036, "no_waits": 0.035}
JITTER_S = (-0.0001, 0.0, 0.0001)


def explained(step_s=STEP_S, repeats=3, block=BLOCK_OF_TWO, trainers=None, **changes):
    """(rows of the table of explanations by part, the study) of probes that take such times."""
    made = study(block | {"repeats": repeats}, trainers=trainers or {})
    runs = {run.id: run for run in made.runs}
    rows = []
    for own in made.explained.values():
        for kind, probe_id in own.items():
            run = runs[probe_id]
            seconds = step_s[kind] + JITTER_S[run.repeat - 1]
            row = {"run_id": probe_id, "status": "ok", "session": "s1"}
            row |= {"global_batch": run.global_batch}
            row |= {"images_per_second": run.global_batch / seconds}
            rows.append(row | changes.get(kind, {}))
    found = limits.explained_rows(made, rows)
    return {row["part"]: row for row in found}, found


def test_parts_are_what_steps_are_shorter_by_and_add_up_to_the_step():
    parts, rows = explained()
    assert (*parts, limits.REST) == limits.PARTS == tuple(table_columns.PARTS)
    times = {name: round(row["step_time_s"], 6) for name, row in parts.items()}
    assert times == {
        "input": 0.010, "copies": 0.005, "exchange": 0.008, "sharing": 0.002, "waits": 0.001,
        "computation": 0.035,
    }  # fmt: skip
    assert math.isclose(sum(row["share"] for row in rows), 1)
    assert {row["runs"] for row in rows} == {3}
    assert all(row["told_apart"] and row["note"] is None for row in rows)
    assert rows[0]["combination"] == "lenet5 digits batch 8, mirrored on 2 devices"


def test_what_another_program_cannot_leave_out_is_not_called_computation():
    theirs = {"command": ["true", "{items}"], "log": "auto"}
    block = BLOCK_OF_TWO | {"trainer": "theirs", "parameters": {"items": "real"}}
    block |= {"explain": {"input": {"items": "synthetic"}}}
    parts, rows = explained(block=block, trainers={"theirs": theirs})
    times = {name: round(row["step_time_s"], 6) for name, row in parts.items()}
    assert times == {"input": 0.010, "rest": 0.051}
    (found,) = sentences.of_steps(rows)
    assert found.subject.startswith("lenet5 digits")
    assert found.sentence == "16.4 % of a step is waiting for input."
    assert [row[:2] for row in found.rows][1] == ("the remaining step", "0.84")


def test_the_interval_of_a_part_is_that_of_a_difference_of_two_means():
    parts, _ = explained()
    # Two sides with the scatter of JITTER_S, four degrees of freedom.
    half = 2.776445 * math.sqrt(2 * statistics.variance(JITTER_S) / 3)
    row = parts["waits"]
    assert row["step_time_ci95_low"] == pytest.approx(0.001 - half, abs=1e-8)
    assert row["step_time_ci95_high"] == pytest.approx(0.001 + half, abs=1e-8)


def test_a_part_within_the_scatter_is_not_resolved():
    parts, rows = explained(STEP_S | {"one_device": 0.03503})
    assert not parts["waits"]["told_apart"]
    assert parts["waits"]["note"] == "its interval includes zero"
    (found,) = sentences.of_steps(rows)
    notes = {label: note for label, *_, note in found.rows}
    assert notes["waiting for each step's loss"] == "not resolved: its interval includes zero"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"status": "unstable"}, "3 of 6 probes were disturbed"),
        ({"session": "s2"}, "its probes were measured in several sessions"),
        ({"status": "failed", "images_per_second": None}, "no probe without input completed"),
    ],
    ids=["disturbed", "another session", "failed"],
)
def test_parts_of_probes_in_doubt_are_not_resolved(change, note):
    parts, rows = explained(no_input=change)
    assert {name for name, row in parts.items() if not row["told_apart"]} == {"copies", "exchange"}
    assert parts["copies"]["note"] == parts["exchange"]["note"] == note
    (found,) = sentences.of_steps(rows)
    assert "copies" not in found.sentence
    assert [row[-1] for row in found.rows].count(f"not resolved: {note}") == 2


def test_one_repeat_gives_parts_without_intervals():
    parts, rows = explained(repeats=1)
    assert parts["input"]["step_time_s"] == pytest.approx(0.010)
    assert {row["step_time_ci95_low"] for row in rows} == {None}
    assert {row["note"] for row in rows} == {"one run: no interval"}
    (found,) = sentences.of_steps(rows)
    assert found.evidence == "open" and found.rows[0][2] == ""
    assert found.sentence == "What a step is made of cannot be resolved."


def test_the_largest_part_beside_computation_is_named_and_all_parts_have_their_shares():
    parts, rows = explained()
    (found,) = sentences.of_steps(rows)
    assert found.subject == "lenet5 digits batch 8, mirrored on 2 devices"
    assert found.sentence == "16.4 % of a step is waiting for input."
    assert (found.evidence, found.share_of) == ("shown", "share of a step")
    shares = {label: (share, milliseconds) for label, share, _, milliseconds, _ in found.rows}
    assert shares["computation"] == ("0.57", "35")
    assert shares["exposed exchange of gradients"] == ("0.13", "8")
    row = parts["computation"]
    ends = [f"{row[f'step_time_ci95_{end}'] / 0.061:.2f}" for end in ("low", "high")]
    assert found.rows[-1][2] == " to ".join(ends)
    fewer = [row | {"runs": 2} for row in rows]
    assert sentences.of_steps(fewer)[0].evidence == "indicated"


def read_and_trained(rows, **changes):
    """Rows of the table of runs: the condition of these rows, and the same in mode input."""
    own = dict.fromkeys(table_columns.RUNS.names) | {"model": "lenet5", "mode": "train"}
    own |= {"run_id": rows[0]["run_id"], "images_per_second": 1000.0}
    alone = own | {"mode": "input", "run_id": "alone", "steps": 500, "images_per_second": 1200.0}
    return [own, own | {"run_id": "second", "images_per_second": 1100.0}, alone | changes]


def test_it_is_said_what_reading_alone_yields_where_that_was_measured():
    _, rows = explained()
    (found,) = sentences.of_steps(rows, read_and_trained(rows))
    note = "1200 items/s; with the model 1050 items/s"
    assert found.rows[-1] == ("reading alone", "", "", "", note)


@pytest.mark.parametrize(
    "changes",
    [{"mode": "forward"}, {"prefetch": 4}, {"dataset": "other"}, {"images_per_second": None}],
)
def test_nothing_is_said_of_reading_that_is_another_or_failed(changes):
    _, rows = explained()
    (found,) = sentences.of_steps(rows, read_and_trained(rows, **changes))
    assert len(found.rows) == len(rows)


def test_where_only_computation_is_resolved_it_is_said_how_much_that_takes():
    """That something takes no time is not shown; how much computation takes is."""
    _, rows = explained(dict.fromkeys(STEP_S, 0.04))
    (found,) = sentences.of_steps(rows)
    assert found.sentence == "100 % of a step is computation, and no other part is resolved."
    assert found.evidence == "shown"


def test_without_probes_that_ended_well_nothing_is_said():
    failed = {"status": "failed", "images_per_second": None}
    _, rows = explained(**dict.fromkeys(STEP_S, failed))
    assert {row.get("step_time_s") for row in rows} == {None}
    names = table_columns.EXPLANATIONS.names
    assert sentences.of_steps([{name: row.get(name) for name in names} for row in rows]) == []
