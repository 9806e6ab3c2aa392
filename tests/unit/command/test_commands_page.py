"""The page of all commands: what it has of each parser."""

import re

from dlbench.command import dispatch


def sections():
    _, *parts = re.split(r"^### (\S+)\n", dispatch.commands_page(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_each_option_of_each_command_is_in_its_section():
    found = sections()
    assert list(found) == dispatch.names()  # in the order of the help
    for name, section in found.items():
        for action in dispatch.parser(name)._actions:
            for option in action.option_strings[:1] if action.dest != "help" else ():
                assert f"| `{option}" in section, name


def test_the_usage_names_what_must_be_given():
    usages = {name: section.split("`")[1] for name, section in sections().items()}
    assert usages["compare"] == "dlbench compare A [B] [OPTIONS]"
    assert usages["check-site"] == "dlbench check-site --profile PROFILE [OPTIONS]"
    assert usages["completion"] == "dlbench completion {bash,zsh,fish}"
    assert usages["run"] == "dlbench run [STUDY [TARGETS AND OPTIONS OF SNAKEMAKE]]"


def test_each_argument_has_a_meaning_in_one_line():
    page = dispatch.commands_page()
    assert "`--fail-on" in page and "%%" not in page
    for line in page.splitlines():
        if line.startswith("| `"):
            _, argument, meaning, end = re.split(r"(?<!\\)\|", line)
            assert argument.strip() and meaning.strip() and not end, line
