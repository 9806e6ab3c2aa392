"""command_line and options: numbers of command lines, and options as a config has them."""

import argparse
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import command_line, options, plugins
from support.machines.paths import REPOSITORY
from support.programs import in_process

PROGRAMS = REPOSITORY / "workflow_scripts"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "ten", "", "0", "-1"])
def test_a_real_number_is_finite_and_above_its_bound(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected a number above 0, found"):
        command_line.real(above=0)(text)


def test_a_real_number_may_be_its_least_or_its_most():
    share = command_line.real(0, maximum=1)
    assert [share("0"), share("1e-3"), share("1")] == [0, 0.001, 1]
    expected = "expected a number of at least 0 and at most 1, found '{}'"
    for text in ("-0.1", "1.1"):
        with pytest.raises(argparse.ArgumentTypeError, match=expected.format(text)):
            share(text)


@pytest.mark.parametrize("text", ["1.5", "10.0", "nan", "", "-1", "0", "9" * 23, "²", "ten"])
def test_a_whole_number_is_one_that_a_table_can_hold(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number of at least 1"):
        command_line.whole(1)(text)


def test_a_name_is_that_of_a_file_or_begins_with_that_of_a_file_for_many_things():
    for name in ("digits", "text", "text_books"):
        assert command_line.name_of("datasets")(name) == name
    with pytest.raises(argparse.ArgumentTypeError, match="did you mean 'digits'"):
        command_line.name_of("datasets")("digit")


def test_no_program_takes_a_number_that_may_be_infinite():
    for path in [*PROGRAMS.glob("*.py"), *PROGRAMS.glob("dlbench/command/**/*.py")]:
        assert not re.findall(r"type=(?:float|int)\b", path.read_text()), path.name


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["status", "--watch", "nan"], "--watch"),
        (["check-site", "--timeout", "inf"], "--timeout"),
        (["compare", "a", "b", "--margin", "nan"], "--margin"),
        (["verify", "a.zip", "--limit-gb", "nan"], "--limit-gb"),
    ],
)
def test_a_program_names_the_option_and_what_it_expects(words, option):
    done = in_process.dlbench(*words)
    assert done.returncode == 2
    assert f"argument {option}: expected a" in done.stderr.splitlines()[-1]


NAMES = plugins.names("runtimes")
KNOWN = {name: plugins.load("runtimes", name).OPTIONS for name in NAMES}


def text(name, given):
    return options.canonical_text("runtime", name, KNOWN[name], given)


def parse(name, given):
    return options.parse("runtime", name, KNOWN[name], given)


def values_of(name):
    each = {option: st.sampled_from(values) for option, values in KNOWN[name].items()}
    return st.tuples(st.just(name), st.fixed_dictionaries({}, optional=each))


@given(st.sampled_from(NAMES).flatmap(values_of))
def test_options_of_runtimes_come_back_from_their_text_and_name_a_form(case):
    name, given = case
    defaults = {option: values[0] for option, values in KNOWN[name].items()}
    assert parse(name, text(name, given)) == defaults | given
    assert text(name, parse(name, text(name, given))) == text(name, given)
    assert text(name, {}) == text(name, defaults) == "" and parse(name, "") == defaults
    module = plugins.load("runtimes", name)
    if module.CONTAINED:  # the name of a form can be that of a file
        form = getattr(module, "form", lambda _: name)(defaults | given)
        assert form.replace("-", "").replace("_", "").isalnum() and form != "image"


def test_true_and_false_are_understood_as_yaml_and_as_python_have_them():
    known = {"timeline": False}
    for word, value in {"true": True, "True": True, "false": False, "False": False}.items():
        assert options.parse("strategy", "horovod", known, f"timeline={word}")["timeline"] is value
    with pytest.raises(Error, match="expected true or false, found 'yes'"):
        options.parse("strategy", "horovod", known, "timeline=yes")


def test_every_option_and_each_of_its_values_is_described():
    for name in NAMES:
        described = plugins.load("runtimes", name).__doc__
        for option, values in KNOWN[name].items():
            assert f"\n    {option} " in described
            assert all(value in described for value in values), name


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("udocker", {"execmod": "P1"},
         "runtime udocker has no option 'execmod' (did you mean 'execmode'?); there are: execmode"),
        ("podman", {"start": "command"}, "runtime podman has no option 'start'; there are: none"),
        ("udocker", {"execmode": "p1"},
         "runtime option execmode: expected one of P1, P2, F1, F2, F3, F4, R1, S1, found 'p1'"),
        ("apptainer", {"start": True}, "expected one of auto, directive, command, found True"),
    ],
)  # fmt: skip
def test_what_a_runtime_does_not_know_is_refused_with_what_it_does(name, given, message):
    with pytest.raises(Error) as error:
        text(name, given)
    assert message in str(error.value)


@pytest.mark.parametrize("given", ["execmode", "execmode=", "=P1", "execmode=P1=P2", "P1"])
def test_a_text_that_makes_no_sense_is_refused(given):
    with pytest.raises(Error):
        parse("udocker", given)
