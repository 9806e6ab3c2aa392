"""A study of two releases of TensorFlow: each environment trains the same steps with its own."""

import pytest

from dlbench.study import trainer_environments
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import losses
from support.trainers.training_runs import events, train

FIELDS = {"model": "lenet5", "dataset": "digits", "batch_per_device": 32, "steps": 20,
          "optimizer": "momentum", "evaluate": "yes"}  # fmt: skip


@pytest.fixture(scope="module")
def logs(digits, tmp_path_factory):
    """The log of the same run in each environment of TensorFlow, by its name."""
    folder, found = tmp_path_factory.mktemp("versions"), {}
    for name in ("train", "train-latest"):
        python = REPOSITORY / trainer_environments.trainer_python(name)
        if not python.exists():
            pytest.skip(f"{python} is not there; dlbench environment makes it")
        found[name] = folder / name / "train.jsonl"
        finished = train(found[name], digits, (), python, environment=name, **FIELDS)
        assert finished.returncode == 0, finished.stderr
    return found


def test_each_release_is_the_locked_one_and_both_take_the_same_steps_up_to_rounding(logs):
    for name, log in logs.items():
        project = trainer_environments.read_pyproject(REPOSITORY / "envs" / name)["project"]
        (start,) = events(log, "run_start")
        locked = next(each for each in project["dependencies"] if each.startswith("tensorflow"))
        assert start["versions"]["tensorflow"] == locked.partition("==")[2]
        assert start["spec"]["environment"] == name
    old, new = (losses(log) for log in logs.values())
    assert len(set(old)) == len(old) > FIELDS["steps"]  # warm-up steps are logged, too
    assert new == pytest.approx(old, rel=1e-4)
