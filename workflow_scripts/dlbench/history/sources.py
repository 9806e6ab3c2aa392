"""The campaigns that a config names under `history`, and which of them have to be added still.

- A source is an archive or a results folder; a folder of these stands for all of them.
- What was added is written down in one small file a source (its receipt), with the state that the
  source had: a source is added again only if that has changed, or a file of it was lost.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code
from dlbench.common.files import json_digest, read_json

HISTORY, RESULTS = Path("history"), Path("results/history")
RECEIPTS = RESULTS / "added"
OPTIONS = ("site", "date", "corrects")
RECEIPT_VERSION = 1  # raised if the same source gives other rows


@dataclass(frozen=True)
class Source:
    """An archive or a results folder.

    Attributes:
        path: as the config leads to it.
        options: of OPTIONS, as its entry has them.
    """

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its receipt: readable, and of this path alone."""
        readable = re.sub(r"[^A-Za-z0-9]+", "_", Path(self.path).stem).strip("_")[-40:]
        return f"{readable or 'source'}-{hashlib.sha256(self.path.encode()).hexdigest()[:10]}"

    @property
    def receipt(self) -> str:
        return str(RECEIPTS / f"{self.name}.json")

    def state(self) -> str:
        """A digest that changes with the source, by sizes and dates of its files."""
        path = Path(self.path)
        folder = results_folder(path)
        looked_at = [path] if folder is None else _files_of_state(folder)
        files = [(str(p), s.st_size, s.st_mtime_ns) for p in looked_at if (s := p.stat())]
        return json_digest([RECEIPT_VERSION, dict(self.options), files])

    def is_added(self) -> bool:
        """Whether its receipt is of its present state, and all files that this names exist."""
        receipt = read_json(self.receipt) or {}
        if receipt.get("state") != self.state():
            return False
        return all((HISTORY / name).is_file() for name in receipt["files"])


def sources(
    entries: Iterable[str | Mapping[str, Any]], names_of_machines: Mapping[str, Sequence[str]]
) -> list[Source]:
    """The sources of a config's `history`.

    `names_of_machines`: `machines` of the config, which is checked. Raises Error: there is nothing
    at a path, one is named twice, or `machines` contradicts itself.
    """
    machine_names(names_of_machines)
    found: dict[str, Source] = {}
    for index, entry in enumerate(entries):
        entry = {"path": entry} if isinstance(entry, str) else entry
        options = {name: entry[name] for name in OPTIONS if name in entry}
        for path in _below(Path(entry["path"]), f"history[{index}]"):
            source = Source(str(path), options)
            if source.path in found:
                raise Error(f"history[{index}]: {path} is named twice; leave one out")
            found[source.path] = source
    return list(found.values())


def machine_names(machines: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """{key: name} of the keys in `machines` of a config. Raises Error: a key is of two machines."""
    names: dict[str, str] = {}
    for machine, keys in machines.items():
        for one in keys:
            if names.setdefault(one, machine) != machine:
                raise Error(
                    f"machines: the key {one} is given to {names[one]} and to {machine}: "
                    "a key is of one machine; leave it out of one of the two"
                )
    return names


def results_folder(path: Path) -> Path | None:
    """The folder with `runs` of a results folder, a project or an unpacked archive; None: none."""
    folders = (path, path / "results", path / "data" / "results")
    return next((folder for folder in folders if (folder / "runs").is_dir()), None)


def foreign_files(all_sources: Sequence[Source]) -> str:
    """A digest of the names in the history that no receipt of these sources has.

    Those of other sites that were copied into it, and marks of what was taken back.
    """
    own = {
        name
        for source in all_sources
        for name in (read_json(source.receipt) or {}).get("files", ())
    }
    names = {str(path.relative_to(HISTORY)) for path in HISTORY.glob("site=*/year=*/*")}
    return json_digest(sorted(names - own))


def _below(path, where):
    if not path.exists():
        looked = own_code.search_hint(str(path))
        raise Error(f"{where}: there is no archive or results folder {path}{looked}")
    if path.is_file() or results_folder(path):
        return [path]
    children = [p for p in sorted(path.iterdir()) if p.suffix == ".zip" or results_folder(p)]
    if not children:
        raise Error(
            f"{where}: {path}: expected a results folder (runs/*/run.json), an archive (.zip), "
            "or a folder of these, found neither"
        )
    return children


def _files_of_state(folder):
    sessions = folder / "sessions"
    files = *sorted(folder.glob("runs/*/run.json")), *sorted(sessions.glob("*.done"))
    return [*files, *sessions.glob("current.json")]
