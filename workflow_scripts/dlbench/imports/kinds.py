"""The kinds of logs by their names, and the logs in folders, each with its kind by its content.

- Kinds are modules in importers/ and files of patterns in patterns/.
- Hidden files and folders are skipped. Symbolic links are followed, each folder once; but not links
  that lead out of the given folder, since the target may never end (/proc/kmsg). The event files
  that Keras writes into train/ and validation/ belong to one run: they count as files of one
  folder.
"""

import functools
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.common.files import is_below
from dlbench.imports.importers.tensorboard import is_event_file
from dlbench.imports.log_file import LogError, LogFile, is_binary
from dlbench.imports.pattern_importer import KIND, PatternImporter
from dlbench.study import config_schema, log_patterns, yaml_files

IMPORTERS = "importers"
OF_FILES = ("about", "recognise", "unless", "columns")  # keys of files beside those of a config


def names() -> list[str]:
    """The names of all kinds of logs, in alphabetical order."""
    return sorted({*plugins.names(IMPORTERS), *log_patterns.names()})


def load(kind: str) -> Any:
    """The importer of a kind of log: a module, or a PatternImporter.

    An Error if there is none, or its file of patterns has mistakes.
    """
    return _of_file(kind) if kind in log_patterns.names() else plugins.load(IMPORTERS, kind)


def summary(kind: str) -> str:
    """One line on a kind of log."""
    importer = load(kind)
    of_patterns = isinstance(importer, PatternImporter)
    text = importer.about if of_patterns else getattr(importer, "ABOUT", importer.__doc__)
    return text.strip().splitlines()[0]


def of_user(kind: str) -> PatternImporter | None:
    """The importer that a file of patterns of the user is; None of a name, which is checked.

    An Error if there is no such kind of log, or the file has mistakes.
    """
    if kind.endswith(log_patterns.SUFFIX):
        importer = _read_file(Path(kind), config_schema.check_log_patterns)
        log_patterns.check_by_re2(importer.patterns, kind)
        return importer
    if kind not in names():
        raise Error(f"there is no importer {kind}{phrases.did_you_mean(kind, names())}")
    return None


def of_config(patterns: Mapping[str, Any], processes: int) -> PatternImporter:
    """The importer for the log of a run, by the patterns of its trainer.

    `processes`: how many train the run.
    """
    parsed = log_patterns.parse(patterns, "log")
    return PatternImporter(KIND, parsed, processes=processes)


@functools.cache
def _of_file(kind):
    return _read_file(log_patterns.path(kind), lambda entry: None)  # tests check those of ours


def _read_file(path, check):
    """The importer that a file of patterns is.

    An Error if the file has mistakes, other than that RE2 cannot read a pattern.
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


KERAS_PARTS = {"train", "validation"}  # the two folders of one run
SEARCHED_BYTES = 64 * 2**20  # of a file whose beginning no importer knows; takes up to a second
UNKNOWN = "no importer knows it"
LEADS_OUT = "a symbolic link out of the folder; give its target as another path"


@dataclass(frozen=True)
class Candidate:
    """A file that may be a log, or a results folder.

    Attributes:
        name: path relative to the folder that the user gave.
        is_given: whether the user gave this path itself, not a folder above it.
        leads_out: whether it is a symbolic link out of the folder that the user gave.
    """

    path: Path
    name: str
    is_given: bool
    leads_out: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether it is a plain file; reading a device or a pipe may never end."""
        return not self.leads_out and stat.S_ISREG(os.stat(self.path).st_mode)


def candidates_by_folder(
    paths: Sequence[Path | str], is_whole: Callable[[Path], bool]
) -> Iterator[list[Candidate]]:
    """Yield a list of candidates for each folder, sorted by name; files that the user gave first.

    `is_whole`: whether a folder is one candidate, and its files are none. Raises Error: a path does
    not exist.
    """
    given = [Path(path) for path in paths]
    for path in given:
        if not path.exists():
            raise Error(f"{path}: no such file or folder")
    by_folder: dict[str, dict[str, Path]] = {}
    for path in (path for path in given if not path.is_dir()):
        by_folder.setdefault(os.path.realpath(path.parent), {})[path.name] = path
    for files_by_name in by_folder.values():
        yield [Candidate(path, name, True) for name, path in sorted(files_by_name.items())]
    for path in (path for path in given if path.is_dir()):
        yield from _candidates_below(path, is_whole)


def _candidates_below(given, is_whole):
    visited = set()

    def visit(folder, name):
        real = os.path.realpath(folder)
        if real in visited:
            return
        visited.add(real)
        if is_whole(folder):
            yield [Candidate(folder, name or folder.name, name == "")]
            return
        entries = _entries(folder)
        outside = [entry for entry in entries if not is_below(entry, given)]
        below = [entry for entry in entries if entry.is_dir() and entry not in outside]
        candidates = [
            Candidate(entry, f"{name}{entry.name}", False, entry in outside)
            for entry in entries
            if entry not in below
        ]
        parts = _keras_parts(below)
        visited.update(map(os.path.realpath, parts))
        candidates += [
            Candidate(entry, f"{name}{part.name}/{entry.name}", False, not is_below(entry, given))
            for part in parts
            for entry in _entries(part)
        ]
        if candidates:
            yield candidates
        for entry in below:
            yield from visit(entry, f"{name}{entry.name}/")

    yield from visit(given, "")


def _entries(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _keras_parts(folders):
    """The folders train and validation, if both have only event files, as Keras writes; else []."""
    parts = [folder for folder in folders if folder.name in KERAS_PARTS]
    if len(parts) < len(KERAS_PARTS):
        return []
    files = [path for part in parts for path in _entries(part)]
    only_events = all(path.is_file() and is_event_file(LogFile(path).head) for path in files)
    return parts if only_events else []


def choose_importer(
    candidate: Candidate, wanted: str | None = None
) -> tuple[LogFile | None, str | None, str]:
    """(the file as a LogFile, name of its importer or None, why no importer recognises it).

    `wanted`: the user's importer. It reads files that several importers or none recognise, and
    every file that the user gave by its own path. Raises LogError: several importers recognise the
    file, and `wanted` is none of them.
    """
    path = candidate.path
    if candidate.leads_out:
        return None, None, LEADS_OUT
    try:
        if not candidate.is_readable:
            return None, None, "no file"
        log = LogFile(path)
        if not log.beginning:
            return log, None, "empty, or damaged from its beginning"
        names = importers_of(log)
        unknown = UNKNOWN
        if path.stat().st_size > SEARCHED_BYTES:
            unknown += f" by its first {SEARCHED_BYTES // 2**20} MiB"
    except OSError as error:
        return None, None, error.strerror or str(error)
    if wanted and (candidate.is_given or not names or wanted in names):
        return log, wanted, "" if names else unknown
    if len(names) > 1:
        raise LogError(
            f"{path}: a log of several kinds: {', '.join(names)}; choose one with --kind"
        )
    return log, (names[0] if names else None), "" if names else unknown


def importers_of(log: LogFile, modules: Mapping[str, Any] | None = None) -> list[str]:
    """Names of the importers that recognise a log, by its head or else by a later line.

    `modules`: the importers by name; None: those of all kinds of logs.
    """
    modules = modules or {name: load(name) for name in names()}
    recognised = [name for name, module in modules.items() if module.recognise(log)]
    if recognised or is_binary(log.head):
        return recognised
    marks = {name: getattr(module, "LINE_MARKS", ()) for name, module in modules.items()}
    searched_bytes = 0
    try:
        for _, block in log.blocks():
            for name, places in marks.items():
                first = min((at for mark in places if (at := block.find(mark)) >= 0), default=None)
                if first is not None:
                    lines = log.with_head(block[block.rfind(b"\n", 0, first) + 1 :])
                    recognised += [name] if modules[name].recognise(lines) else []
            searched_bytes += len(block)
            if recognised or searched_bytes > SEARCHED_BYTES:
                break
    except LogError:  # binary, or damaged, and no log before that position
        pass
    return recognised
