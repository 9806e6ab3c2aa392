"""acceptance: nodes and groups against the bounds of a site, and their ranking."""

import dataclasses
import re

import pytest
import yaml

from dlbench import Error
from dlbench.analysis import acceptance, bounds, campaigns, node_results
from dlbench.analysis.campaigns import Measured
from dlbench.study.runs import DEFAULTS

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
    return bounds.read(path, node_results.bounded_by)


def judged(tmp_path, entries, runs=(), baselines=(), expected=()):
    results = [*node_results.of_runs(runs), *node_results.of_baselines(baselines)]
    found = acceptance.judge(read(tmp_path, *entries), results, expected)
    return {one.name: one for one in found}


def test_a_node_below_its_bound_fails_with_what_was_expected_found_and_is_likely(tmp_path):
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
        "the lower bound); likely: clocks or power of a GPU are limited, or another job uses it"
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
    assert node_results.of_runs([lost]) == []


def test_a_run_that_failed_fails_its_node_and_a_skipped_one_was_not_measured(tmp_path):
    runs = [run("n1", 1000), run("n1", None, status="oom"), run("n2", None, status="skipped")]
    entry = {"match": {"model": "resnet50"}, "images_per_second": RATE}
    found = judged(tmp_path, [entry], [*runs, run("n3", 1000)])
    assert found["n1"].failures == (
        "resnet50 synthetic 64 single float32: expected 2 results, found 1 oom; see their messages",
    )
    assert found["n2"].passed is None and "not measured (no result)" in found["n2"].missing[0]


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
    assert "likely: a link or adapter of a node (ibstat)" in found["n[1-4]"].failures[0]
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
    wanted = bounds.read(path, lambda match: node_results.bounded_by(match, of_runs))
    slow, good = acceptance.judge(wanted, node_results.of_runs(made))
    assert (slow.name, slow.passed, good.passed) == ("n2", False, True)
    assert "expected at least 85.5 GB/s, found 60" in slow.failures[0]
    path.write_text(path.read_text().replace("busbw", "busbv"))
    with pytest.raises(Error, match="did you mean 'busbw_gb_per_s'"):
        bounds.read(path, lambda match: node_results.bounded_by(match, of_runs))


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
