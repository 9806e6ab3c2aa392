"""run_command: what a start of Snakemake computes of the commands of runs, and when."""

import shlex

from dlbench.plan import planning, run_command
from dlbench.study import trainer_environments
from support.studies.planned_runs import STUDY


def test_the_words_of_a_run_are_made_when_they_are_formatted_and_once_for_several_times(
    tmp_path, monkeypatch
):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    plan = planning.make_plan(STUDY)
    run_id = next(iter(plan.runs))
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


def test_runs_with_a_power_limit_are_told_how_the_site_sets_it(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    sets = "sudo -n nvidia-smi"
    site = STUDY["site"] | {"device": "gpu", "power_limit_command": sets}
    limited = STUDY["matrix"][0] | {"name": "limited", "power_limit_w": 250}
    settings = STUDY | {"site": site, "matrix": [STUDY["matrix"][0], limited]}
    plan = planning.make_plan(settings)
    for run in plan.runs.values():
        command_line = run_command.start_run_arguments(plan, run.id)
        assert (f"--power-limit-command={sets}" in command_line) == (run.power_limit_w == 250)
        command_line = run.command(command_line)
        assert (
            (command_line[command_line.index("--power-limit-w") + 1] == "250")
            if run.power_limit_w
            else True
        )


def test_a_site_says_how_processes_are_bound_and_whether_they_share_gpus(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    usual, other = (
        planning.make_plan(STUDY | {"site": STUDY["site"] | settings})
        for settings in ({}, {"binding": "cores", "share_gpus": True})
    )
    assert usual.runs.keys() == other.runs.keys()  # it changes no run
    for run_id in usual.runs:
        command_line = run_command.start_run_arguments(usual, run_id)
        assert not {"--site-binding", "--share-gpus"} & set(command_line)
        command_line = run_command.start_run_arguments(other, run_id)
        assert (
            command_line[command_line.index("--site-binding") + 1] == "cores"
            and "--share-gpus" in command_line
        )


def test_a_run_is_started_with_the_time_limit_and_the_hang_limit_of_its_study(
    tmp_path, monkeypatch
):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    plan = planning.make_plan(STUDY | {"time_limit_s": 900, "hang_limit_s": 70})
    words = run_command.start_run_arguments(plan, next(iter(plan.runs)))
    assert "--time-limit-s=900" in words and "--hang-limit-s=70" in words
