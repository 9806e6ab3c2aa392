"""accept_nodes: lists of nodes that pass and fail, and the groups of the next round."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from dlbench import Error
from dlbench.common import host_lists
from dlbench.comparison import accept_nodes, bounds, node_results
from dlbench.tables import parquet_files
from dlbench.tables.baseline_columns import BASELINES
from support.programs.in_process import dlbench

ALONE = {
    "match": {"measure": "matrix_product"},
    "value": {"value": 100.0, "lower": -0.05, "upper": None, "unit": "TFLOP/s"},
}
TOGETHER = {
    "match": {"measure": "all_reduce", "nodes": "several"},
    "value": {"value": 40.0, "lower": -0.1, "upper": None, "unit": "GB/s"},
}


def product(node, value=100.0):
    return {"measure": "matrix_product", "unit": "TFLOP/s", "nodes": 1, "host": node} | {
        "node": node,
        "value": value,
    }


def exchange(group, value=40.0):
    names = host_lists.expand_hosts(group)
    row = {"measure": "all_reduce", "unit": "GB/s", "nodes": len(names), "size_bytes": 1024}
    return row | {"node": group, "host": names[0], "value": value}


@pytest.fixture
def wanted(tmp_path):
    path = tmp_path / "bounds.yaml"
    path.write_text(yaml.safe_dump({"references": [ALONE, TOGETHER]}))
    return bounds.read(path, node_results.bounded_by)


def accepted(wanted, rows, expected=()):
    return accept_nodes.accept(node_results.of_baselines(rows), wanted, expected)


def test_nodes_that_pass_alone_are_measured_in_pairs_next(wanted):
    rows = [product(f"n{n}", 80.0 if n == 3 else 100.0) for n in range(1, 6)]
    found = accepted(wanted, rows)
    assert (found.good, found.bad) == (("n1", "n2", "n4", "n5"), ("n3",))
    assert found.step.groups == (("n1", "n2"), ("n4", "n5"))
    assert not found.all_passed


def test_a_node_whose_baseline_failed_fails_whatever_is_not_known_of_it(wanted):
    reason = "not measured (exit code 1): NCCL WARN Cuda failure"
    sized = dataclasses.replace(wanted[0], match={"measure": "memory_copy", "size_bytes": 64})
    failed = {"measure": "memory_copy", "nodes": 1, "node": "n2", "unknown": reason}
    copied = product("n1") | {"measure": "memory_copy", "unit": "TFLOP/s", "size_bytes": 64}
    found = accepted([sized], [copied, failed], ("n1", "n2"))
    assert (found.good, found.bad, found.unknown) == (("n1",), ("n2",), ())
    (judged,) = [one for one in found.judged if one.nodes == ("n2",)]
    assert judged.failures == (f"memory_copy: expected 1 result, found 1 failed; {reason}",)
    # What the device cannot do is no failure, and of nothing measured no bound is wrong.
    lacking = failed | {"unknown": "nothing is copied to it", "size_bytes": 64}
    assert accepted([sized], [copied, lacking], ("n1", "n2")).unknown == ("n2",)
    assert accepted([sized], [failed], ("n2",)).bad == ("n2",)


def test_then_all_of_them_and_then_nothing(wanted):
    rows = [product(f"n{n}") for n in range(1, 5)]
    assert accepted(wanted, rows).all_passed
    rows += [exchange("n[1-2]"), exchange("n[3-4]")]
    found = accepted(wanted, rows)
    assert found.step.groups == (("n1", "n2", "n3", "n4"),) and found.all_passed
    found = accepted(wanted, [*rows, exchange("n[1-4]")])
    assert (found.step.groups, found.all_passed) == ((), True)


def test_a_pair_that_fails_is_bisected_and_the_bad_node_leaves_the_list(wanted):
    rows = [product(f"n{n}") for n in range(1, 7)]
    rows += [exchange("n[1-2]"), exchange("n[3-4]", 9.0), exchange("n[5-6]")]
    found = accepted(wanted, rows)
    assert found.unknown == ("n3", "n4") and found.bad == ()
    assert found.step.groups == (("n1", "n3"), ("n2", "n4"))
    found = accepted(wanted, [*rows, exchange("n[1,3]"), exchange("n[2,4]", 9.0)])
    assert (found.bad, found.good) == (("n4",), ("n1", "n2", "n3", "n5", "n6"))
    assert found.step.groups == (("n1", "n2", "n3", "n5", "n6"),)


def test_all_together_that_fails_is_halved_to_the_smallest_that_does(wanted):
    rows = [product(f"n{n}") for n in range(1, 5)] + [exchange("n[1-2]"), exchange("n[3-4]")]
    found = accepted(wanted, [*rows, exchange("n[1-4]", 9.0)])
    assert found.step.together == (("n1", "n2", "n3", "n4"),) and not found.all_passed
    text = str(accept_nodes.page(found, Path("results")))
    assert "n[1-4] fails together, while each of its nodes passes with others" in text


def test_a_node_that_is_expected_and_was_not_measured_is_not_known(wanted):
    found = accepted(wanted, [product("n1"), product("n2")], ["n1", "n2", "n3.cluster.org"])
    assert (found.good, found.unknown, found.all_passed) == (("n1", "n2"), ("n3",), False)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """`dlbench accept-nodes` in a folder with bounds."""
    monkeypatch.chdir(tmp_path)
    Path("b.yaml").write_text(yaml.safe_dump({"references": [ALONE, TOGETHER]}))
    return lambda *arguments: dlbench("accept-nodes", "--bounds", "b.yaml", *arguments)


def test_the_program_writes_both_lists_and_prints_the_next_groups(start, tmp_path):
    rows = [product(f"n{n}", 80.0 if n == 3 else 100.0) for n in range(1, 6)]
    parquet_files.write(tmp_path / "results/tables/baselines.parquet", rows, BASELINES)
    finished = start("--nodes", "n[1-5]")
    assert finished.returncode == 1, finished.stderr
    assert (tmp_path / "results/nodes.pass").read_text() == "n[1-2,4-5]\n"
    assert (tmp_path / "results/nodes.fail").read_text() == "n3\n"
    assert 'extra: "--exclude=n3"' in finished.stdout
    assert finished.stdout.endswith('\nnodes: 2\nnode: ["n[1-2]", "n[4-5]"]\n')
    assert "n3: matrix_product: expected at least 95 TFLOP/s, found 80" in " ".join(
        finished.stdout.split()
    )


def test_programs_get_nodes_ranking_and_next_groups_as_json(start, tmp_path):
    rows = [product(f"n{n}", 80.0 if n == 3 else 100.0) for n in range(1, 6)]
    parquet_files.write(tmp_path / "results/tables/baselines.parquet", rows, BASELINES)
    finished = start("--nodes", "n[1-6]", "--json")
    assert finished.returncode == 1, finished.stderr
    said = json.loads(finished.stdout)
    assert (said["passed"], said["failed"]) == (["n1", "n2", "n4", "n5"], ["n3"])
    assert (said["unknown"], said["next"]) == (["n6"], [["n1", "n2"], ["n4", "n5"]])
    (slow,) = (each for each in said["ranking"] if each["nodes"] == ["n3"])
    assert (slow["passed"], round(slow["ratio"], 9)) == (False, 0.8)
    assert (tmp_path / "results/nodes.fail").read_text() == "n3\n"


def test_the_program_says_that_all_passed_and_what_it_cannot_read(start, tmp_path):
    finished = start()
    assert finished.returncode == 2 and "expected runs or baselines of named" in finished.stderr
    rows = [product("n1"), product("n2")]
    parquet_files.write(tmp_path / "results/tables/baselines.parquet", rows, BASELINES)
    assert start().returncode == 0
    assert (tmp_path / "results/nodes.fail").read_text() == "\n"


def test_results_without_names_of_nodes_are_none(tmp_path):
    with pytest.raises(Error, match="expected runs or baselines of named nodes"):
        accept_nodes.read(tmp_path)
