"""start_command: by which addresses the processes of a run on several nodes find one another."""

import json

import pytest

from dlbench.common import networks
from dlbench.starting import start_command
from dlbench.study.runs import Run
from dlbench.trainer import cluster

RUN = Run(
    model="lenet5", dataset="synthetic", batch_per_device=8, steps=3,
    strategy="multiworker", launcher="srun", nodes=2,
)  # fmt: skip
JOB = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2].invalid"}
NODES = "NodeName=n{0}.invalid Arch=x86_64 NodeAddr={1} NodeHostName=n{0} Version=22.05.8"


@pytest.fixture
def scontrol(program):
    program("scontrol", "\n".join(NODES.format(*node) for node in ((1, "10.0.0.1"), (2, "n2.x"))))


def addresses(variables):
    return json.loads(variables.get(cluster.NODE_ADDRESSES, "{}"))


def test_nodes_whose_names_lead_nowhere_have_the_addresses_by_which_slurm_reaches_them(scontrol):
    found = start_command.address_variables(RUN, None, JOB)
    assert addresses(found) == {"n1.invalid": "10.0.0.1", "n2.invalid": "n2.x"}


def test_where_the_site_says_how_nodes_are_reached_slurm_is_not_asked(monkeypatch):
    monkeypatch.setattr(networks, "unresolved_names", lambda names: {})
    found = start_command.address_variables(RUN, "{node}-ib0", JOB)
    assert addresses(found) == {name: f"{name}-ib0" for name in ("n1.invalid", "n2.invalid")}


@pytest.mark.parametrize(
    ("run", "environ"),
    [(RUN, {}), (Run(model="lenet5", dataset="x", batch_per_device=8, steps=3), JOB)],
    ids=["outside of a job", "on one node"],
)
def test_elsewhere_names_are_neither_looked_up_nor_replaced(run, environ, program):
    program("scontrol", script="#!/bin/sh\nexit 1\n")
    assert start_command.address_variables(run, None, environ) == {}


def test_the_nodes_of_a_job_are_reached_past_a_proxy(scontrol):
    found = start_command.address_variables(RUN, None, JOB | {"http_proxy": "http://proxy:8080"})
    exempt = set(found["no_proxy"].split(","))
    assert exempt >= {"localhost", "127.0.0.1", "n1.invalid", "10.0.0.1", "n2.invalid", "n2.x"}


def test_a_slurm_that_does_not_answer_leaves_the_names_as_they_are(program):
    program("scontrol", script="#!/bin/sh\nexit 1\n")
    assert start_command.address_variables(RUN, None, JOB) == {}
