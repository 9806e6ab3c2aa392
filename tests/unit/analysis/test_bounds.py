"""Bounds that a campaign is checked against."""

import dataclasses
import json

import pytest
import yaml

from dlbench import Error
from dlbench.analysis import bounds
from dlbench.pages import formats
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench
from support.runs.made_runs import campaign, measured

MATCH = {"model": "lenet5", "batch_per_device": 8}
BOUND = {"value": 100.0, "lower": -0.05, "upper": 0.1, "unit": "items/s"}


def written(tmp_path, match=MATCH, metric="images_per_second", **changes):
    path = tmp_path / "references.yaml"
    bound = BOUND | changes
    path.write_text(yaml.safe_dump({"references": [{"match": match, metric: bound}]}))
    return path


def outcome(tmp_path, runs, **options):
    (found,) = bounds.check(bounds.read(written(tmp_path, **options)), runs)
    return found


@pytest.mark.parametrize(
    ("values", "passed", "message"),
    [
        ([95.0], True, "-5.0 %"),
        # The geometric mean of 80 and 90.25 is 84.97, 10.6 % below the bound of 95.
        ([80.0, 90.25], False, "-15.0 %, 10.6 % below the lower bound"),
        ([110.0], True, "+10.0 %"),
        ([121.0], False, "+21.0 %, 10.0 % above the upper bound"),
    ],
)
def test_a_mean_is_held_against_its_bounds(tmp_path, values, passed, message):
    runs = measured(values)
    found = outcome(tmp_path, campaign(runs))
    assert (found.passed, found.message) == (passed, message)
    side = "upper" if values[0] > 100 else "lower"
    assert outcome(tmp_path, campaign(runs), **{side: None}).passed
    runs = [dataclasses.replace(runs[0], disturbed=True), *runs[1:]]
    found = outcome(tmp_path, campaign(runs))
    assert found.message.startswith(f"{message}; other processes on the machine disturbed 1 of")


@pytest.mark.parametrize(
    ("values", "verdict", "message"),
    [
        ([99.0, 100.0, 101.0], bounds.PASS, "95 % interval -2.5 to +2.5 %"),
        ([80.0, 81.0, 82.0], bounds.FAIL, "14.7 % below the lower bound"),
        ([94.0, 96.0, 98.0], bounds.UNDECIDED, "95 % interval -8.9 to +1.1 %"),
        ([99.0, 100.0], bounds.TOO_FEW, "fewer than 3 runs"),
    ],
)
def test_in_a_contract_the_interval_of_the_mean_decides(tmp_path, values, verdict, message):
    runs = campaign(measured(values))
    (found,) = bounds.check(bounds.read(written(tmp_path, upper=None)), runs, by_interval=True)
    assert found.verdict == verdict and message in found.message
    assert found.passed is (verdict == bounds.PASS)
    assert bounds.plain([found])[0]["verdict"] == verdict
    if verdict == bounds.UNDECIDED:
        page = bounds.page([found], runs)
        assert page.lead == "0 of 1 bounds passed, 0 failed, 1 undecided." and page.kind == "bad"


def test_runs_that_all_failed_fail(tmp_path):
    found = outcome(tmp_path, campaign(measured([None, None], "oom")))
    assert (found.passed, found.message) == (False, "no run finished: 2 oom")
    page = bounds.page([found], campaign(measured([None], "oom")))
    assert "FAIL: no run finished: 2 oom" in formats.text(page, 120)
    assert 'class="badge bad"' in formats.html_page(page)


@pytest.mark.parametrize(
    ("match", "message"),
    [
        (
            {**MATCH, "batch_per_device": 16},
            "matches no run; the nearest, lenet5-.* has batch_per_device 8 instead of 16",
        ),
        ({**MATCH, "site": "there"}, "site here instead of there"),
        ({**MATCH, "xla": 0}, "xla False instead of 0"),
        ({"model": "lenet5"}, "matches 2 combinations; .* differ in batch_per_device"),
    ],
)
def test_a_bound_must_match_one_combination(tmp_path, match, message):
    runs = campaign(measured([100]), measured([100], batch_per_device=12))
    assert outcome(tmp_path, runs, match=MATCH | {"site": "here"}).passed  # a fact
    with pytest.raises(Error, match=message):
        outcome(tmp_path, runs, match=match)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "images/s"}, "unit: images_per_second is in items/s, found 'images/s'"),
        ({"value": "1e4"}, r"value: expected a number, found '1e4'; .* write 1\.0e\+4"),
        ({"value": True}, "value: expected a number"),
        ({"value": float("nan")}, "value: expected a number"),
        ({"value": -1}, "value: expected a number above 0"),
        ({"lower": 0.05}, "lower: expected a share from -1 to 0"),
        ({"lower": -5}, "lower: expected a share"),
        ({"upper": -0.1}, "upper: expected a share of at least 0"),
        ({"uper": 1}, "expected the keys value, lower, upper, unit, found"),
        ({"metric": "images_per_secnd"}, "did you mean 'images_per_second'"),
        ({"match": {"modle": "lenet5"}}, "match: no field 'modle'"),
        ({"match": "lenet5"}, "expected match with the fields"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_place(tmp_path, changes, message):
    with pytest.raises(Error, match=rf"references\.yaml: references\[0\].*{message}"):
        bounds.read(written(tmp_path, **changes))
    for text in ("", "[]", "references: []", "references: {}", "x: ["):
        (tmp_path / "r.yaml").write_text(text)
        with pytest.raises(Error, match=r"r\.yaml"):
            bounds.read(tmp_path / "r.yaml")


def test_what_is_written_is_passed_by_the_same_campaign_and_failed_by_a_slower_one(tmp_path):
    def runs(factor):
        return campaign(
            measured([100 * factor, 102 * factor]),
            measured([50 * factor], precision="bfloat16", learning_rate=0.1),
            measured([None], "oom", batch_per_device=64),
        )

    path = tmp_path / "r.yaml"
    assert bounds.write(path, runs(1), "images_per_second", 0.05) == 2
    made = bounds.read(path)
    assert all(found.passed for found in bounds.check(made, runs(0.96)))
    assert not any(found.passed for found in bounds.check(made, runs(0.94)))
    with pytest.raises(Error, match="tolerance: expected a share"):
        bounds.write(path, runs(1), "images_per_second", 5)


def test_the_program_says_by_its_exit_code_whether_all_passed(here):
    row = {"run_id": "a", "status": "ok", "model": "lenet5", "dataset": "digits"}
    for name, value in (("a", 100.0), ("slow", 90.0)):
        row |= {"batch_per_device": 8, "images_per_second": value}
        (here / f"{name}.json").write_text(json.dumps([row]))

    def start(*arguments):
        return dlbench("compare", *arguments)

    finished = start("a.json", "--write-bounds", "r.yaml")
    assert (finished.returncode, finished.stderr) == (0, "r.yaml: 1 bounds\n")
    assert start("a.json", "--bounds", "r.yaml").returncode == 0
    both = yaml.safe_load((here / "r.yaml").read_text())
    (kept,) = both["references"]
    too_fast = kept["images_per_second"] | {"value": 200.0}
    both["references"].append(kept | {"images_per_second": too_fast})
    (here / "both.yaml").write_text(yaml.safe_dump(both))
    failed = start("a.json", "--bounds", "both.yaml")
    assert (failed.returncode, "1 of 2 bounds passed, 1 failed" in failed.stdout) == (1, True)
    failed = start("slow.json", "--references", "r.yaml")
    assert failed.returncode == 1
    assert "0 of 1 bounds passed, 1 failed" in failed.stdout
    assert "FAIL: -10.0" in failed.stdout
    (plain,) = json.loads(start("slow.json", "--references", "r.yaml", "--format", "json").stdout)
    assert (plain["passed"], plain["measured"]) == (False, 90.0)
    (here / "r.yaml").write_text("references: 3")
    assert start("a.json", "--references", "r.yaml").returncode == 2
    assert start("a.json", "a.json", "--references", "r.yaml").returncode == 2


def test_a_parameter_of_another_program_can_be_matched(tmp_path):
    runs = [
        *measured([100], trainer_parameters="recompute=true tensor_parallel=1"),
        *measured([50], trainer_parameters="recompute=true tensor_parallel=2"),
    ]
    match = {"parameters.tensor_parallel": 1, "parameters.recompute": True}
    assert outcome(tmp_path, campaign(runs), match=match).passed
    with pytest.raises(Error, match=r"has parameters.tensor_parallel 1 instead of 3"):
        outcome(tmp_path, campaign(runs), match={"parameters.tensor_parallel": 3})


def with_bandwidth(values, unit="GB/s"):
    runs = []
    for run, value in zip(measured(values), values, strict=True):
        run.numbers["busbw"] = value
        metric = {"run_id": run.run_id, "name": "busbw", "unit": unit, "better": "higher"}
        runs.append(dataclasses.replace(run, metrics=(metric | {"value": value},)))
    return campaign(runs)


def test_a_metric_that_programs_name_has_bounds_in_its_unit(tmp_path):
    made = with_bandwidth([80.0, 90.25])
    bounded = bounds.Bounded.of(made)
    path = written(tmp_path, metric="busbw", unit="GB/s")
    (found,) = bounds.check(bounds.read(path, lambda _: bounded), made)
    assert found.message == "-15.0 %, 10.6 % below the lower bound"
    assert "100 GB/s" in formats.text(bounds.page([found], made))
    with pytest.raises(Error, match="unit: busbw is in GB/s, found 'MB/s'"):
        bounds.read(written(tmp_path, metric="busbw", unit="MB/s"), lambda _: bounded)
    with pytest.raises(Error, match=r"no metric 'busbv' \(did you mean 'busbw'\?\)"):
        bounds.read(written(tmp_path, metric="busbv"), lambda _: bounded)
    assert bounds.write(path, with_bandwidth([100.0, 100.0]), "busbw", 0.05) == 1
    (entry,) = yaml.safe_load(path.read_text())["references"]
    assert entry["busbw"] == {"value": 100.0, "lower": -0.05, "upper": 0.05, "unit": "GB/s"}


PUBLISHED = REPOSITORY / "studies/nvidia_recipes/references.csv"


def measured_on_h100(tokens_per_second, batch=16, **facts):
    """A run of Llama 3 8B on eight GPUs, for which NVIDIA printed 14 451 tokens/s a GPU."""
    of_nvidia = {"item_shape": "8192", "device_model": "NVIDIA H100 80GB HBM3"} | facts
    fields = {"model": "llama3_8b", "precision": "float8", "devices_per_node": 8}
    (run,) = measured([tokens_per_second / 8192 * 8], batch_per_device=batch, **fields)
    rates = {"tokens_per_second_per_device": tokens_per_second, "devices": 8}
    return dataclasses.replace(run, numbers=run.numbers | rates, facts=run.facts | of_nvidia)


@pytest.mark.parametrize(
    ("tokens_per_second", "passed", "message"),
    [(13800, True, "-4.5 %"), (13600, False, "-5.9 %, 0.9 % below the lower bound")],
)
def test_runs_are_held_against_95_percent_of_published_numbers(tokens_per_second, passed, message):
    (found,) = bounds.check_published(
        PUBLISHED, campaign([measured_on_h100(tokens_per_second)]), 0.05
    )
    assert (found.passed, found.message, found.bound.value) == (passed, message, 14451)
    assert f"{PUBLISHED}, line " in found.bound.where


def test_each_combination_that_a_point_states_is_held_against_it_and_no_other():
    runs = [measured_on_h100(14000), measured_on_h100(15000, batch=4)]
    slower = dataclasses.replace(runs[0], fields=runs[0].fields | {"trainer_parameters": "tp=2"})
    slower = dataclasses.replace(
        slower, numbers=slower.numbers | {"tokens_per_second_per_device": 9e3}
    )
    found = bounds.check_published(PUBLISHED, campaign([*runs, slower]), 0.05)
    assert [(one.passed, one.bound.match.get("trainer_parameters")) for one in found] == [
        (True, ""),
        (False, "tp=2"),
    ]
    for facts, said in (
        ({"device_model": "NVIDIA B200"}, "device_model NVIDIA B200 instead of GB200"),
        ({"item_shape": "4096"}, "item_shape 4096 instead of 8192"),
    ):
        with pytest.raises(Error, match=f"no run has the settings of a point; .* {said}"):
            bounds.check_published(PUBLISHED, campaign([measured_on_h100(14000, **facts)]), 0.05)
