"""The kinds of logs: modules in importers/, and files of patterns in patterns/, by their names."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.imports.pattern_reading.pattern_importer import KIND, PatternImporter
from dlbench.plan import pattern_check
from dlbench.study import config_schema, log_patterns, yaml_files

IMPORTERS = "importers"
OF_FILES = ("about", "recognise", "unless", "columns")  # keys of files beside those of a config


def names() -> list[str]:
    """The names of all kinds of logs, in alphabetical order."""
    return sorted({*plugins.names(IMPORTERS), *log_patterns.names()})


def load(kind: str) -> Any:
    """The importer of a kind of log: a module, or a PatternImporter.

    Raises:
        Error: there is none, or its file of patterns has mistakes.
    """
    return _of_file(kind) if kind in log_patterns.names() else plugins.load(IMPORTERS, kind)


def summary(kind: str) -> str:
    """One line on a kind of log."""
    importer = load(kind)
    text = importer.about if isinstance(importer, PatternImporter) else importer.__doc__
    return text.strip().splitlines()[0]


def of_user(kind: str) -> PatternImporter | None:
    """The importer that a file of patterns of the user is; None of a name, which is checked.

    Raises:
        Error: there is no such kind of log, or the file has mistakes.
    """
    if kind.endswith(log_patterns.SUFFIX):
        importer = _read_file(Path(kind), config_schema.check_log_patterns)
        pattern_check.check_patterns(importer.patterns, kind)
        return importer
    if kind not in names():
        raise Error(f"there is no importer {kind}{phrases.did_you_mean(kind, names())}")
    return None


def of_config(patterns: Mapping[str, Any], processes: int) -> PatternImporter:
    """The importer for the log of a run, by the patterns of its trainer.

    Args:
        processes: how many train the run.
    """
    parsed = log_patterns.parse(patterns, "log")
    return PatternImporter(KIND, parsed, processes=processes)


@functools.cache
def _of_file(kind):
    return _read_file(log_patterns.path(kind), lambda entry: None)  # tests check those of ours


def _read_file(path, check):
    """The importer that a file of patterns is.

    Raises:
        Error: the file has mistakes, other than that RE2 cannot read a pattern.
    """
    content = yaml_files.read(path)
    content = content if isinstance(content, dict) else {}
    about, marks, unless = (content.get(key, []) for key in OF_FILES[:3])
    columns = content.get("columns", {})
    if type(about) is not str or not (marks and _are_texts(marks)):
        raise Error(f"{path}: expected about, recognise (a list of texts) and patterns")
    if not _are_texts(unless) or not isinstance(columns, dict):
        raise Error(f"{path}: expected unless as a list of texts, and columns as name: value")
    entry = {key: value for key, value in content.items() if key not in OF_FILES}
    try:
        check(entry)
        parsed = log_patterns.parse(entry, "patterns")
    except Error as error:
        raise Error(f"{path}: {error}") from None
    return PatternImporter(
        path.stem,
        parsed,
        about=about,
        marks=tuple(marks),
        unless=tuple(unless),
        columns=tuple(columns.items()),
    )


def _are_texts(value):
    return isinstance(value, list) and all(type(text) is str for text in value)
