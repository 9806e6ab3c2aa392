"""planning: largest batches that are to be found before the runs that they give are known."""

import pytest

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.plan import planning, run_command
from dlbench.starting import find_batch
from dlbench.study import runs
from support.studies.found_batches import write_found
from support.studies.planned_runs import STUDY
from support.studies.site_facts import SITE

WIDEST = {"name": "widest", "model": "lenet5", "dataset": "digits", "batch_per_device": "max",
          "steps": 5}  # fmt: skip
TOO_MANY = {"strategy": "mirrored", "devices_per_node": 4}


pytestmark = pytest.mark.usefixtures("project")


def planned(*blocks, **site):
    return planning.make_plan(STUDY | {"matrix": list(blocks), "site": SITE | site})


def test_a_search_comes_first_and_its_data_and_environment_before_it():
    plan = planned(WIDEST)
    ((search, why_not),) = plan.searches.values()
    assert (plan.runs, why_not) == ({}, "")
    assert plan.datasets == ["digits"]
    assert plan.environments == ["results/environments/train.json"]
    write_found(search.id)
    after = planned(WIDEST)
    assert after.searches == {}
    assert {run.batch_per_device for run in after.runs.values()} == {48}


def test_a_search_is_started_with_the_words_of_a_run_and_neither_calibrates_nor_keeps_checkpoints():
    settings = STUDY | {"matrix": [WIDEST], "calibrate": True, "checkpoint_every_min": 5}
    plan = planning.make_plan(settings)
    (search_id,) = plan.searches
    arguments = run_command.find_batch_arguments(plan, search_id, 2000)
    assert {"--processes=1", "--memory-mb=2000", "--network=auto"} <= set(arguments)
    assert not [word for word in arguments if "calibrations" in word or "checkpoint" in word]
    run = plan.searches[search_id][0].attempt(16)
    tried = arguments[arguments.index("--") + 1 :]
    changed = find_batch.arguments_for_batch(tried, run, "b16/train.jsonl", 2)
    specs = [word for word in changed if word.startswith("--spec=")]
    assert '"batch_per_device": 16' in specs[-1] and runs.FLAGS in changed
    assert changed[changed.index("--log") + 1] == "b16/train.jsonl"


def test_a_search_that_this_machine_cannot_do_is_skipped_with_the_reason_and_done_where_it_can_be():
    blocks = [STUDY["matrix"][0], WIDEST | TOO_MANY]
    plan = planned(*blocks)
    ((search, why_not),) = plan.searches.values()
    assert why_not == "needs 4 cpu devices per node; this site has 2"
    assert run_command.find_batch_arguments(plan, search.id)[-1] == f"--skip={why_not}"
    find_batch.skip(search, search.output, why_not)
    assert planned(*blocks).searches == {}
    assert planned(*blocks).study.excluded[0].reason == why_not
    larger = planned(*blocks, devices_per_node=4, cores_per_node=4)
    assert larger.searches == {search.id: (search, "")}
    assert str(search.output) in larger.remade


def test_where_no_search_can_be_done_and_nothing_else_is_there_the_reason_is_said():
    with pytest.raises(Error, match="- needs 4 cpu devices"):
        planned(WIDEST | TOO_MANY)


def test_the_job_of_a_search_asks_for_what_a_run_does_and_its_tries_stay_within_that():
    plan = planned(WIDEST, memory_mb_per_node=3000, cores_per_node=2)
    (search_id,) = plan.searches
    cluster = jobs.Submitting(plan)
    run = plan.searches[search_id][0].run
    resources = cluster.resources_like(lambda wildcards: run)
    asked = {name: resource(None, 1) for name, resource in resources.items()}
    assert (asked["nodes"], asked["mem_mb"]) == (1, 3000)
    assert cluster.memory_mb(search_id) == 3000 - jobs.WORKFLOW_MB


def test_what_does_not_say_what_was_found_is_made_again():
    (search_id,) = planned(WIDEST).searches
    path = write_found(search_id, reason="")
    assert str(path) in planned(WIDEST).remade
    write_found(search_id)
    assert str(path) not in planned(WIDEST).remade
