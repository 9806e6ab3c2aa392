"""baselines: which a study asks for, their names, and the commands that measure them."""

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.common import plugins
from dlbench.plan import baselines, planning
from dlbench.study import trainer_environments
from support.studies.planned_runs import STUDY
from support.studies.site_facts import SITE

TWO = {"strategy": "multiworker", "launcher": "local", "devices_per_node": 2}
BLOCK = STUDY["matrix"][0]
# Of the block TWO, before baselines could name nodes.
NAMES = ["tensorflow-multiworker-1x2-cc13cc9e86", "tensorflow-device-float32-dc1546d246"]


@pytest.fixture
def plan_of(project):
    """A function that plans a study of some blocks, on a site with so many nodes."""

    def plan(*blocks, **changes):
        named = [BLOCK | {"name": f"block{n}"} | block for n, block in enumerate(blocks)]
        return planning.make_plan(STUDY | {"matrix": named} | changes)

    return plan


def exchanges(plan):
    return [one for one in baselines.of_plan(plan).values() if one.models]


def devices(plan):
    return [one for one in baselines.of_plan(plan).values() if not one.models]


def test_runs_that_exchange_alike_share_a_baseline_up_to_the_largest_of_their_models(plan_of):
    plan = plan_of({"model": ["lenet5", "cnn12"]} | TWO, {"strategy": "single"})
    (one,) = exchanges(plan)
    assert one.models == ("cnn12", "lenet5")
    assert (one.run.strategy, one.run.launcher, one.run.devices) == ("multiworker", "local", 2)
    assert one.run.dataset == "synthetic"


def test_each_way_to_exchange_has_its_own(plan_of):
    packed = TWO | {"strategy_options": {"pack_mib": 4}}
    plan = plan_of(TWO, packed, {"strategy": "mirrored", "devices_per_node": 2})
    found = exchanges(plan)
    assert len({one.name for one in found}) == len(found) == 3


def test_a_device_is_measured_in_each_precision_and_reads_each_stored_dataset(plan_of):
    found = devices(plan_of({"precision": ["float32", "bfloat16"]}, TWO))
    assert sorted(one.run.precision for one in found) == ["bfloat16", "float32"]
    for one in found:
        assert [run.dataset for run in one.reads] == ["digits"]
        assert (one.run.strategy, one.run.devices) == ("single", 1)


def test_without_an_all_reduce_or_enough_devices_there_is_nothing_to_be_measured(plan_of):
    servers = {"strategy": "parameter_server", "devices_per_node": 2}
    too_many = TWO | {"devices_per_node": 4}
    assert exchanges(plan_of(servers, {"copies_per_node": 2}, too_many)) == []


def test_the_names_of_baselines_stay_and_a_further_repeat_changes_none(plan_of):
    for repeats in (1, 3):
        assert list(baselines.of_plan(plan_of(TWO, repeats=repeats))) == NAMES


def test_they_are_kept_for_the_machine_or_on_a_cluster_for_the_site(plan_of):
    plan = plan_of(TWO, site=SITE | {"name": "our site"})
    here, on_nodes = (baselines.machine_folder(plan, submits) for submits in (False, True))
    assert on_nodes == "site-our-site" and len(here) == 12
    assert here == baselines.machine_folder(plan, False)
    files = baselines.files(plan, False)
    assert all(file.startswith(f"results/baselines/{here}/") for file in files)


def test_devices_are_measured_on_each_named_node_and_exchanges_on_the_nodes_of_each_run(plan_of):
    site = SITE | {"nodes": 4}
    names = {one.run.node: one.name for one in devices(plan_of({"node": "n[1-2]"}, site=site))}
    assert sorted(names) == ["n1", "n2"] and len(set(names.values())) == 2
    pairs = {"strategy": "multiworker", "launcher": "srun", "nodes": 2, "dataset": "synthetic"}
    plan = plan_of(pairs | {"node": ["n[1-2]", "n[2-3]"]}, site=site)
    pairs = [(one.run.node, one.run.nodes) for one in exchanges(plan)]
    assert pairs == [("n[1-2]", 2), ("n[2-3]", 2)]
    # Each node once, although n2 is in two pairs.
    assert sorted(one.run.node for one in devices(plan)) == ["n1", "n2", "n3"]
    assert {one.run.nodes for one in devices(plan)} == {1}


def test_the_baselines_of_a_plan_are_found_once_and_those_of_another_plan_anew(plan_of):
    plan = plan_of({"node": "n[1-3]"}, site=SITE | {"nodes": 3})
    known = baselines.of_plan(plan)
    (first, *_) = known
    assert baselines.of_plan(plan) is known and baselines.find(plan, first) is known[first]
    skipped = dataclasses.replace(plan, skipped=dict.fromkeys(plan.runs, "not here"))
    assert baselines.of_plan(skipped) == {}
    assert list(baselines.of_plan(plan)) == list(known)


def test_the_command_is_that_of_the_trainers_environment_with_all_fields_of_a_run_and_its_data(
    plan_of,
):
    plan = plan_of(TWO)
    (one,) = exchanges(plan)
    words = shlex.split(baselines.arguments(plan, one.name, "results/baselines/m/x.json"))
    ours, command = words[: words.index("--")], words[words.index("--") + 1 :]
    assert f"--time-limit-s={plan.study.time_limit_s}" in ours and "--device=cpu" in ours
    python = str(trainer_environments.trainer_python("train"))
    assert command[:2] == [python, "workflow_scripts/measure_baselines.py"]
    spec = json.loads(command[2].removeprefix("--spec="))
    assert (spec["strategy"], spec["steps"], spec["threads_per_device"]) == ("multiworker", 1, 1)
    assert "--model=lenet5" in command and "--output=results/baselines/m/x.json" in command
    (device,) = devices(plan)
    words = shlex.split(baselines.arguments(plan, device.name, "x.json"))
    (read,) = (json.loads(w.removeprefix("--read=")) for w in words if w.startswith("--read="))
    assert (read["dataset"], read["folder"]) == ("digits", "results/data/digits")
    stamp, data = "results/environments/train.json", "results/data/digits/manifest.json"
    assert baselines.inputs(plan, one.name) == [stamp]
    assert baselines.inputs(plan, device.name) == [stamp, data]


def test_on_a_cluster_its_job_is_that_of_such_a_run_with_all_of_the_time(
    plan_of, program, monkeypatch
):
    monkeypatch.setattr(sys, "executable", "/clone/.venv/bin/python")
    program("sinfo", "cpu*|up|1:00:00|3|8|16000|(null)|idle")
    program("squeue")
    plan = plan_of(TWO, site=SITE | {"cores_per_node": 8})
    submitting = jobs.Submitting(plan)
    submitting.check_cluster("slurm", lambda rule, name: None, {})
    (one,) = exchanges(plan)
    asked = {name: of(None, 1) for name, of in submitting.resources_like(lambda _: one.run).items()}
    assert (asked["nodes"], asked["runtime"], asked["exclusive"]) == (1, 1 + 5, 1)
    assert asked["cpus_per_task"] == 2


def test_a_name_of_another_study_is_refused(plan_of):
    with pytest.raises(Error, match="no baseline 'x' in this study; it has: tensorflow-"):
        baselines.find(plan_of(TWO), "x")


def test_figures_ask_for_the_table_only_where_one_has_no_other(plan_of, tmp_path):
    both = ("communication", "scaling")
    assert baselines.for_figure("communication", both) == [baselines.TABLE]
    assert baselines.for_figure("scaling", both) == [baselines.TABLE]
    assert baselines.for_figure("loss", both) == baselines.for_figure("scaling", ("scaling",)) == []
    plan_of(TWO)  # in an empty folder
    assert baselines.digest_if_beside("scaling", ("scaling",)) == ""
    Path(baselines.TABLE).parent.mkdir(parents=True)
    Path(baselines.TABLE).write_bytes(b"made")
    assert baselines.digest_if_beside("scaling", ("scaling",)) == baselines.digest() != ""
    assert baselines.digest_if_beside("scaling", both) == ""
    assert baselines.digest_if_beside("loss", both) == ""


def test_strategies_that_reduce_gradients_by_a_collective_are_these():
    found = {
        (framework, name)
        for framework in ("tensorflow", "jax", "pytorch")
        for name in plugins.names(f"{framework}/strategies")
        if plugins.load(f"{framework}/strategies", name).Strategy.reduces
    }
    assert found == {
        *(("tensorflow", name) for name in ("horovod", "mirrored", "multiworker")),
        ("jax", "sharded"),
        *(("pytorch", name) for name in ("ddp", "fsdp", "hsdp", "tensor_parallel")),
    }
