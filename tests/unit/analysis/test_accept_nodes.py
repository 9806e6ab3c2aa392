"""accept_nodes: lists of nodes that pass and fail, and the groups of the next round."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from dlbench.analysis import accept_nodes, bounds, node_results
from dlbench.common import host_lists
from dlbench.tables import parquet_files
from dlbench.tables.table_columns import BASELINES
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
    row = {"measure": "matrix_product", "unit": "TFLOP/s", "nodes": 1, "host": node}
    return row | {"node": node, "value": value}


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
    found = accepted(wanted, rows, ["n1", "n3.cluster.org", "n6"])
    assert (found.good, found.bad, found.unknown) == (("n1", "n2", "n4", "n5"), ("n3",), ("n6",))
    assert found.groups.next == (("n1", "n2"), ("n4", "n5"))
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
    assert found.groups.next == (("n1", "n2", "n3", "n4"),) and found.all_passed
    found = accepted(wanted, [*rows, exchange("n[1-4]")])
    assert (found.groups.next, found.all_passed) == ((), True)


def test_nodes_of_a_pair_that_fails_are_measured_with_others_and_the_bad_one_leaves_the_list(
    wanted,
):
    rows = [product(f"n{n}") for n in range(1, 7)]
    rows += [exchange("n[1-2]"), exchange("n[3-4]", 9.0), exchange("n[5-6]")]
    found = accepted(wanted, rows)
    assert found.unknown == ("n3", "n4") and found.bad == ()
    assert found.groups.next == (("n1", "n3"), ("n2", "n4"))
    found = accepted(wanted, [*rows, exchange("n[1,3]"), exchange("n[2,4]", 9.0)])
    assert (found.bad, found.good) == (("n4",), ("n1", "n2", "n3", "n5", "n6"))
    assert found.groups.next == (("n1", "n2", "n3", "n5", "n6"),)


def test_of_an_odd_number_one_is_in_two_pairs_and_all_that_fail_together_are_named(wanted):
    rows = [product(f"n{n}") for n in range(1, 4)]
    assert accepted(wanted, rows).groups.next == (("n1", "n2"), ("n1", "n3"))
    rows += [exchange("n[1-2]"), exchange("n[1,3]"), exchange("n[1-3]", 9.0)]
    found = accepted(wanted, rows)
    assert (found.groups.together, found.groups.next) == ((("n1", "n2", "n3"),), ())
    assert found.good == ("n1", "n2", "n3") and not found.all_passed
    # Where no node has passed with another, no pair tells which is at fault.
    rows = [product("n1"), product("n2"), exchange("n[1-2]", 9.0)]
    found = accepted(wanted, rows)
    assert (found.unknown, found.bad, found.groups.next) == (("n1", "n2"), (), ())


def test_the_program_writes_both_lists_and_says_the_next_groups_also_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b.yaml").write_text(yaml.safe_dump({"references": [ALONE, TOGETHER]}))

    def start(*arguments, code):
        finished = dlbench("accept-nodes", "--bounds", "b.yaml", *arguments)
        assert finished.returncode == code, finished.stderr
        return finished

    assert "expected runs or baselines of named nodes" in start(code=2).stderr
    table = Path("results/tables/baselines.parquet")
    parquet_files.write(table, [product("n1"), product("n2")], BASELINES)
    start(code=0)
    assert Path("results/nodes.fail").read_text() == "\n"
    rows = [product(f"n{n}", 80.0 if n == 3 else 100.0) for n in range(1, 6)]
    parquet_files.write(table, rows, BASELINES)
    printed = start("--nodes", "n[1-5]", code=1).stdout
    assert Path("results/nodes.pass").read_text() == "n[1-2,4-5]\n"
    assert Path("results/nodes.fail").read_text() == "n3\n"
    assert 'extra: "--exclude=n3"' in printed
    assert printed.endswith('\nnodes: 2\nnode: ["n[1-2]", "n[4-5]"]\n')
    assert "n3: matrix_product: expected at least 95 TFLOP/s, found 80" in " ".join(printed.split())
    said = json.loads(start("--nodes", "n[1-6]", "--json", code=1).stdout)
    assert (said["passed"], said["failed"]) == (["n1", "n2", "n4", "n5"], ["n3"])
    assert (said["unknown"], said["next"]) == (["n6"], [["n1", "n2"], ["n4", "n5"]])
    (slow,) = (each for each in said["ranking"] if each["nodes"] == ["n3"])
    assert (slow["passed"], round(slow["ratio"], 9)) == (False, 0.8)
