"""Parameters of other programs, formulas and variables: axes whose names a study chooses."""

import dataclasses
import time
from fractions import Fraction
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.run_fields import DECLARED, DEFAULTS
from dlbench.plan import run_command
from dlbench.study import other_trainers, parameters
from dlbench.study.runs import Run
from dlbench.trainer import containment, flags
from support.studies.made_studies import BLOCK, refused, study

NUMBERS = {"a": Fraction(6), "b": Fraction(4), "half": Fraction(1, 2), "zero": Fraction(0)}


def value(text):
    return parameters.evaluate(text, NUMBERS.__getitem__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a} * {b}", 24), ("{a} / {b}", Fraction(3, 2)), ("{a}//{b}", 1), ("{a} % {b}", 2),
        ("{b} ** 3", 64), ("2 ** -1", Fraction(1, 2)), ("-({a} - {b})", -2), ("+{a}", 6),
        ("max({a}, {b}, 1)", 6), ("min({a},{b})", 4), ("0.1 * 3 * {half}", Fraction(3, 20)),
        ("{a} + {b} * 2", 14), ("({a} + {b}) * 2", 20), (" 1024 ", 1024),
    ],
)  # fmt: skip
def test_arithmetic_is_exact(text, expected):
    assert value(text) == expected


HOSTILE = [
    "__import__('os').system('touch x')", "{a}.real", "{a}.__class__", "{a}[0]", "{a}{b}",
    "2{a}", "min{a}", "max(1)", "min(*[1, 2])", "max()", "min(1, 2)(3)", "(min)", "abs({a})",
    "lambda: 1", "1 if 2 else 3", "[1, 2]", "{a}, {b}", "1 < 2", "'x' * 9", "x", "_0", "n0 + {a}",
    "1e999", "0x10", "1_000", "1j", "\u0661 + 1", "{a} = 1", "print(1)", "()", "", "{a", "a}",
    "{{a}}", "{a} @ {b}", "not 1", "~1", "1 | 2", "1 << 9", "{a!r}", "{a:>9}", "1; 2", "1\n+ 2",
    "(", ")", "1 +", "* 2", "... + 1", "min(1, 2, key=3)", "max(-)", "f(1, 2)", "minmax(1, 2)",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_arithmetic_is_refused(text):
    with pytest.raises((Error, KeyError)):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9", "9 ** 64 ** 1 ** 1 * 9 ** 64", "2 ** 65", "2 ** -65", "2 ** 0.5",
        "(2 ** 64) ** 64", "(0.1 ** 64) ** 64", "9" * 200, "{a}" * 200, "(" * 199, "-" * 199,
        "+".join(["1"] * 200), "(" * 95 + "1" + ")" * 95 + "**" + "9" * 9, "1/" + "9" * 190,
    ],
)  # fmt: skip
def test_what_would_be_huge_or_deep_is_refused_at_once(text):
    started_s = time.perf_counter()
    with pytest.raises(Error):
        value(text)
    assert time.perf_counter() - started_s < 1


@pytest.mark.parametrize("text", ["1 / 0", "1 // {zero}", "{a} % 0", "{zero} ** -1"])
def test_a_division_by_zero_is_said(text):
    with pytest.raises(Error, match="divides by zero"):
        value(text)


def test_a_formula_is_a_text_with_a_brace():
    assert parameters.is_formula("{a}")
    assert not any(map(parameters.is_formula, ("max", 2, None, True, ["{a}"])))
    assert parameters.names_in("{a} * {b} + {a}") == ["a", "b", "a"]


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
        (DDP, "accelerate", {"rdzv_conf": "timeout=9"}, ["--rdzv_conf=timeout=9"]),
        (DDP, "mpiexec", {"iface": "ib0"}, ["--iface=ib0"]),
        (DDP, "flux", {"queue": "pdebug"}, ["--queue=pdebug"]),
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
        ("flux", {"ntasks": 4}, "ntasks of launcher flux is set by dlbench"),
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
    assert "launcher none takes no options; these do: accelerate, deepspeed, flux, horo" in message
