"""options: those of runtimes, as they are written in a config."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import options, plugins

NAMES = plugins.names("runtimes")
KNOWN = {name: plugins.load("runtimes", name).OPTIONS for name in NAMES}


def text(name, given):
    return options.canonical_text("runtime", name, KNOWN[name], given)


def parse(name, given):
    return options.parse("runtime", name, KNOWN[name], given)


cases = st.sampled_from(NAMES).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.fixed_dictionaries(
            {}, optional={option: st.sampled_from(v) for option, v in KNOWN[name].items()}
        ),
    )
)


@given(cases)
def test_options_of_runtimes_come_back_from_their_text(case):
    name, given = case
    defaults = {option: values[0] for option, values in KNOWN[name].items()}
    assert parse(name, text(name, given)) == defaults | given
    assert text(name, parse(name, text(name, given))) == text(name, given)


@given(cases)
def test_the_name_of_a_form_can_be_that_of_a_file(case):
    name, given = case
    module = plugins.load("runtimes", name)
    if module.CONTAINED:
        form = module.form(parse(name, text(name, given)))
        assert form == "image" or form.replace("-", "").isalnum()
        assert form != "image"


def test_true_and_false_are_understood_as_yaml_and_as_python_have_them():
    known = {"timeline": False}
    for word, value in {"true": True, "True": True, "false": False, "False": False}.items():
        assert options.parse("strategy", "horovod", known, f"timeline={word}")["timeline"] is value
    with pytest.raises(Error, match="expected true or false, found 'yes'"):
        options.parse("strategy", "horovod", known, "timeline=yes")


@pytest.mark.parametrize("name", NAMES)
def test_defaults_need_no_words_and_come_first(name):
    defaults = {option: values[0] for option, values in KNOWN[name].items()}
    assert text(name, {}) == text(name, defaults) == ""
    assert parse(name, "") == defaults


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_each_of_its_values_is_described(name):
    module = plugins.load("runtimes", name)
    for option, values in module.OPTIONS.items():
        assert f"\n    {option} " in module.__doc__
        assert all(value in module.__doc__ for value in values)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("udocker", {"execmod": "P1"},
         "runtime udocker has no option 'execmod' (did you mean 'execmode'?); there are: execmode"),
        ("podman", {"start": "command"}, "runtime podman has no option 'start'; there are: none"),
        ("bare", {"execmode": "P1"}, "runtime bare has no option 'execmode'; there are: none"),
        ("udocker", {"execmode": "p1"},
         "runtime option execmode: expected one of P1, P2, F1, F2, F3, F4, R1, S1, found 'p1'"),
        ("udocker", {"execmode": 1}, "F4, R1, S1, found 1"),
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
