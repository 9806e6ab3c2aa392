"""Stores: existing folders of TFRecords, and those that a study uses."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dlbench import Error
from dlbench.common import own_code, phrases, plugins
from dlbench.common.files import read_json, sha256
from dlbench.data import own_pictures, texts
from dlbench.trainer.reading import manifest

SPLIT_NAMES = {"train": ("train",), "validation": ("validation", "test")}


class AdoptionError(Error):
    """A folder of TFRecords cannot be used; the message says what was expected and found."""


class UsesDatasets(Protocol):
    """The attributes of a study (dlbench/study/config.py) that this module needs."""

    @property
    def runs(self) -> Sequence[Any]: ...

    @property
    def data(self) -> Mapping[str, Any]: ...


class Store(NamedTuple):
    """An existing folder of TFRecords.

    Attributes:
        digest: identifies the content. For a store that dlbench converted: the digest of the
            converting code. For shards of other tools: a digest of their names and sizes and of
            the dataset's file, which describes how to read them.
    """

    folder: Path
    digest: str


def adopted(study: UsesDatasets, as_converted: bool = False) -> dict[str, Store]:
    """The stores that a study uses instead of converting datasets, by the dataset's name.

    Args:
        as_converted: whether a user's pictures, which may be a million, are taken as they were
            converted, and not looked for: only a start compares them.

    Raises:
        AdoptionError: a folder that the config names has no shards.
    """
    stores = {}
    for name in sorted({run.dataset for run in study.runs}):
        folder = Path(study.data["store"] or "/nonexistent", name)
        is_known = plugins.is_known("datasets", name)
        given = study.data["images"].get(name, {})
        from_folder = is_known and plugins.constants("datasets", name).get("FROM_FOLDER")
        if from_folder and (text_folder := _text_folder(name, study.data["text"])):
            stores[name] = _user_text(name, text_folder)
        elif own_pictures.has_source(given):
            stores[name] = _user_pictures(name, given, as_converted)
        elif name in study.data["tfrecords"]:
            folder = Path(study.data["tfrecords"][name]).resolve()
            paths = [path for split in SPLIT_NAMES for path in shards(folder, split)]
            listing = [f"{path.name} {path.stat().st_size}" for path in paths]
            listing.append(own_code.digest([str(plugins.path("datasets", name))]))
            digest = hashlib.sha256("\n".join(listing).encode()).hexdigest()
            stores[name] = Store(folder, digest)
        elif (folder / manifest.NAME).is_file():
            stores[name] = Store(folder.resolve(), _manifest_digest(folder))
        elif from_folder:
            raise AdoptionError(_missing_folder_message(name, study.data))
    return stores


def of_pictures(study: UsesDatasets) -> list[str]:
    """The names of the datasets that are the user's pictures, and converted here."""
    given = study.data["images"].items()
    return [name for name, settings in given if own_pictures.has_source(settings)]


def _manifest_digest(folder):
    """The digest that identifies a store which dlbench converted."""
    path = folder / manifest.NAME
    content = read_json(path) or {}
    # In an unpacked archive there is a manifest without data.
    is_of_archive = content.get("folder", "") is None
    content = content if is_of_archive else manifest.read(folder)
    return content.get("code_sha256") or sha256(path)


def _text_folder(name, settings):
    """The folder of a user's text: `path` for the dataset text, `folders[NAME]` for text_NAME."""
    _, _, text_name = name.partition("_")
    return settings.get("folders", {}).get(text_name) if text_name else settings.get("path")


def _missing_folder_message(name, data):
    if name in data["images"] or name == "images":
        own = name if name in data["images"] else "photos"
        return (
            f"dataset {name} is pictures of your own: set their folder in data.images, as in "
            f"{{{own}: {{path: /data/{own}}}}}, which is the dataset {own}"
        )
    settings = data["text"]
    _, _, text_name = name.partition("_")
    folders = settings.get("folders", {})
    example = (
        f"{{folders: {{{text_name}: /home/me/{text_name}}}}}"
        if text_name
        else "{path: /home/me/books}"
    )
    return (
        f"dataset {name} is your own text: set its folder in data.text, as in {example}"
        f"{phrases.did_you_mean(text_name, folders)}"
    )


def _user_text(name, text_folder):
    """The store of a user's text; its digest is that of the text and of the dataset's file."""
    folder = Path(text_folder).resolve()
    try:
        digest = hashlib.sha256(texts.read(folder))
    except Error as error:
        raise AdoptionError(f"dataset {name}: {error}") from error
    digest.update(own_code.digest([str(plugins.path("datasets", name))]).encode())
    return Store(folder, digest.hexdigest())


def _user_pictures(name, given, as_converted):
    """The store of a user's pictures."""
    output = Path("results/data", name)
    if as_converted and (before := own_pictures.as_converted(given, output)):
        return Store(*before)
    try:
        return Store(*own_pictures.identify(name, given, output))
    except Error as error:
        raise AdoptionError(f"dataset {name}: {error}") from error


def recipes(adopted: Mapping[str, Store]) -> dict[str, str]:
    """The digests of adopted stores by the dataset's name, to compare with those in records."""
    return {name: store.digest for name, store in adopted.items()}


def shards(folder: Path, split: str) -> list[Path]:
    """The shards of a split in order, from `folder` or from its subfolder for the split.

    Raises:
        AdoptionError: there are none, or fewer than their names state.
    """
    if not folder.is_dir():
        hint = own_code.search_hint(folder)
        raise AdoptionError(f"{folder}: no such folder, or no permission to read it{hint}")
    for name in SPLIT_NAMES[split]:
        pattern = re.compile(rf"(.*-)?{name}(\.tfrecords?)?-\d{{5}}-of-\d{{5}}(\.tfrecords?)?")
        for place in (folder, folder / name):
            if place.is_dir():
                paths = sorted(p for p in place.iterdir() if pattern.fullmatch(p.name))
                if paths:
                    _check_complete(paths)
                    return paths
    entries = sorted(path.name for path in folder.iterdir())
    raise AdoptionError(
        f"{folder}: no shards of the split {split} (as in {split}-00000-of-00128), neither flat "
        f"nor in {split}/; there are {len(entries)} entries: {', '.join(entries[:5])}"
    )


def _check_complete(paths):
    count = int(re.search(r"-of-(\d{5})", paths[0].name)[1])
    if len(paths) != count:
        existing = {int(re.search(r"-(\d{5})-of-", path.name)[1]) for path in paths}
        missing = sorted(set(range(count)) - existing)
        raise AdoptionError(
            f"{paths[0].parent}: expected {count} shards by their names, found {len(paths)}; "
            f"missing: {', '.join(f'{number:05d}' for number in missing[:5])}"
        )
