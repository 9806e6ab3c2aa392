"""other_trainers: what another program is told, what its result depends on, and what is refused."""

import dataclasses
import sys

import pytest

from dlbench import Error
from dlbench.plan import planning, run_command, skipping
from dlbench.records import judgement
from dlbench.study import other_trainers, trainer_environments
from dlbench.study.runs import Run
from support.studies.made_studies import BLOCK, STUDY, refused, study

COMMAND = ["train", "--model={model}", "--items={global_batch}", "{{literally}}"]
TRAINER = {"command": COMMAND, "log": "auto"}
THEIRS = {"trainer": "theirs", "model": "transformer", "dataset": "wikipedia", "steps": 5}
ASKED = BLOCK | THEIRS
RUN = Run(**THEIRS, batch_per_device=8, devices_per_node=2, strategy="mirrored")


@pytest.fixture
def theirs():
    """A function that makes a trainer known, and gives a run of it."""

    def make(**changes):
        other_trainers.register({"theirs": TRAINER | changes})
        return RUN

    yield make
    other_trainers.register({})


def test_a_command_is_filled_word_by_word_and_no_shell_sees_it(theirs):
    words = other_trainers.command(theirs(), "py", "", "")
    assert words == ["train", "--model=transformer", "--items=16", "{literally}"]
    run = theirs(command=["{python}", "{runtime_options}", "{data}", "{folder}/x"])
    run = dataclasses.replace(run, runtime_options="a b; $(x)")
    assert other_trainers.command(run, "py", "d", "f") == ["py", "a b; $(x)", "d", "f/x"]


def test_model_and_dataset_are_the_other_programs_words():
    trainers = {"theirs": TRAINER}
    (run,) = study(ASKED, trainers=trainers).runs
    assert (run.model, run.dataset, run.trainer) == ("transformer", "wikipedia", "theirs")
    message = refused(ASKED | {"trainer": "dlbench"}, trainers=trainers)
    assert "no file models/transformer.py" in message
    assert "no trainer 'thiers' (did you mean 'theirs'?)" in refused(
        ASKED | {"trainer": "thiers"}, trainers=trainers
    )
    message = "framework: mxnet needs a trainer of its own (trainers)"
    assert message in refused(BLOCK | {"steps": 5, "framework": "mxnet"}, trainers=trainers)


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"command": ["{modell}"]}, "there is no {modell} (did you mean 'model'?)"),
        ({"command": ["{model.id}"]}, "expected a name between braces, as in {model}"),
        ({"command": ["{"]}, "for a brace itself write two"),
        ({"log": "tf_cnn"}, "trainers.theirs.log: no file importers/tf_cnn.py"),
        ({"files": ["nowhere.py"]}, "trainers.theirs.files: missing: nowhere.py"),
        ({"stop_signal": "SIGKILL"}, "trainers.theirs.stop_signal"),
        ({"stop_grace_s": 0}, "trainers.theirs.stop_grace_s"),
        ({"visible_gpus": "two"}, "trainers.theirs.visible_gpus"),
        ({"model_flops_per_item": "many"}, "model_flops_per_item: expected numbers, names in brac"),
        ({"model_flops_per_item": "{model}"}, "there is no number {model}"),
        ({"model_flops_per_item": "{devices} - 1"}, "expected more than 0, found 0"),
        ({"model_flops_per_item": "10 ** 40"}, "expected at most 1e+30, found 1e+40"),
    ],
)
def test_a_trainer_that_cannot_be_is_refused_in_words(trainer, message):
    assert message in refused(ASKED, trainers={"theirs": TRAINER | trainer})


def test_a_result_depends_on_the_command_and_on_the_content_of_its_files(theirs, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("a")
    files = {"files": [str(script)]}
    run = theirs(**files)
    first = judgement.made_from(run)
    assert first["data"] == first["environment"] == ""
    assert judgement.made_from(theirs(**files)) == first
    assert judgement.made_from(theirs(log="tf_cnn_benchmarks", **files)) == first  # read again only
    script.write_text("b")
    other = judgement.made_from(theirs(**files))
    assert other["code"] != first["code"]
    assert judgement.made_from(theirs(command=["train"], **files))["code"] != other["code"]


def test_an_environment_and_data_are_made_for_commands_that_name_them(theirs):
    assert not trainer_environments.has_environment(theirs())
    assert trainer_environments.has_environment(theirs(command=["{python}"]))
    run = dataclasses.replace(theirs(command=["x", "{data}"]), dataset="digits")
    assert judgement.has_data(run)
    assert not judgement.has_data(dataclasses.replace(theirs(), dataset="digits"))


def test_a_program_that_is_not_there_skips_the_run_with_a_reason(theirs):
    devices = skipping.Devices("cpu", None, 8)
    assert "program train is not on this machine's path" in skipping.cannot_run(theirs(), devices)
    assert skipping.cannot_run(theirs(command=[sys.executable]), devices) is None


def test_what_a_plan_starts_is_the_command_and_nothing_of_ours(project):
    command = [sys.executable, "x.py", "--out={folder}"]
    trainers = {"theirs": TRAINER | {"command": command}}
    plan = planning.make_plan(STUDY | {"trainers": trainers, "matrix": [ASKED]})
    (run,) = plan.study.runs
    arguments = run_command.start_run_arguments(plan, run.id)
    words = [sys.executable, "x.py", f"--out=results/runs/{run.id}/output"]
    assert arguments[arguments.index("--") + 1 :] == words
    assert "--external=auto" in arguments
    assert (plan.environments, plan.datasets) == ([], [])


def test_the_trainer_is_an_axis_that_changes_no_id_of_ours():
    ours = dataclasses.replace(RUN, trainer="dlbench")
    assert "trainer" not in ours.values()
    other = dataclasses.replace(ours, trainer="theirs")
    assert other.id != ours.id and "by theirs" in other.label()


def test_nothing_is_known_of_a_trainer_that_the_config_does_not_have():
    other_trainers.register({})
    with pytest.raises(Error, match="no trainer 'theirs'; there are: dlbench"):
        other_trainers.trainer(RUN)


def test_flops_of_an_item_are_a_number_or_a_formula_of_the_run(theirs):
    assert other_trainers.stated(theirs(), "model_flops_per_item") is None
    run = theirs(model_flops_per_item=5e9)
    assert other_trainers.stated(run, "model_flops_per_item") == 5e9
    run = theirs(model_flops_per_item="2e9 * {width} / {devices}")
    run = dataclasses.replace(run, trainer_parameters="width=3")
    assert other_trainers.stated(run, "model_flops_per_item") == 3e9


def test_the_precision_of_a_program_is_what_somebody_says_and_changes_no_id(theirs):
    run, said = theirs(), {"fp8": "float8", "": "bfloat16"}
    assert other_trainers.precision(run) is None
    assert other_trainers.precision(dataclasses.replace(run, precision="tf32")) == "tf32"
    assert other_trainers.precision(dataclasses.replace(run, trainer="dlbench")) == "float32"
    command = [*TRAINER["command"], "--precision={precision}"]
    assert other_trainers.precision(theirs(command=command, precision=said)) == "float32"
    assert theirs(precision=said).id == run.id
    assert other_trainers.precision(run) == "bfloat16"
    short = dataclasses.replace(run, trainer_parameters="kind=fp8")
    assert other_trainers.precision(short) == "float8"
    theirs(precision={"half=true": "float16"})
    assert other_trainers.precision(short) is None


def test_what_nobody_says_of_a_program_is_not_known(theirs):
    run = dataclasses.replace(theirs(command=["x", "--seed={seed}"]), optimizer="adam")
    assert {"learning_rate", "framework", "xla"} <= (unknown := other_trainers.unstated(run))
    assert not {"seed", "optimizer", "model", "strategy"} & unknown
    assert other_trainers.unstated(dataclasses.replace(run, trainer="dlbench")) == set()
