"""flag_types: numbers of command lines, in every program that takes one."""

import argparse
import re

import pytest

from dlbench.common import command_line
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
