"""What a config says of a user's pictures (data.images.NAME), and whether they have changed."""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dlbench.common import own_code, plugins
from dlbench.common.files import json_digest, read_json, write_json
from dlbench.data import picture_index
from dlbench.data.picture_index import TRAIN, VALIDATION, Index, IndexingError
from dlbench.trainer.reading import manifest

NOTED = "index.json"  # digests of the contents, beside the manifest
FORMS = ("parquet", "webdataset")  # files in forms/
SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".tar": "webdataset"}
# Keys that only some forms have, and to which they belong; all pictures have the others.
OF_FORMS = {
    "columns": ("csv", "parquet"),
    "validation": ("webdataset",),
}
# Others need not know where pictures lie.
PLACES = ("path", "csv", "parquet", "webdataset", "validation")
CODE = (
    *("datasets/images.py", "convert_pictures.py", "own_pictures.py", "picture_index.py"),
    *("pictures.py", "sources.py", "forms/parquet.py", "forms/webdataset.py"),
)


@dataclass(frozen=True)
class Settings:
    """What data.images.NAME says in a config; docs/config.md describes it.

    Attributes:
        path: folder with the pictures; if there is a `csv`, its paths are relative to it.
        csv: file that lists pictures and labels.
        parquet: a file, or the folder of them.
        webdataset, validation: patterns of the names of shards.
        columns: names of the column of pictures and of that of labels.
        validation_share: of the pictures of each class that is held out, between 0 and 1.
        image_size: (height, width) of what is stored; None: pictures keep their sizes.
        max_unreadable: the share of the pictures that may be left out.

    Raises:
        IndexingError: keys contradict one another.
    """

    path: str | None = None
    csv: str | None = None
    parquet: str | None = None
    webdataset: str | None = None
    validation: str | None = None
    columns: tuple[str, str] | None = None
    validation_share: float = 0.2
    seed: int = 1
    image_size: tuple[int, int] | None = None
    max_unreadable: float = 0

    def __post_init__(self) -> None:
        forms = [key for key in ("csv", *FORMS) if getattr(self, key)]
        if len(forms) > 1 or (self.path and forms not in ([], ["csv"])):
            raise IndexingError(
                f"expected one place of pictures, found {' and '.join([*forms, 'path'][:2])}: "
                "give each dataset a name of its own"
            )
        form = forms[0] if forms else "path"
        for key, having in OF_FORMS.items():
            if key in self.given and form not in having:
                raise IndexingError(f"{key}: only with {' or '.join(having)}, found {form}")

    @property
    def given(self) -> dict[str, Any]:
        """What differs from the defaults, with absolute paths."""
        values = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {
            key: os.path.abspath(value) if key in PLACES else value
            for key, (value, default) in values.items()
            if value != default
        }

    @property
    def form(self) -> ModuleType | None:
        """What reads pictures that are packed into larger files; None: each is a file."""
        key = next((key for key in FORMS if getattr(self, key)), None)
        return plugins.load("forms", key) if key else None

    def index(self, place: Path | None = None) -> Index:
        """The pictures.

        `place`: empty folder for what must be unpacked to be read; None: nothing will be read.
        Raises IndexingError: they or their classes are not as expected.
        """
        if self.form:
            index = self.form.index(self.given, place)
        elif self.csv:
            table = Path(self.csv).resolve()
            index = picture_index.of_csv(table, self.folder, self.columns or ("file", "label"))
        else:
            index = picture_index.of_folder(self.folder)
        picture_index.check_classes(index)
        return index

    def files(self) -> tuple[list[str] | None, Mapping[str, picture_index.Group]]:
        """(classes, files of which the contents are digested).

        Classes are None if pictures are in files with others: these are not opened. Raises
        IndexingError: files are missing; or as `index`, if each picture is a file.
        """
        if not self.form:
            index = self.index()
            return index.classes, index.groups
        try:
            return None, {
                f"{part}/{path.relative_to(self.folder)}": picture_index.group(
                    [(str(path.relative_to(self.folder)), stat.st_size, stat.st_mtime_ns)]
                )
                for part, paths in self.form.files(self.given).items()
                for path in paths
                for stat in [path.stat()]
            }
        except OSError as error:
            raise IndexingError(f"{error.filename} cannot be read: {error.strerror}") from error

    @property
    def folder(self) -> Path:
        """Below which all files are."""
        if self.form:
            places = [text for key, text in self.given.items() if key in PLACES]
            return Path(os.path.commonpath([_fixed_folder(text) for text in places]))
        if self.csv and not self.path:
            return Path(self.csv).resolve().parent
        return Path(self.path or "").resolve()


class Identified(NamedTuple):
    """A user's pictures as they are now.

    Attributes:
        digest: of the names and contents, of the settings on which records depend, and of the code
            that makes records.
    """

    folder: Path
    digest: str


def has_source(given: Mapping[str, Any]) -> bool:
    """Whether a config says where the pictures are; it need not if a store has them converted."""
    return any(given.get(key) for key in PLACES)


def at(path: Path) -> dict[str, str]:
    """What a config says of pictures at a path, by the names of the files there; they are checked.

    Raises IndexingError: pictures or their classes are not as expected.
    """
    place = os.path.abspath(path)
    found = {SUFFIXES.get(path.suffix.lower(), "path"): place}
    if any(any((path / inside).glob("*.parquet")) for inside in ("", "data", TRAIN)):
        found = {"parquet": place}
    elif any(path.glob("*.tar")):
        parts = [part for part in (TRAIN, *VALIDATION) if any(path.glob(f"{part}*.tar"))]
        patterns = [f"{place}/{part}*.tar" for part in parts] or [f"{place}/*.tar"]
        found = dict(zip(("webdataset", "validation"), patterns, strict=False))
    given: Mapping[str, Any] = found
    Settings(**given).index()
    return found


def identify(name: str, given: Mapping[str, Any], output: Path) -> Identified:
    """Find and digest the pictures that data.images.NAME says.

    `output`: folder of the converted dataset, where digests are noted. Raises IndexingError:
    pictures or their classes are not as expected.
    """
    settings = Settings(**given)
    return Identified(settings.folder, digest(settings, of_content(name, settings, output)))


def of_content(name: str, settings: Settings, output: Path) -> str:
    """The digest of names, classes and contents, which are read if they have changed.

    Digests are noted in the folder of the converted dataset, so that what has not changed since, by
    names, sizes and times, is read once only: not by a dry run, the start and its job. Raises
    IndexingError: pictures or their classes are not as expected.
    """
    classes, groups = settings.files()
    known, what = read_json(output / NOTED), f"{name}: reading {settings.folder}"
    found = picture_index.contents(what, settings.folder, groups, known)
    if found != known:
        with contextlib.suppress(OSError):  # a folder of another user: they are read again
            output.mkdir(parents=True, exist_ok=True)
            write_json(output / NOTED, found)
    return picture_index.digest(classes, found)


def digest(settings: Settings, of_content: str) -> str:
    """The digest of all that records depend on."""
    code = own_code.digest([str(plugins.LIBRARY / "data" / file) for file in CODE])
    kept = {key: value for key, value in settings.given.items() if key not in PLACES}
    kept.pop("max_unreadable", None)
    return json_digest([of_content, kept, code])


def _fixed_folder(place):
    """The folder of a place, which may be a pattern of names."""
    fixed = re.split(r"[{*?\[]", place)[0]
    return fixed if fixed == place and os.path.isdir(place) else os.path.dirname(fixed)


def as_converted(given: Mapping[str, Any], output: Path) -> Identified | None:
    """A user's pictures as they were converted into a folder, which are not read; None: not yet."""
    content = read_json(output / manifest.NAME)
    found = content.get("code_sha256") if isinstance(content, dict) else None
    return Identified(Settings(**given).folder, found) if found else None
