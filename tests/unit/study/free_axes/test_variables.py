"""config: variables of the environment, and options of launchers, as axes."""

import dataclasses
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.run_fields.fields import DECLARED, DEFAULTS
from dlbench.study.runs import Run
from dlbench.trainer import containment, flags
from support.studies.made_studies import BLOCK, refused, study

SHORT = BLOCK | {"steps": 5}


def variables(*several, **changes):
    return study(SHORT | {"variables": list(several)} | changes).runs


def test_a_list_of_mappings_is_an_axis():
    ring = {"NCCL_ALGO": "Ring"}
    block = {"exclude": [{"variables": {"X": 1}}]}
    runs = variables({}, ring, {"OMP_NUM_THREADS": 4, "NCCL_ALGO": "Tree"}, {"X": 1}, **block)
    texts = sorted(run.variables for run in runs)
    assert texts == ["", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree OMP_NUM_THREADS=4"]
    assert len({run.id for run in runs}) == 3


def test_a_run_without_variables_is_the_run_that_it_was():
    (before,) = study(SHORT).runs
    assert variables({}) == (before,)
    assert before.id == "lenet5-synthetic-b8-single-1x1-r1-" + before.digest()
    assert "variables" not in before.values() and DEFAULTS["variables"] == ""


def test_equal_variables_are_one_run_in_whatever_order_they_are_written():
    (one,) = variables({"A_B": 1, "C_D": "x y"})
    (other,) = variables({"C_D": "x y", "A_B": "1"})
    assert one.id == other.id
    assert one.variables == "A_B=1 'C_D=x y'"


def test_variables_are_in_labels_and_in_the_flags_of_the_trainer():
    (run,) = variables({"NCCL_ALGO": "Ring", "XLA_FLAGS": "--a --b"})
    assert "NCCL_ALGO=Ring 'XLA_FLAGS=--a --b'" in run.label()
    arguments = [*run.flags(), "--log", "x"]
    spec, _ = flags.parse(None, arguments)
    assert spec.variables == run.variables
    assert Run.from_spec(run.values()) == run
    assert DECLARED["variables"].is_axis and DECLARED["variables"].of_condition


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"WANDB_API_KEY": "abc"}, "WANDB_API_KEY is the name of a secret"),
        ({"PROXY": "http://me:pw@host"}, "PROXY: there is a secret in its value"),
        ({"X": "hf_" + "a" * 24}, "X: there is a secret in its value"),
        ({"RANK": 0}, "RANK is set for each process of a run by what starts it"),
        ({"CUDA_VISIBLE_DEVICES": 0}, "CUDA_VISIBLE_DEVICES is set for each process"),
        ({"DLBENCH_THREADS": 2}, "DLBENCH_THREADS is set for each process"),
        ({"X": "a\nb"}, "X: expected one line of printable characters"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_with_its_place(given, message):
    found = refused(SHORT | {"variables": given})
    assert found.startswith("matrix[0] (block).variables: ")
    assert message in found
    assert "pw" not in found and "a" * 24 not in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"A-B": 1}, "expected a name of letters, digits and _ that begins with no digit"),
        ({"X": True}, "variables.X: expected a text or a number, found true"),
        ("A=1", "expected a mapping"),
    ],
)
def test_variables_in_another_form_are_refused(given, message):
    assert message in refused(SHORT | {"variables": given})


def test_the_trainer_refuses_to_record_variables_that_it_lacks():
    containment.check_variables("", {})
    containment.check_variables("A=1 'B=x y'", {"A": "1", "B": "x y"})
    with pytest.raises(Error, match="the run has the variable B=x y, and this process lacks it"):
        containment.check_variables("A=1 'B=x y'", {"A": "1"})
    with pytest.raises(Error, match="and this process has 2: start the trainer by `env A=1`"):
        containment.check_variables("A=1", {"A": "2"})


def test_runs_that_differ_in_variables_alone_are_compared():
    block = SHORT | {"variables": [{}, {"NCCL_ALGO": "Ring"}]}
    made = study(block, compare=[{"field": "variables", "base": ""}])
    assert made.compare == ({"field": "variables", "base": ""},)
    assert len({dataclasses.replace(run, variables="") for run in made.runs}) == 1


# Options of launchers.

HOROVOD = SHORT | {"strategy": "horovod", "devices_per_node": 2}
DDP = HOROVOD | {"framework": "pytorch", "strategy": "ddp"}


@pytest.mark.parametrize(
    ("block", "launcher", "given", "words"),
    [
        (HOROVOD, "mpirun", {"btl": "tcp,self"}, ["--mca", "btl", "tcp,self"]),
        (HOROVOD, "srun", {"mpi": "pmix"}, ["--mpi=pmix"]),
        (HOROVOD, "horovodrun", {"cycle-time-ms": 2}, ["--cycle-time-ms", "2"]),
        (DDP, "torchrun", {"max-restarts": 0}, ["--max-restarts=0"]),
    ],
)
def test_options_are_handed_to_the_launcher_before_the_trainer(block, launcher, given, words):
    made = study(block | {"launcher": launcher, "launcher_options": [{}, given]})
    plain, run = sorted(made.runs, key=lambda run: run.launcher_options)
    ours = plugins.load("launchers", launcher)
    before, after = (ours.command(r, ["TRAINER"], Path("/env")) for r in (plain, run))
    place = next(n for n, word in enumerate(after) if word == words[0] and word not in before)
    assert after[place : place + len(words)] == words
    assert [*after[:place], *after[place + len(words) :]] == before
    assert run.launcher_options in run.label()
    assert "launcher_options" not in plain.values()
    assert run.id != plain.id


@pytest.mark.parametrize(
    ("launcher", "given", "message"),
    [
        ("srun", {"ntasks": 4}, "ntasks of launcher srun is set by dlbench; leave it out"),
        ("srun", {"kill_on_bad_exit": 0}, "is set by dlbench"),
        ("mpirun", {"api_key": "x"}, "api_key is the name of a secret"),
        ("mpirun", {"-x": "y"}, "expected a long name of letters, digits, _ and -"),
        ("mpirun", {"btl": True}, "expected a text or a number, found true"),
    ],
)
def test_an_option_of_a_launcher_that_cannot_be_is_refused(launcher, given, message):
    found = refused(HOROVOD | {"launcher": launcher, "launcher_options": given})
    assert found.startswith("matrix[0] (block).launcher_options")
    assert message in found


def test_a_launcher_without_options_names_those_that_have_some():
    message = refused(SHORT | {"launcher_options": {"mpi": "pmix"}})
    assert "launcher none takes no options; these do: horovodrun, mpirun, srun, torchrun" in message
