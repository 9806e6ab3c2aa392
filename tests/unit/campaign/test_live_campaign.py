"""The campaign of a start, from the jobs that Snakemake starts and ends."""

import pytest

from dlbench.campaign.live_campaign import Counts, LiveCampaign
from dlbench.plan import planning
from support.runs.made_runs import SETTINGS, finish, write


@pytest.fixture
def campaign(study):
    """Four runs, of which the first was trained in 60 s before this start."""
    finish(study.runs[0], 60)
    return LiveCampaign(planning.make_plan(SETTINGS))


def info(run=None, **changes):
    """What Snakemake says of a job that it starts."""
    wildcards = {"run_id": run.id} if run else {}
    return {"rule_name": "train", "wildcards": wildcards, "shellcmd": "python", **changes}


def left(campaign):
    return [campaign.plan.runs[run_id] for run_id in campaign.plan.pending]


def test_runs_are_counted_as_they_start_and_end(campaign):
    first, second, _ = left(campaign)
    assert campaign.counts() == Counts(1, 0, 0, 0, left=3, total=4)
    campaign.started(7, info(first))
    assert campaign.counts() == Counts(1, 0, running=1, waiting=0, left=2, total=4)
    finish(first, 30, "oom", "no memory")
    assert campaign.ended(7).run == first
    campaign.started(8, info(second))
    assert campaign.counts() == Counts(2, failed=1, running=1, waiting=0, left=1, total=4)


def test_a_run_whose_job_failed_is_left_and_may_start_again(campaign):
    first = left(campaign)[0]
    campaign.started(7, info(first))
    campaign.failed(7)
    assert campaign.counts().left == 3 and not campaign.describe_running()
    campaign.started(7, info(first))
    assert campaign.counts().running == 1
    # Snakemake says of a job that failed and was tried again also that it ended.
    campaign.failed(7)
    finish(first, 30)
    assert campaign.ended(7).run == first and campaign.ended(8) is None
    assert campaign.counts() == Counts(2, 0, 0, 0, left=2, total=4)


def test_a_submitted_run_waits_until_it_writes_its_log(campaign):
    campaign.submits = True
    first = left(campaign)[0]
    campaign.started(7, info(first))
    assert (campaign.counts().running, campaign.counts().waiting) == (0, 1)
    write(first)
    assert (campaign.counts().running, campaign.counts().waiting) == (1, 0)


def test_the_time_to_go_is_that_of_the_runs_that_are_left(campaign):
    # It gets less while a busy machine takes seconds for these lines.
    assert campaign.left_s() == pytest.approx(3 * 60, abs=10)


def test_without_a_finished_run_the_time_to_go_is_not_known(study):
    campaign = LiveCampaign(planning.make_plan(SETTINGS))
    assert campaign.left_s() is None
    first = left(campaign)[0]
    campaign.started(7, info(first))
    finish(first, 60)
    campaign.ended(7)
    assert campaign.left_s() == pytest.approx(3 * 60, abs=1)


def test_runs_come_before_other_jobs_in_what_is_going_on(campaign):
    first = left(campaign)[0]
    campaign.started(1, info(rule_name="draw_figure", wildcards={"figure": "scaling"}))
    campaign.started(2, info(rule_name="start_session", wildcards={"session": "x"}))
    assert campaign.describe_running() == "draw_figure scaling"
    campaign.started(3, info(first))
    label = campaign.plan.labels[first.id]
    assert campaign.describe_running() == f"{label}; and 1 more job"
    write(first, steps=2)
    assert campaign.describe_running(2) == f"{label}: step 2/100; draw_figure scaling"
