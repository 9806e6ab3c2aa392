"""A release: its version is one, and the changelog has the form that it says it has."""

import re

import yaml

from dlbench import __version__
from support.machines.paths import REPOSITORY

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def headings(level):
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    return re.findall(rf"^{'#' * level} (.*)$", text, re.MULTILINE)


def test_the_citation_has_the_version_of_the_library():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == __version__


def test_the_changelog_has_what_is_not_released_and_then_versions_with_dates():
    first, *released = headings(2)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in released)
    assert not released or released[0].startswith(f"[{__version__}]")
    assert set(headings(3)) <= KINDS
