"""accept_nodes: lists of nodes that pass and fail, by bounds of nodes and of groups."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml

from dlbench import Error
from dlbench.analysis import accept_nodes, bounds, campaigns
from dlbench.analysis.campaigns import Measured
from dlbench.common import networks
from dlbench.study.runs import DEFAULTS
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
    names = networks.expand_hosts(group)
    row = {"measure": "all_reduce", "unit": "GB/s", "nodes": len(names), "size_bytes": 1024}
    return row | {"node": group, "host": names[0], "value": value}


def test_the_program_writes_both_lists_and_says_so_also_as_json(tmp_path, monkeypatch):
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
    # Of a group that fails any node may be why.
    rows = [product(f"n{n}", 80.0 if n == 3 else 100.0) for n in range(1, 6)]
    rows += [exchange("n[1-2]"), exchange("n[4-5]", 9.0)]
    parquet_files.write(table, rows, BASELINES)
    printed = start("--nodes", "n[1-5]", code=1).stdout
    assert Path("results/nodes.pass").read_text() == "n[1-2,4-5]\n"
    assert Path("results/nodes.fail").read_text() == "n3\n"
    assert 'extra: "--exclude=n3"' in printed
    words = " ".join(printed.split())
    assert "n3: matrix_product: expected at least 95 TFLOP/s, found 80" in words
    assert "n[4-5]: all_reduce 1024 B: expected at least 36 GB/s, found 9" in words
    said = json.loads(start("--nodes", "n3.cluster.org,n6", "--json", code=1).stdout)
    assert (said["passed"], said["failed"]) == (["n1", "n2", "n4", "n5"], ["n3"])
    assert said["unknown"] == ["n6"]
    (slow,) = (each for each in said["ranking"] if each["nodes"] == ["n3"])
    assert (slow["passed"], round(slow["ratio"], 9)) == (False, 0.8)


RUN = {"model": "resnet50", "dataset": "synthetic", "batch_per_device": 64, "steps": 50}
PRODUCT = {"measure": "matrix_product", "precision": "bfloat16"}
TFLOPS = {"value": 700.0, "lower": -0.05, "upper": None, "unit": "TFLOP/s"}
RATE = {"value": 1000.0, "lower": -0.1, "upper": None, "unit": "items/s"}


def run(node, rate, nodes=1, status="ok", **changes):
    fields = {**DEFAULTS, **RUN, "node": node, "nodes": nodes, **changes}
    numbers = {} if rate is None else {"images_per_second": rate}
    facts = {"host": "h" if node is None else node}
    return Measured(f"run-{node}-{rate}", fields, status, numbers, facts)


def baseline(node, value, measure="matrix_product", unit="TFLOP/s", nodes=1, **changes):
    row = {"measure": measure, "precision": "bfloat16", "nodes": nodes, "unit": unit}
    return row | {"host": node.partition("[")[0], "node": node, "value": value} | changes


def read(tmp_path, *entries):
    path = tmp_path / "bounds.yaml"
    path.write_text(yaml.safe_dump({"references": list(entries)}))
    return bounds.read(path, accept_nodes.bounded_by)


def judged(tmp_path, entries, runs=(), baselines=(), expected=()):
    results = [*runs, *accept_nodes.of_baselines(baselines)]
    found = accept_nodes.judge(read(tmp_path, *entries), results, expected)
    return {one.name: one for one in found}


def test_a_node_below_its_bound_fails_with_what_was_expected_and_found(tmp_path):
    rows = [baseline("n1", 690.0), baseline("n2", 590.0), baseline("n3", 700.0)]
    rows.append(baseline("n4", None, unknown="a tmpfs"))
    entry = {"match": PRODUCT, "value": TFLOPS}
    found = judged(tmp_path, [entry], baselines=rows, expected=["n1", "n9"])
    assert {name: one.passed for name, one in found.items()} == {
        "n1": True, "n2": False, "n3": True, "n4": None, "n9": None,
    }  # fmt: skip
    assert found["n4"].missing == ("matrix_product bfloat16: not measured (a tmpfs)",)
    (failure,) = found["n2"].failures
    assert failure == (
        "matrix_product bfloat16: expected at least 665 TFLOP/s, found 590 (-15.7 %, 11.3 % below "
        "the lower bound)"
    )


def test_those_that_fail_come_first_then_the_slowest_and_groups_after_nodes(tmp_path):
    rows = [baseline(f"n{n}", value) for n, value in ((1, 690.0), (2, 590.0), (3, 680.0))]
    pair = [run("n[1-2]", 2000, nodes=2), run("n[1-3]", 900, nodes=3)]
    found = judged(tmp_path, [{"match": PRODUCT, "value": TFLOPS}], pair, rows)
    assert list(found) == ["n2", "n3", "n1", "n[1-2]", "n[1-3]"]
    assert found["n2"].ratio == pytest.approx(590 / 680) and found["n1"].slowest == (
        "matrix_product bfloat16"
    )
    assert found["n[1-2]"].passed is None and found["n[1-2]"].ratio is None


def test_a_mean_over_repeats_is_held_against_the_bound_of_runs(tmp_path):
    runs = [run("n1", 890), run("n1", 920), run("n2", 890), run("n2", 900)]
    entry = {"match": {"model": "resnet50", "nodes": 1}, "images_per_second": RATE}
    found = judged(tmp_path, [entry], runs)
    assert (found["n1"].passed, found["n2"].passed) == (True, False)


def test_runs_without_a_node_are_those_of_their_host_and_domains_do_not_matter(tmp_path):
    plain = run(None, 1000)
    plain.facts["host"] = "n1.cluster.org"
    entry = {"match": {"model": "resnet50"}, "images_per_second": RATE}
    assert list(judged(tmp_path, [entry], [plain, run("n1", 1000)])) == ["n1"]
    lost = run(None, 1000, nodes=2)
    assert accept_nodes.judge([], [lost]) == []


def test_a_run_or_baseline_that_failed_fails_its_node_and_a_skipped_one_was_not_measured(tmp_path):
    runs = [run("n1", 1000), run("n1", None, status="oom"), run("n2", None, status="skipped")]
    entry = {"match": {"model": "resnet50"}, "images_per_second": RATE}
    found = judged(tmp_path, [entry], [*runs, run("n3", 1000)])
    assert found["n1"].failures == (
        "resnet50 synthetic 64 single float32: expected 2 results, found 1 oom; see their messages",
    )
    assert found["n2"].passed is None and "not measured (no result)" in found["n2"].missing[0]
    reason = "not measured (exit code 1): NCCL WARN Cuda failure"
    failed = {"measure": "memory_copy", "nodes": 1, "node": "n2", "unknown": reason}
    entry = {"match": {"measure": "memory_copy", "size_bytes": 64}, "value": TFLOPS}
    copied = baseline("n1", 700.0, "memory_copy", size_bytes=64, precision=None)
    found = judged(tmp_path, [entry], baselines=[copied, failed])
    assert found["n2"].failures == (f"memory_copy: expected 1 result, found 1 failed; {reason}",)
    # What the device cannot do is no failure, and of nothing measured no bound is wrong.
    lacking = failed | {"unknown": "nothing is copied to it", "size_bytes": 64}
    assert judged(tmp_path, [entry], baselines=[copied, lacking])["n2"].passed is None
    assert judged(tmp_path, [entry], baselines=[failed])["n2"].passed is False


def test_groups_have_bounds_of_their_own_of_one_size_or_of_any(tmp_path):
    rows = [
        baseline("n[1-2]", 40.0, "all_reduce", "GB/s", 2, size_bytes=1024),
        baseline("n[1-4]", 30.0, "all_reduce", "GB/s", 4, size_bytes=1024),
        baseline("n1", 300.0, "all_reduce", "GB/s", 1, size_bytes=1024),
    ]
    bound = {"value": 40.0, "lower": -0.1, "upper": None, "unit": "GB/s"}
    of_any = {"match": {"measure": "all_reduce", "nodes": "several"}, "value": bound}
    found = judged(tmp_path, [of_any], baselines=rows)
    assert [found[name].passed for name in ("n1", "n[1-2]", "n[1-4]")] == [None, True, False]
    of_two = {"match": {"measure": "all_reduce", "nodes": 2}, "value": bound}
    found = judged(tmp_path, [of_two], baselines=rows)
    assert [found[name].passed for name in ("n1", "n[1-2]", "n[1-4]")] == [None, True, None]


def test_a_bound_may_be_on_a_metric_that_the_runs_programs_name(tmp_path):
    busbw = {"name": "busbw_gb_per_s", "value": 90.0, "unit": "GB/s", "better": "higher"}
    made = [
        dataclasses.replace(run(node, None), numbers={busbw["name"]: value}, metrics=(busbw,))
        for node, value in (("n1", 90.0), ("n2", 60.0))
    ]
    of_runs = bounds.Bounded.of(campaigns.Campaign("results", tuple(made)))
    bound = {"value": 90.0, "lower": -0.05, "upper": None, "unit": "GB/s"}
    path = tmp_path / "bounds.yaml"
    entry = {"match": {"model": "resnet50"}, "busbw_gb_per_s": bound}
    path.write_text(yaml.safe_dump({"references": [entry]}))
    wanted = bounds.read(path, lambda match: accept_nodes.bounded_by(match, of_runs))
    slow, good = accept_nodes.judge(wanted, made)
    assert (slow.name, slow.passed, good.passed) == ("n2", False, True)
    assert "expected at least 85.5 GB/s, found 60" in slow.failures[0]
    path.write_text(path.read_text().replace("busbw", "busbv"))
    with pytest.raises(Error, match="did you mean 'busbw_gb_per_s'"):
        bounds.read(path, lambda match: accept_nodes.bounded_by(match, of_runs))


def test_a_bound_that_cannot_be_checked_is_named(tmp_path):
    rows = [baseline("n1", 700.0)]
    rows += [baseline("n1", 7.0, "memory_copy", size_bytes=size) for size in (1, 2)]
    for entry, words in (
        ({"match": PRODUCT | {"precision": "tf32"}, "value": TFLOPS}, "matches no baseline"),
        ({"match": {"model": "alexnet"}, "images_per_second": RATE}, "found: resnet50 synthetic"),
        ({"match": PRODUCT, "value": TFLOPS | {"unit": "GB/s"}}, "unit: found TFLOP/s, and not"),
        ({"match": {"measure": "memory_copy"}, "value": TFLOPS}, "they differ in size_bytes"),
        ({"match": PRODUCT | {"size_byte": 1}, "value": TFLOPS}, "did you mean 'size_bytes'"),
        ({"match": PRODUCT, "images_per_second": RATE}, "no metric 'images_per_second' of base"),
    ):
        with pytest.raises(Error, match=rf"references\[0\].*{re.escape(words)}"):
            judged(tmp_path, [entry], [run("n1", 900)], rows)
