"""external: what another program is told, what its result depends on, and what is refused."""

import dataclasses
import sys

import pytest

from dlbench import Error
from dlbench.plan import planning, run_command, site_devices, skipping
from dlbench.records import staleness
from dlbench.study import config, other_trainers, trainer_environments
from dlbench.study.runs import Run
from support.studies.made_studies import BLOCK, STUDY, refused

TRAINER = {
    "command": ["train", "--model={model}", "--items={global_batch}", "{{literally}}"],
    "log": "auto",
}
ASKED = BLOCK | {"trainer": "theirs", "model": "transformer", "dataset": "wikipedia", "steps": 5}


@pytest.fixture
def theirs():
    """A function that makes a trainer known, and gives a run of it."""

    def make(**changes):
        other_trainers.register({"theirs": TRAINER | changes})
        return Run(
            model="transformer",
            dataset="wikipedia",
            batch_per_device=8,
            steps=5,
            trainer="theirs",
            devices_per_node=2,
            strategy="mirrored",
        )

    yield make
    other_trainers.register({})


def study(**changes):
    return STUDY | {"trainers": {"theirs": TRAINER}, "matrix": [ASKED | changes]}


def test_a_command_is_filled_word_by_word_and_no_shell_sees_it(theirs):
    run = dataclasses.replace(theirs(), runtime_options="a b; rm -rf $(HOME)")
    assert other_trainers.command(run, "py", "", "") == [
        "train",
        "--model=transformer",
        "--items=16",
        "{literally}",
    ]
    run = theirs(command=["{python}", "{runtime_options}", "{data}", "{folder}/x"])
    run = dataclasses.replace(run, runtime_options="a b; $(x)")
    assert other_trainers.command(run, "py", "d", "f") == ["py", "a b; $(x)", "d", "f/x"]


def test_model_and_dataset_are_the_other_programs_words():
    (run,) = config.study(study()).runs
    assert (run.model, run.dataset, run.trainer) == ("transformer", "wikipedia", "theirs")
    known = {"trainers": {"theirs": TRAINER}}
    assert "no file models/transformer.py" in refused(ASKED | {"trainer": "dlbench"}, **known)


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"command": ["{modell}"]}, "there is no {modell} (did you mean 'model'?)"),
        ({"command": ["{model.id}"]}, "expected a name between braces, as in {model}"),
        ({"command": ["{model!r}"]}, "expected a name between braces"),
        ({"command": ["{"]}, "for a brace itself write two"),
        ({"command": []}, "trainers.theirs.command: expected a list that is not empty"),
        ({"log": "tf_cnn"}, "no file importers/tf_cnn.py"),
        ({"files": ["nowhere.py"]}, "trainers.theirs.files: missing: nowhere.py"),
        ({"shell": True}, "unknown key 'shell'"),
    ],
)
def test_a_trainer_that_cannot_be_is_refused_in_words(trainer, message):
    assert message in refused(ASKED, trainers={"theirs": TRAINER | trainer})


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"trainer": "thiers"}, "no trainer 'thiers' (did you mean 'theirs'?)"),
        (
            {"trainer": "dlbench", "model": "lenet5", "dataset": "synthetic", "framework": "mxnet"},
            "framework: mxnet needs a trainer of its own (trainers)",
        ),
    ],
)
def test_a_run_that_nobody_can_train_is_refused_in_words(block, message):
    assert message in refused(ASKED | block, trainers={"theirs": TRAINER})


def test_a_result_depends_on_the_command_and_on_the_content_of_its_files(theirs, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("a")
    files = {"files": [str(script)]}
    run = theirs(**files)
    first = staleness.made_from(run)
    assert first["data"] == first["environment"] == ""
    assert staleness.made_from(theirs(**files)) == first
    assert staleness.made_from(theirs(log="tf_cnn_benchmarks", **files)) == first  # read again only
    script.write_text("b")
    other = staleness.made_from(theirs(**files))
    assert other["code"] != first["code"]
    assert staleness.made_from(theirs(command=["train"], **files))["code"] != other["code"]


def test_an_environment_and_data_are_made_for_commands_that_name_them(theirs):
    assert not trainer_environments.has_environment(theirs())
    assert trainer_environments.has_environment(theirs(command=["{python}"]))
    run = dataclasses.replace(theirs(command=["x", "{data}"]), dataset="digits")
    assert staleness.has_data(run)
    assert not staleness.has_data(dataclasses.replace(theirs(), dataset="digits"))


def test_a_program_that_is_not_there_skips_the_run_with_a_reason(theirs):
    devices = site_devices.Devices("cpu", None, 8)
    assert "program train is not on this machine's path" in skipping.cannot_run(theirs(), devices)
    assert skipping.cannot_run(theirs(command=[sys.executable]), devices) is None


def test_what_a_plan_starts_is_the_command_and_nothing_of_ours(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "x.py", "--out={folder}"]
    plan = planning.make_plan(study() | {"trainers": {"theirs": TRAINER | {"command": command}}})
    (run,) = plan.study.runs
    arguments = run_command.start_run_arguments(plan, run.id)
    assert arguments[arguments.index("--") + 1 :] == [
        sys.executable,
        "x.py",
        f"--out=results/runs/{run.id}/output",
    ]
    assert "--external=auto" in arguments
    assert (plan.environments, plan.datasets) == ([], [])


def test_the_trainer_is_an_axis_that_changes_no_id_of_ours():
    ours = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
    assert "trainer" not in ours.values()
    other = dataclasses.replace(ours, trainer="theirs")
    assert other.id != ours.id and "by theirs" in other.label()


def test_nothing_is_known_of_a_trainer_that_the_config_does_not_have():
    other_trainers.register({})
    with pytest.raises(Error, match="no trainer 'theirs'; there are: dlbench"):
        other_trainers.trainer(Run(model="a", dataset="b", batch_per_device=1, trainer="theirs"))


def test_flops_of_an_item_are_a_number_or_a_formula_of_the_run(theirs):
    assert other_trainers.model_flops_per_item(theirs()) is None
    run = theirs(model_flops_per_item=5e9)
    assert other_trainers.model_flops_per_item(run) == 5e9
    run = theirs(model_flops_per_item="2e9 * {width} / {devices}")
    run = dataclasses.replace(run, trainer_parameters="width=3")
    assert other_trainers.model_flops_per_item(run) == 3e9


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("many", "model_flops_per_item: expected numbers, names in braces"),
        ("{model}", "there is no number {model}"),
        ("{devices} - 2", "expected more than 0, found 0"),
        ("10 ** 40", "expected at most 1e+30, found 1e+40"),
        ("{weights}", "there is no number {weights}"),
    ],
)
def test_flops_that_are_no_number_are_refused_before_anything_is_started(formula, expected):
    trainers = {"theirs": TRAINER | {"model_flops_per_item": formula}}
    block = ASKED | {"strategy": "mirrored", "devices_per_node": 2}
    assert expected in refused(block, trainers=trainers)


def test_settings_about_what_is_around_a_program_are_checked():
    for key, value in (("stop_signal", "SIGKILL"), ("stop_grace_s", 0), ("visible_gpus", "two")):
        trainers = {"theirs": TRAINER | {key: value}}
        assert f"trainers.theirs.{key}" in refused(ASKED, trainers=trainers)
