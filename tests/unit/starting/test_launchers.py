"""launchers: the command lines that start a run, compared word by word."""

import base64
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.starting import launchers
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
ENVIRONMENT = Path("envs/train/.venv")
PYTHON = f"{ENVIRONMENT}/bin/python"
TRAINER = [PYTHON, "workflow_scripts/train.py", "--log", "it's here"]


def command(launcher, **changes):
    run = dataclasses.replace(RUN, launcher=launcher, **changes)
    return plugins.load("launchers", launcher).command(run, list(TRAINER), ENVIRONMENT)


def unsupported(launcher, **changes):
    run = dataclasses.replace(RUN, launcher=launcher, **changes)
    return plugins.load("launchers", launcher).unsupported(run)


@pytest.fixture
def here(monkeypatch):
    """The workflow's folder, where all paths are relative."""
    monkeypatch.chdir(Path(__file__).parents[3])


@pytest.mark.parametrize(
    ("changes", "jobs"),
    [
        ({"strategy": "multiworker", "devices_per_node": 4}, "worker=4"),
        ({"strategy": "parameter_server", "devices_per_node": 2}, "chief=1,worker=2,ps=1"),
        ({"strategy": "parameter_server", "strategy_options": "servers=3,update=barrier"},
         "chief=1,worker=1,ps=3"),
    ],
)  # fmt: skip
def test_local_starts_the_jobs_of_the_strategy_on_this_machine(here, changes, jobs):
    words = [sys.executable, "workflow_scripts/start_processes.py", "--jobs", jobs, "--", *TRAINER]
    assert command("local", **changes) == words


@pytest.mark.parametrize(
    ("changes", "nodes", "tasks", "distribution"),
    [
        ({"strategy": "horovod"}, 1, 1, "block,NoPack"),
        ({"strategy": "multiworker", "devices_per_node": 2, "nodes": 3}, 3, 6, "block,NoPack"),
        ({"strategy": "mirrored", "devices_per_node": 4}, 1, 1, "block,NoPack"),
        ({"strategy": "parameter_server", "devices_per_node": 2, "nodes": 3}, 3, 8, "cyclic"),
        ({"strategy": "parameter_server", "nodes": 2, "strategy_options": "servers=2"}, 2, 5,
         "cyclic"),
    ],
)  # fmt: skip
def test_srun_starts_one_task_per_process_on_all_nodes(changes, nodes, tasks, distribution):
    words = f"srun --nodes={nodes} --ntasks={tasks} --distribution={distribution} --cpu-bind=none"
    words += " --kill-on-bad-exit=1 --overlap"
    assert command("srun", **changes) == [*words.split(), *TRAINER]


ONE_WORD = f"exec {PYTHON} workflow_scripts/train.py --log 'it'\"'\"'s here'"


def test_horovodrun_gets_the_trainer_as_one_word_that_survives_the_shell():
    words = "envs/train/.venv/bin/python3 -m horovod.runner.launch --gloo -np 2 -H localhost:2"
    found = command("horovodrun", strategy="horovod", devices_per_node=2)
    assert found == [*words.split(), "sh", "-c", ONE_WORD]


def test_torchrun_is_a_module_of_the_environment_or_a_program_of_the_path():
    changes = {"framework": "pytorch", "strategy": "ddp", "devices_per_node": 2}
    signals = "env PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
    module = "envs/train/.venv/bin/python3 -m torch.distributed.run"
    flags = "--standalone --local-addr=127.0.0.1 --nproc-per-node=2 --no-python sh -c"
    words = [*f"{signals} PET_SHUTDOWN_TIMEOUT=600 {module} {flags}".split(), ONE_WORD]
    assert command("torchrun", **changes) == words
    run = dataclasses.replace(RUN, launcher="torchrun", **changes)
    outside = plugins.load("launchers", "torchrun").command(run, TRAINER, None)
    assert outside == [*words[:3], "torchrun", *words[6:]]


def test_mpirun_is_that_of_the_environment_with_its_libraries_or_that_of_the_path():
    folder = "envs/train/.venv"
    words = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    words += f"OPAL_PREFIX={folder} LD_LIBRARY_PATH={folder}/lib {folder}/bin/mpirun "
    words += "-np 2 --bind-to none -x OPAL_PREFIX -x LD_LIBRARY_PATH"
    found = command("mpirun", strategy="horovod", devices_per_node=2)
    assert found[:-TOLD] == words.split()
    # A run without Horovod has that of the path.
    found = command("mpirun", framework="pytorch", strategy="ddp", devices_per_node=2)
    assert "mpirun" in found and not [word for word in found if "OPAL_PREFIX" in word]


def listing(*components):
    lines = (f'mca:ras:{name}:version:"component:4.1.8"' for name in components)
    return "\n".join(["package:Open MPI", 'mca:plm:tm:version:"component:4.1.8"', *lines])


@pytest.fixture
def job(tmp_path, monkeypatch, program):
    """Makes this a job of two nodes, with the mpirun of the path built for Slurm alone."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    program("ompi_info", listing("simulator", "slurm"))
    for name in ("cat", "sh"):  # where nothing else is on the path
        (tmp_path / name).symlink_to(f"/bin/{name}")
    nodes = tmp_path / "nodes"

    def make(scheduler, hosts=("n1", "n2")):
        lines = [f"{host}\n" * 2 if scheduler == "pbs" else f"{host} 2\n" for host in hosts]
        nodes.write_text("".join(lines))
        variables = {
            "pbs": {"PBS_JOBID": "7", "PBS_NODEFILE": str(nodes)},
            "lsf": {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": " ".join(f"{h} 2" for h in hosts)},
            "sge": {"JOB_ID": "7", "PE_HOSTFILE": str(nodes)},
            "slurm": {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": ",".join(hosts)},
        }
        for name, value in variables[scheduler].items():
            monkeypatch.setenv(name, value)

    return make


RANKS = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
# What tells ranks and starts the trainer: sh -c SCRIPT sh, and the trainer's words.
TOLD = 4 + len(TRAINER)


@pytest.mark.parametrize(
    ("launcher", "said", "words"),
    [
        ("mpirun", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=4",
         "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -np 4 --map-by "
         "ppr:2:node --bind-to none --mca a b"),
        ("mpiexec", "PMI_RANK=3 MPI_LOCALRANKID=1 PMI_SIZE=4",
         "env HYDRA_BINDING=none PALS_CPU_BIND=none mpiexec.hydra -n 4 -ppn 2 --a=b"),
        ("mpiexec", "PALS_RANKID=3 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2", None),
        ("flux", "FLUX_TASK_RANK=3 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_SIZE=4",
         "flux run --nodes=2 --ntasks=4 --exclusive --setopt=cpu-affinity=off "
         "--setopt=gpu-affinity=off --setopt=exit-on-error --a=b"),
    ],
)  # fmt: skip
def test_ranks_of_other_variables_get_torchruns_and_start_the_trainer(
    launcher, said, words, job, program
):
    job("slurm")
    program("mpiexec.hydra")
    program("flux", script='#!/bin/sh\n[ "$*" = "hostlist --nth=0 local" ] && echo n1\n')
    program("trainer", script='#!/bin/sh\nenv; echo "said=$*"\n')
    changes = {"framework": "pytorch", "strategy": "ddp", "nodes": 2, "devices_per_node": 2}
    run = dataclasses.replace(RUN, launcher=launcher, launcher_options="a=b", **changes)
    found = plugins.load("launchers", launcher).command(run, ["trainer", "it's", "$HOME"], None)
    assert words is None or found[:-7] == words.split()
    variables = dict(word.split("=") for word in said.split())
    for given in ({}, {"MASTER_ADDR": "other", "MASTER_PORT": "7"}):
        environ = {"PATH": os.environ["PATH"], **variables, **given}
        lines = subprocess.run(found[-7:], env=environ, capture_output=True, text=True, check=True)
        told = dict(line.split("=", 1) for line in lines.stdout.splitlines())
        assert told["said"] == "it's $HOME"
        assert {name: told[name] for name in RANKS} == RANKS
        assert told["MASTER_ADDR"] == given.get("MASTER_ADDR", "n1")
        assert told["MASTER_PORT"] == given.get("MASTER_PORT", str(launchers.meeting_port()))


def test_runs_that_start_at_the_same_time_meet_at_different_ports(monkeypatch):
    ports = set()
    for number in range(1, 150):
        monkeypatch.setattr(os, "getpid", lambda number=number: 30_000 + number)
        ports.add(launchers.meeting_port())
    assert len(ports) == 149 and min(ports) >= 20_000 and max(ports) < 32_768


def across_nodes():
    run = dataclasses.replace(RUN, launcher="mpirun", strategy="horovod", nodes=2)
    arguments = plugins.load("launchers", "mpirun").command(run, ["trainer"], None)
    return arguments[arguments.index("-np") + 2 : arguments.index("--bind-to")]


PLACED = ["--map-by", "ppr:1:node"]


@pytest.mark.parametrize(
    ("scheduler", "programs", "shell"),
    [
        ("pbs", ["pbs_tmrsh", "ssh"], "pbs_tmrsh"),
        ("pbs", ["ssh"], "ssh"),
        ("lsf", ["blaunch"], "blaunch"),
        ("sge", ["qrsh", "ssh"], "qrsh -inherit -nostdin -V"),
    ],
)
def test_an_mpirun_that_does_not_know_the_scheduler_is_told_nodes_and_how_to_start_there(
    scheduler, programs, shell, job, program, monkeypatch, tmp_path
):
    job(scheduler)
    for name in programs:
        program(name)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if "ssh" in programs else str(tmp_path))
    assert across_nodes() == ["--host", "n1:1,n2:1", "--mca", "plm_rsh_agent", shell, *PLACED]


@pytest.mark.parametrize(
    ("scheduler", "component"),
    [("slurm", "slurm"), ("pbs", "tm"), ("lsf", "lsf"), ("sge", "gridengine")],
)
def test_an_mpirun_that_was_built_for_the_scheduler_finds_the_nodes_itself(
    scheduler, component, job, program
):
    job(scheduler)
    program("ompi_info", listing(component))
    assert across_nodes() == PLACED


@pytest.mark.parametrize("said", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho package:Open MPI 5\n"])
def test_an_mpirun_that_does_not_say_what_it_was_built_for_is_believed(said, job, program):
    job("pbs")
    program("ompi_info", script=said)
    assert across_nodes() == PLACED


def test_outside_of_a_job_and_on_one_node_nothing_is_said_of_nodes(job):
    assert across_nodes() == PLACED
    job("pbs")
    assert "--host" not in command("mpirun", strategy="horovod", devices_per_node=2)


def test_nodes_that_mpirun_cannot_reach_or_that_are_not_there_are_refused_with_the_reason(
    job, monkeypatch, tmp_path
):
    job("pbs", hosts=["n1"])
    with pytest.raises(Error, match=r"needs 2 nodes, and its job of PBS has 1 \(n1\)"):
        across_nodes()
    job("lsf")
    monkeypatch.delenv("PBS_JOBID")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Error, match=r"on n2: it was not built for LSF .* and blaunch or ssh is"):
        across_nodes()


@pytest.mark.parametrize(
    ("launcher", "strategy"), [("local", "multiworker"), ("horovodrun", "horovod")]
)
def test_launchers_of_one_machine_say_so(launcher, strategy):
    assert unsupported(launcher, strategy=strategy, devices_per_node=2) is None
    message = f"launcher {launcher} starts processes on this machine only, not on 2 nodes"
    assert unsupported(launcher, strategy=strategy, nodes=2) == message


def test_srun_starts_whatever_there_is():
    for strategy in plugins.names("tensorflow/strategies"):
        assert unsupported("srun", strategy=strategy, devices_per_node=4, nodes=8) is None


def test_several_processes_need_a_launcher_and_one_is_started_as_it_is():
    assert command("none") == TRAINER
    assert unsupported("none") is None
    assert unsupported("none", strategy="mirrored", devices_per_node=4) is None
    reason = "strategy horovod needs a launcher such as horovodrun, found none"
    assert unsupported("none", strategy="horovod", devices_per_node=2) == reason
    reason = "strategy multiworker needs a launcher such as local, found none"
    assert unsupported("none", strategy="multiworker", nodes=2) == reason


def test_making_a_command_changes_nothing(here):
    for launcher in plugins.names("launchers"):
        trainer = list(TRAINER)
        run = dataclasses.replace(RUN, strategy="multiworker", launcher=launcher)
        plugins.load("launchers", launcher).command(run, trainer, ENVIRONMENT)
        assert trainer == TRAINER, launcher


@pytest.mark.parametrize(
    ("launcher", "flags"),
    [
        ("torchrun", {"--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d"}),
        ("accelerate", {"--num_machines=2", "--num_processes=8", "--rdzv_backend=c10d",
                        "--main_process_ip=n1", "--multi_gpu", "--no_python"}),
        ("deepspeed", {"--master_addr=n1", "--no_python", "--no_local_rank"}),
    ],
)  # fmt: skip
def test_pytorchs_launchers_start_programs_of_others_on_several_nodes_by_srun(
    monkeypatch, launcher, flags
):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    theirs = {"trainer": "theirs", "framework": "any", "strategy": "ddp", "launcher": launcher}
    run = dataclasses.replace(RUN, **theirs, nodes=2, devices_per_node=4)
    module = plugins.load("launchers", launcher)
    assert module.unsupported(run) is None
    words = module.command(run, ["train"], None)
    assert words[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert flags <= set(words)
    port = launchers.meeting_port()
    assert f"--rdzv-endpoint=n1:{port}" in words or f"port={port}" in " ".join(words)
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(Error, match=f"launcher {launcher} .* job of Slurm, and this is none"):
        module.command(run, ["train"], None)
    assert "this run is of tensorflow" in unsupported(launcher, strategy="mirrored")


def test_accelerate_starts_torchrun_unless_its_file_or_one_process_says_otherwise():
    ddp = {"framework": "pytorch", "strategy": "ddp", "devices_per_node": 2}
    module = ["envs/train/.venv/bin/python3", "-m", "accelerate.commands.launch"]
    port = f"--main_process_port={launchers.meeting_port()}"
    plain = ["--mixed_precision=no", "--dynamo_backend=no"]
    found = command("accelerate", **ddp)
    start = found.index(module[0])
    assert found[start:] == [
        *(*module, "--num_machines=1", "--num_processes=2", port, *plain, "--multi_gpu"),
        *("--no_python", "sh", "-c", ONE_WORD),
    ]
    found = command("accelerate", **ddp, launcher_options="config_file=fsdp.yaml")
    assert found[start + 5 : -3] == [port, "--config_file=fsdp.yaml", "--no_python"]
    found = command("accelerate", **ddp | {"devices_per_node": 1})
    assert "--multi_gpu" not in found
    assert 'env RANK="0" LOCAL_RANK="0" WORLD_SIZE="1"' in found[-1]


def test_deepspeed_starts_its_module_on_each_node_and_leaves_the_gpus_as_they_were(program):
    start = 'echo "$*" >&2; while [ $1 != sh ]; do shift; done; CUDA_VISIBLE_DEVICES=0,1 "$@"'
    program("python3", script=f"#!/bin/sh\n{start}\n")
    program("trainer", script='#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*"\n')
    theirs = {"trainer": "theirs", "framework": "any", "strategy": "ddp", "launcher": "deepspeed"}
    run = dataclasses.replace(RUN, **theirs, devices_per_node=2, launcher_options="log_level=error")
    found = plugins.load("launchers", "deepspeed").command(run, ["trainer", "it's"], None)
    for visible, expected in (("4,5", "4,5 it's\n"), (None, "0,1 it's\n")):
        environ = {"PATH": os.environ["PATH"]}
        environ |= {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
        finished = subprocess.run(found, env=environ, capture_output=True, text=True, check=True)
        assert finished.stdout == expected
    words = shlex.split(finished.stderr)
    assert words[:2] == ["-m", "deepspeed.launcher.launch"] and "--log_level=error" in words
    world = base64.urlsafe_b64decode(words[2].removeprefix("--world_info="))
    assert json.loads(world) == {"node0": [0, 1]}
