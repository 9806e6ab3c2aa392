"""config: options of launchers, as an axis."""

from pathlib import Path

import pytest

from dlbench.common import plugins
from support.studies.made_studies import BLOCK, refused, study

HOROVOD = BLOCK | {"steps": 5, "strategy": "horovod", "devices_per_node": 2}
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
def test_an_option_that_cannot_be_is_refused(launcher, given, message):
    found = refused(HOROVOD | {"launcher": launcher, "launcher_options": given})
    assert found.startswith("matrix[0] (block).launcher_options")
    assert message in found


def test_a_launcher_without_options_names_those_that_have_some():
    message = refused(BLOCK | {"steps": 5, "launcher_options": {"mpi": "pmix"}})
    assert "launcher none takes no options; these do: horovodrun, mpirun, srun, torchrun" in message
