"""Slow nodes are named in the report, with what shows it; fair nodes are not."""

from types import SimpleNamespace

import numpy as np

from dlbench.analysis import nodes
from dlbench.report import node_findings
from support.results.made_tables import run


def rows(*slow, site="here"):
    """Rows of the table of nodes, of 12 nodes with 6 runs each, the slow ones 5 % slower."""
    chance = np.random.default_rng(1)
    made = [
        run(
            repeat=repeat,
            host=f"n{number}",
            site=site,
            images_per_second=(95.0 if number in slow else 100.0) * np.exp(chance.normal(0, 0.005)),
        )
        for number in range(12)
        for repeat in range(1, 7)
    ]
    return nodes.rows(SimpleNamespace(name="made", equivalence_margin=0.01), made)


def test_a_slow_node_is_named_with_its_evidence():
    (found,) = node_findings.findings(rows(2))
    assert found.headline == "node n2 is slower than the others"
    assert found.number.startswith("\u2212") and " to " in found.interval
    assert found.text.startswith(f"n2: {found.number} ({found.interval}) in 6 runs, p = ")
    assert "middle half of the 11 others" in found.text and "margin of 1 %" in found.text
    assert (found.evidence, found.kind, found.tables) == ("shown", "bad", ("nodes",))
    assert node_findings.findings(rows()) == node_findings.findings([]) == []


def test_it_is_said_where_others_disturbed_all_runs_of_a_slow_node():
    (found,) = node_findings.findings([row | {"disturbed": True} for row in rows(2)])
    assert "in 6 runs, all disturbed, p = " in found.text
    assert found.evidence == "indicated"
    both = [row | {"disturbed": row["node"] == "n2"} for row in rows(2, 5)]
    (found,) = node_findings.findings(both)
    assert found.evidence == "shown" and found.text.startswith("n5: ")


def test_several_slow_nodes_are_one_finding_and_of_many_the_first_are_named():
    (found,) = node_findings.findings(rows(2, 5))
    assert found.headline.startswith("2 of 12 nodes are slower than the others: n")
    many = [row | {"verdict": nodes.SLOWER} for row in rows(2)]
    (found,) = node_findings.findings(many)
    assert found.headline.endswith(" and 7 more") and found.text.count("p = ") == 5


def test_nodes_of_several_sites_are_named_with_their_site():
    found = node_findings.findings([*rows(2), *rows(3, site="there")])
    assert [one.headline.partition(":")[0] for one in found] == ["here", "there"]
