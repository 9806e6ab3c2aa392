"""nodes: a slow one is named with its evidence, fair ones are not, and intervals cover."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dlbench.analysis import nodes
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import parquet_files, table_columns

STUDY = SimpleNamespace(name="made", equivalence_margin=0.01)
RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=50)
NODES = [f"n{number:02d}" for number in range(8)]


def row(rate, host, batch=8, **changes):
    run = dataclasses.replace(RUN, batch_per_device=batch)
    return {
        **{name: getattr(run, name) for name in FIELDS},
        "status": "ok", "images_per_second": rate, "timing_source": "dlbench", "host": host,
        "site": "here", "device_kind": "cpu", "device_model": "Xeon", "session": "first",
    } | changes  # fmt: skip


def study(chance, effects=None, repeats=4, scatter=0.01, batches=(8, 16, 32), hosts=NODES):
    """Runs of some conditions on all nodes, each of which is faster by its effect."""
    effects = effects or {}

    def rate(host, batch):
        return 1000 / batch * math.exp(effects.get(host, 0.0) + chance.normal(0, scatter))

    return [
        row(rate(host, batch), host, batch)
        for batch in batches
        for host in hosts
        for _ in range(repeats)
    ]


def verdicts(rows):
    return {one["node"]: one["verdict"] for one in nodes.rows(STUDY, rows)}


def named(rows):
    return {node for node, verdict in verdicts(rows).items() if verdict == nodes.SLOWER}


def test_slow_nodes_are_named_the_slowest_first_in_a_table_that_keeps_its_numbers(tmp_path):
    chance = np.random.default_rng(1)
    found = nodes.rows(STUDY, study(chance, {"n03": -0.06, "n06": -0.04}))
    assert [one["node"] for one in found if one["verdict"] == nodes.SLOWER] == ["n03", "n06"]
    parquet_files.write(tmp_path / "nodes.parquet", found, table_columns.NODES)
    assert parquet_files.read(tmp_path / "nodes.parquet", table_columns.NODES).to_pylist() == found
    slow = found[0]
    assert (slow["node"], slow["runs"]) == ("n03", 12)
    assert slow["ratio"] == pytest.approx(math.exp(-0.06), abs=0.01)
    assert slow["ratio_ci95_low"] < slow["ratio"] < slow["ratio_ci95_high"] < 0.99
    assert slow["p_slower"] < 0.05 and slow["p_differ"] < 1e-6
    assert slow["scatter_ci95_low"] < slow["scatter"] < slow["scatter_ci95_high"]
    assert slow["scatter"] == pytest.approx(0.01, rel=0.3)


@pytest.mark.ci
def test_of_a_thousand_fair_studies_at_most_one_in_twenty_names_a_node():
    chance = np.random.default_rng(2)
    # Of a scatter beside which the margin is small: else none is named at all.
    wrong = sum(
        bool(named(study(chance, repeats=3, scatter=0.05, batches=(8,)))) for _ in range(1000)
    )
    assert wrong <= 50


@pytest.mark.ci
def test_a_node_that_is_slower_by_the_margin_and_no_more_is_named_in_at_most_one_of_twenty():
    chance = np.random.default_rng(3)
    at_margin, hosts = {"n00": -math.log1p(STUDY.equivalence_margin)}, NODES[:2]
    wrong = sum(bool(named(study(chance, at_margin, hosts=hosts))) for _ in range(300))
    assert wrong <= 26  # 15 in the mean at most, give or take 3.8


@pytest.mark.parametrize("hosts", [NODES, NODES[:3]], ids=len)
def test_one_fast_node_does_not_make_the_others_look_slow(hosts):
    chance = np.random.default_rng(4)
    found = nodes.rows(STUDY, study(chance, {"n01": 0.3}, hosts=hosts))
    assert {one["verdict"] for one in found} == {nodes.NOT_SHOWN}
    assert found[-1]["node"] == "n01"


def test_a_node_three_per_cent_slower_is_named_in_most_studies_of_eight_nodes_and_five_runs():
    chance, slow = np.random.default_rng(15), {"n02": math.log(0.97)}
    found = [named(study(chance, slow, repeats=5, batches=(8,))) for _ in range(60)]
    assert found.count({"n02"}) >= 46  # 54 in the mean, give or take 2.3


def test_a_node_is_compared_within_conditions_and_sessions_only():
    chance = np.random.default_rng(6)
    rows = study(chance)
    # The whole second session is slow, and only one node has runs of large batches, which differ.
    rows += [one | {"session": "second"} for one in study(chance, dict.fromkeys(NODES, -0.3))]
    rows += [row(5.0, "n05", 64) for _ in range(4)]
    assert not named(rows)


def test_nodes_of_other_devices_are_compared_among_themselves():
    chance = np.random.default_rng(7)
    old = [
        one | {"device_model": "Old"}
        for one in study(chance, dict.fromkeys(NODES[:4], -0.5), hosts=NODES[:4])
    ]
    new = study(chance, hosts=NODES[4:])
    found = nodes.rows(STUDY, [*old, *new])
    assert [one["device_model"] for one in found] == ["Old"] * 4 + ["Xeon"] * 4
    assert {one["verdict"] for one in found} == {nodes.NOT_SHOWN}


def test_runs_that_were_sent_to_nodes_go_by_these_names_and_share_their_conditions():
    chance = np.random.default_rng(16)
    sent = [one | {"node": one["host"], "host": "login"} for one in study(chance, {"n03": -0.05})]
    free = [one | {"host": f"{one['host']}.cluster.example"} for one in study(chance)]
    assert named(sent) == {"n03"} and set(verdicts([*sent, *free])) == set(NODES)
    assert nodes.rows(STUDY, [*sent, *free])[0]["runs"] == 24


def test_where_no_two_nodes_can_be_compared_there_is_no_row():
    chance = np.random.default_rng(8)
    rows = [row(100 * math.exp(chance.normal(0, 0.01)), "n00", 8) for _ in range(5)]
    rows += [row(10 * math.exp(chance.normal(0, 0.01)), "n01", 16) for _ in range(5)]
    assert nodes.rows(STUDY, rows) == []  # no condition in common
    assert nodes.rows(STUDY, rows[:5]) == [] and nodes.rows(STUDY, []) == []  # one node, none
    assert nodes.rows(STUDY, [row(1.0, host) for host in NODES]) == []  # no two runs of any


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed"},
        {"nodes": 2},
        {"host": None},
        {"timing_source": "published"},
        {"disturbed": "others used 3 of 8 cores"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_runs_that_tell_nothing_of_their_node_are_left_out(changes):
    rows = study(np.random.default_rng(9), repeats=2, batches=(8,))
    slow = [row(1.0, "n01") | changes for _ in range(9)]
    assert nodes.rows(STUDY, [*rows, *slow]) == nodes.rows(STUDY, rows)


def test_a_node_on_which_something_else_always_runs_is_named_and_that_is_said():
    rows = study(np.random.default_rng(17), {"n04": -0.4})
    disturbed_by = {"n04": "others used 1 of 2 cores"}
    busy = [one | {"disturbed": disturbed_by.get(one["host"])} for one in rows]
    found = nodes.rows(STUDY, busy)
    assert [one["node"] for one in found if one["verdict"] == nodes.SLOWER] == ["n04"]
    assert [one["node"] for one in found if one["disturbed"]] == ["n04"]


def test_a_node_of_two_runs_has_too_few_to_be_named():
    rows = study(np.random.default_rng(10), hosts=NODES[:7])
    assert verdicts([*rows, row(1.0, "n07"), row(1.0, "n07")])["n07"] == "too few runs"


@pytest.mark.parametrize("node_sd", [0.0, 0.02])
def test_the_intervals_of_variance_components_cover_them_where_data_are_unbalanced(node_sd):
    chance, covered, found = np.random.default_rng(11), np.zeros(2), []
    for _ in range(120):
        effects = dict(zip(NODES, chance.normal(0, node_sd, len(NODES)).tolist(), strict=True))
        rows = [one for one in study(chance, effects, batches=(8, 16)) if chance.random() < 0.7]
        one = nodes.effects(rows)
        true = ((one.node_sd, node_sd), (one.scatter, 0.01))
        covered += [estimate.low <= value <= estimate.high for estimate, value in true]
        found.append(one.node_sd.value**2)
    assert all(covered >= 0.88 * 120), covered  # 0.95 of them, give or take 0.02
    if node_sd:
        assert math.sqrt(np.mean(found)) == pytest.approx(node_sd, rel=0.15)


def test_balanced_nodes_have_the_components_of_an_analysis_of_variance():
    logs = np.random.default_rng(12).normal(0, 0.02, (len(NODES), 6))
    logs += np.random.default_rng(13).normal(0, 0.03, (len(NODES), 1))
    made = zip(NODES, logs, strict=True)
    one = nodes.effects([row(math.exp(value), host) for host, own in made for value in own])
    within = np.mean(logs.var(axis=1, ddof=1))
    between = logs.mean(axis=1).var(ddof=1)
    assert one.scatter.value == pytest.approx(math.sqrt(within))
    assert one.node_sd.value == pytest.approx(math.sqrt(between - within / 6), rel=1e-6)
    others = np.sort(np.delete(logs, 0, axis=0).mean(axis=1))[2:5]  # the middle half of seven
    assert one.differences[0].mean == pytest.approx(logs[0].mean() - others.mean())


def test_nodes_whose_repeats_are_equal_to_the_last_digit_have_finite_numbers():
    rows = [row(rate, host) for rate, host in enumerate(NODES, 100) for _ in range(3)]
    one = nodes.effects(rows)
    expected = np.log(np.arange(100, 108)).std(ddof=1)
    assert one.node_sd.value == pytest.approx(expected, rel=1e-3)
    assert all(math.isfinite(difference.ratio.low) for difference in one.differences)
