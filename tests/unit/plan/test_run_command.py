"""run_command: what a start of Snakemake computes of the commands of runs, and when."""

import shlex

from dlbench.plan import planning, run_command
from support.studies.planned_runs import STUDY


def test_the_words_of_a_run_are_made_when_they_are_formatted_and_once_for_several_times(
    plan, monkeypatch
):
    run_id = next(iter(plan.runs))
    assert plan.facts["study"] == STUDY["study"]
    made = []
    words_of = run_command.start_run_arguments
    monkeypatch.setattr(
        run_command, "start_run_arguments", lambda *given: made.append(given) or words_of(*given)
    )
    arguments = run_command.StartRunArguments(plan, run_id)
    assert made == []
    formatted = [f"exec start_run.py {arguments}" for _ in range(3)]
    assert made == [(plan, run_id)]
    assert set(formatted) == {f"exec start_run.py {shlex.join(words_of(plan, run_id))}"}
    # Snakemake makes parameters anew once inputs are there: digests may be known only then.
    str(run_command.StartRunArguments(plan, run_id))
    assert len(made) == 2


def test_runs_with_a_power_limit_are_told_how_the_site_sets_it(folder):
    sets = "sudo -n nvidia-smi"
    site = STUDY["site"] | {"device": "gpu", "power_limit_command": sets}
    limited = STUDY["matrix"][0] | {"name": "limited", "power_limit_w": 250}
    settings = STUDY | {"site": site, "matrix": [STUDY["matrix"][0], limited]}
    plan = planning.make_plan(settings)
    for run in plan.runs.values():
        words = run_command.start_run_arguments(plan, run.id)
        assert (f"--power-limit-command={sets}" in words) == (run.power_limit_w == 250)
        assert ("--power-limit-w 250" in shlex.join(run.command(words))) == bool(run.power_limit_w)


def test_a_site_says_how_processes_are_bound_and_whether_they_share_gpus(folder):
    usual, other = (
        planning.make_plan(STUDY | {"site": STUDY["site"] | settings})
        for settings in ({}, {"binding": "cores", "share_gpus": True})
    )
    assert usual.runs.keys() == other.runs.keys()  # it changes no run
    for run_id in usual.runs:
        words = run_command.start_run_arguments(usual, run_id)
        assert not {"--site-binding", "--share-gpus"} & set(words)
        words = run_command.start_run_arguments(other, run_id)
        assert words[words.index("--site-binding") + 1] == "cores" and "--share-gpus" in words


def test_a_run_is_started_with_the_time_limit_and_the_hang_limit_of_its_study(folder):
    plan = planning.make_plan(STUDY | {"time_limit_s": 900, "hang_limit_s": 70})
    words = run_command.start_run_arguments(plan, next(iter(plan.runs)))
    assert "--time-limit-s=900" in words and "--hang-limit-s=70" in words
