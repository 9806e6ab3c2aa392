"""config: parameters of other programs are axes, and numbers may be formulas of them."""

import pytest

from dlbench.plan import run_command
from dlbench.study import other_trainers
from dlbench.study.free_axes import parameters
from support.studies.made_studies import BLOCK, refused, study

COMMAND = ["train", "--tp={tensor_parallel}", "--batch={global_batch}", "--mode={mode_of_x}"]
ASKED = {
    "name": "block", "trainer": "theirs", "model": "transformer", "dataset": "wikipedia",
    "steps": 5, "batch_per_device": 8,
    "parameters": {"tensor_parallel": [1, 2, 4], "mode_of_x": "fast"},
}  # fmt: skip
TOTAL = {key: value for key, value in ASKED.items() if key != "batch_per_device"}


@pytest.fixture(autouse=True)
def nothing_registered():
    yield
    other_trainers.register({})


def trainers(*command):
    return {"theirs": {"command": list(command or COMMAND), "log": "auto"}}


def runs(block=ASKED, command=COMMAND, **changes):
    return study(block | changes, trainers=trainers(*command)).runs


def no(block=ASKED, command=COMMAND, **changes):
    return refused(block | changes, trainers=trainers(*command))


def test_each_combination_of_parameters_is_a_run():
    made = runs(parameters={"tensor_parallel": [1, 2], "mode_of_x": ["fast", "slow", True]})
    assert len({run.id for run in made}) == 6
    assert {run.value("parameters.tensor_parallel") for run in made} == {1, 2}
    assert {run.value("parameters.mode_of_x") for run in made} == {"fast", "slow", True}
    assert made[0].value("parameters.other") is None
    assert {run.trainer_parameters for run in made} >= {"mode_of_x=fast tensor_parallel=1"}


def test_a_parameter_is_in_the_command_the_label_and_the_id():
    (run,) = runs(parameters={"tensor_parallel": 2, "mode_of_x": False})
    words = other_trainers.command(run, "py", "", "")
    assert words == ["train", "--tp=2", "--batch=8", "--mode=false"]
    assert "mode_of_x=false tensor_parallel=2" in run.label()
    (other,) = runs(parameters={"tensor_parallel": 4, "mode_of_x": False})
    assert other.id != run.id
    assert run_command.FLAGS not in run.command(["x"])


def test_text_and_number_of_the_same_word_are_one_run():
    (one,) = runs(parameters={"tensor_parallel": 2, "mode_of_x": "1.5"})
    (other,) = runs(parameters={"tensor_parallel": 2.0, "mode_of_x": 1.5})
    assert one.id == other.id
    (without,) = runs({k: v for k, v in ASKED.items() if k != "parameters"}, ["train", "{model}"])
    assert parameters.FIELD not in without.values() and without.trainer_parameters == ""


def test_parameters_are_keys_of_exclude_include_and_sentinels():
    excluded = {"parameters": {"tensor_parallel": [2, 4]}, "reason": "slow"}
    included = {"parameters": {"tensor_parallel": 8}}
    block = ASKED | {"exclude": [excluded], "include": [included]}
    made = study(block, trainers=trainers(), sentinels=[included])
    assert sorted(run.value("parameters.tensor_parallel") for run in made.runs) == [1, 8]
    assert {entry.reason for entry in made.excluded} == {"slow"}
    three = {"parameters": {"tensor_parallel": 3}}
    message = refused(ASKED, trainers=trainers(), sentinels=[three])
    assert "no run of this study has parameters.tensor_parallel 3" in message
    assert "no combination of this block has 3" in no(exclude=[three])


@pytest.mark.parametrize(
    ("block", "command", "message"),
    [
        ({}, ["train", "{tensor_parallel}"], "does not use the parameter mode_of_x"),
        ({}, [*COMMAND, "{pipeline}"], "there is no {pipeline}"),
        ({"parameters": {"mode_of_x": 1}}, COMMAND, "there is no {tensor_parallel}"),
        ({"parameters": {"steps": 1}}, ["x"], "parameters.steps: a field of a run has this name"),
        ({"parameters": {"A": 1}}, COMMAND, "expected a name of small letters, digits and _"),
        ({"parameters": {"api_key": "x"}}, ["x"], "api_key is the name of a secret"),
        ({"parameters": {"tensor_parallel": []}}, COMMAND, "expected a list that is not empty"),
    ],
)
def test_parameters_that_cannot_be_are_refused(block, command, message):
    assert message in no(command=command, **block)


def test_a_brace_that_only_another_block_gives_is_named_with_its_place():
    other = ASKED | {"name": "other", "parameters": {"tensor_parallel": 8}}
    message = refused(ASKED, other, trainers=trainers())
    assert message.startswith("matrix[1] (other).trainer: trainers.theirs.command names {mode_of")


@pytest.mark.parametrize("change", [{"parameters": {"x": 1}}, {"steps": "{nodes} * 5"}])
def test_parameters_and_formulas_are_for_other_programs(change):
    message = "parameters and formulas are for blocks with a trainer"
    assert message in refused(BLOCK | {"steps": 5} | change)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"global_batch": "{tensor_parallel} * {devices} * 4"}, [8, 16, 32]),
        ({"batch_per_device": "8 / {tensor_parallel}"}, [4, 8, 16]),
        ({"batch_per_device": 4, "steps": "{global_batch} // 3 * {tensor_parallel}"}, [8, 8, 8]),
        (
            {"global_batch": ["{tensor_parallel} * 4", "{tensor_parallel} * 32"]},
            [4, 8, 16, 32, 64, 128],
        ),
    ],
)
def test_numbers_of_a_run_may_be_formulas(changes, expected):
    changes = {"strategy": "mirrored", "devices_per_node": 2} | changes
    made = runs(TOTAL | changes, ["train", "{tensor_parallel}{mode_of_x}"])
    assert sorted(run.global_batch for run in made) == expected
    assert all(type(run.batch_per_device) is int and type(run.steps) is int for run in made)


def test_devices_may_follow_from_parameters():
    devices = {"strategy": "mirrored", "devices_per_node": "{tensor_parallel} * {data_parallel}"}
    several = {"tensor_parallel": [1, 2], "mode_of_x": "a", "data_parallel": 2}
    assert sorted(run.devices for run in runs(**devices, parameters=several)) == [2, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch": "{tensor_parallel} / 3"}, "global_batch: expected a whole number, foun"),
        ({"global_batch": "{tensor_paralel} * 2"}, "did you mean 'tensor_parallel'?"),
        ({"global_batch": "{mode_of_x} * 2"}, "{mode_of_x} is no number: 'fast'"),
        ({"global_batch": "{epochs} * 2"}, "{epochs}: the run has no epochs"),
        ({"global_batch": "{steps}", "steps": "{global_batch}"}, "a formula needs itself"),
        ({"global_batch": "{tensor_parallel} - 1"}, "expected at least 1, found 0"),
        ({"global_batch": "{tensor_parallel} * 10 ** 12"}, "expected at most 1000000000, found"),
        ({"global_batch": "{tensor_parallel}; 1"}, "expected numbers, names in braces"),
        ({"global_batch": "{tensor_parallel} / 0"}, "divides by zero"),
        ({"global_batch": "4 * 2"}, "global_batch: expected a whole number"),
    ],
)
def test_a_formula_without_a_fitting_value_is_refused_with_its_key(changes, message):
    found = no(TOTAL, **changes)
    assert found.startswith("matrix[0] (block).")
    assert message in found


def test_a_combination_may_be_excluded_by_what_follows_or_because_nothing_does():
    made = runs(TOTAL, global_batch="4 * {tensor_parallel}", exclude=[{"global_batch": 8}])
    assert sorted(run.global_batch for run in made) == [4, 16]
    changes = {"global_batch": "8 / {tensor_parallel}"}
    changes["parameters"] = {"tensor_parallel": [2, 3], "mode_of_x": "a"}
    changes["exclude"] = [{"parameters": {"tensor_parallel": 3}}]
    made = study(TOTAL | changes, trainers=trainers())
    assert [run.global_batch for run in made.runs] == [4]
    assert [entry.values["global_batch"] for entry in made.excluded] == [None]


def test_a_parameter_can_be_compared():
    entry = {"field": "parameters.tensor_parallel", "base": 1}
    assert study(ASKED, trainers=trainers(), compare=[entry]).compare == (entry,)
    message = refused(ASKED, trainers=trainers(), compare=[entry | {"base": 3}])
    assert "no run has the parameters.tensor_parallel 3; there are: 1, 2, 4" in message
    wrong = entry | {"field": "parameters.tensor_paralel"}
    message = refused(ASKED, trainers=trainers(), compare=[wrong])
    assert "did you mean 'parameters.tensor_parallel'?" in message


@pytest.mark.parametrize("text", ["'\"><svg", "{{7*7}} $(x)", "'<b>=1'"])
def test_a_text_that_no_run_of_ours_has_gives_no_columns_and_stays_as_it_is(text):
    assert parameters.column_values(text) == {}
    assert parameters.text_without(text, []) == text
