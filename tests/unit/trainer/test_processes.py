"""pytorch/processes: the rank of a process, by the variables of its launcher."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.study import launching
from dlbench.study.runs import Run
from dlbench.trainer.pytorch import processes
from dlbench.trainer.pytorch.processes import Rendezvous

JOBS = {"worker": 4}
TORCHRUN = {
    "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip
MPI = {name: value for name, value in TORCHRUN.items() if name != "TORCHELASTIC_RUN_ID"}


def find(launcher, environ):
    spec = SimpleNamespace(strategy="ddp", launcher=launcher, nodes=2, devices_per_node=2)
    return processes.find(spec, JOBS, environ)


def test_torchrun_says_which_process_this_is_and_where_all_meet():
    assert find("torchrun", TORCHRUN) == Rendezvous(3, 1, "a:29500")
    for launcher in ("accelerate", "deepspeed", "flux", "mpiexec", "mpirun"):
        assert find(launcher, MPI) == Rendezvous(3, 1, "a:29500")


@pytest.mark.parametrize("launcher", ["local", "kubernetes"])
def test_other_launchers_say_it_as_for_other_frameworks(launcher):
    workers = ["a:1", "a:2", "b:1", "b:2"]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 3}}
    assert find(launcher, {"TF_CONFIG": json.dumps(config)}) == Rendezvous(3, 1, "a:1")


def test_a_new_launcher_that_sets_torchruns_variables_is_one_more_file(tmp_path):
    lines = 'PROTOCOL = "torchrun"\nTAKES_TASKS = False\ndef unsupported(run): return None\n'
    (tmp_path / "rsh.py").write_text(lines)
    run = Run(
        model="mlp", dataset="synthetic", batch_per_device=8, steps=1, devices_per_node=2,
        framework="pytorch", strategy="ddp", launcher="rsh",
    )  # fmt: skip
    plugins.add_user_folder("launchers", tmp_path)
    try:
        assert launching.describe_misfit(run) is None
        assert find("rsh", TORCHRUN) == Rendezvous(3, 1, "a:29500")
        horovod = replace(run, framework="tensorflow", strategy="horovod")
        assert "on one node these do: flux, horovodrun" in launching.describe_misfit(horovod)
    finally:
        plugins.add_user_folder("launchers")


@pytest.mark.parametrize(
    ("launcher", "environ", "message"),
    [
        ("torchrun", TORCHRUN | {"RANK": "x"}, "Expected numbers, found RANK=x, LOCAL_RANK=1"),
        ("torchrun", TORCHRUN | {"WORLD_SIZE": "2"}, "expected 4 processes, 2 on each of 2 nod"),
        ("torchrun", TORCHRUN | {"RANK": "4"}, "2 node(s), found RANK=4, LOCAL_RANK=1, WORLD_SIZE"),
        ("torchrun", TORCHRUN | {"LOCAL_RANK": "2"}, "check the options of torchrun"),
        ("torchrun", TORCHRUN | {"MASTER_ADDR": ""}, "MASTER_ADDR not set: was the trainer start"),
        ("mpiexec", {}, "was the trainer started by mpiexec? Expected numbers, found RANK=unset"),
        ("mpirun", MPI | {"MASTER_ADDR": ""}, "and on several nodes in a scheduler's job?"),
        ("mpirun", TORCHRUN, "and the run's launcher is mpirun: say --launcher torchrun"),
        ("srun", TORCHRUN, "and the run's launcher is srun: say --launcher torchrun"),
        ("local", {}, "are set: start it with --launcher torchrun, local or srun"),
    ],
)
def test_what_is_missing_or_contradicts_the_run_is_said(launcher, environ, message):
    with pytest.raises(Error) as error:
        find(launcher, environ)
    assert message in str(error.value)
