"""start_command.check_node: a run that names its node is on that one, or says so."""

import dataclasses

import pytest

from dlbench.starting import start_command
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)


@pytest.mark.parametrize(
    ("node", "variables"),
    [
        (None, {}),
        ("n7", {"DLBENCH_HOST": "n7"}),
        ("n7", {"DLBENCH_HOST": "n7.cluster.example"}),
        ("n7.cluster.example", {"DLBENCH_HOST": "n7"}),
        # As the scheduler calls it.
        ("n7", {"DLBENCH_HOST": "x1c0", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[7]"}),
    ],
)
def test_a_run_is_on_its_node_by_the_name_of_the_machine_or_of_the_scheduler(
    node, variables, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start_command.check_node(dataclasses.replace(RUN, node=node), variables)


def test_a_job_on_another_node_than_was_asked_for_says_so():
    run = dataclasses.replace(RUN, node="n7")
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n8"}
    with pytest.raises(start_command.WrongNode, match=r"expected node n7, found .*n8: Slurm was"):
        start_command.check_node(run, variables)


PAIR = dataclasses.replace(RUN, node="n[7-8]", nodes=2)


def test_a_run_on_several_named_nodes_is_on_all_of_them_or_says_so():
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[7-8]"}
    start_command.check_node(PAIR, variables)
    variables["SLURM_JOB_NODELIST"] = "n[7,9]"
    found = r"expected node n\[7-8\], found .*n9: Slurm was asked for these nodes and chose others"
    with pytest.raises(start_command.WrongNode, match=found):
        start_command.check_node(PAIR, variables)
    with pytest.raises(start_command.WrongNode, match="only the profile of a cluster sends runs"):
        start_command.check_node(PAIR, {})
