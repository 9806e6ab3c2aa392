"""Stores of converted datasets that somebody else made."""

import hashlib
import json
import re
from pathlib import Path

from dlbench import Error
from dlbench.common.files import sha256

SPLIT_NAMES = {"train": ("train",), "validation": ("validation", "test")}


class AdoptionError(Error):
    """A folder of TFRecords cannot be used; the message says what is there and what is not."""


def found(study):
    """The datasets of a study that are there already: name to (folder, digest).

    The digest stands for the content: that of the code which converted a store, as for our
    own conversions, or that of the names and sizes of other shards.

    Raises:
        AdoptionError: a folder that the config names has no shards.
    """
    names = {run.dataset for run in study.runs}
    adopted = {}
    for name in sorted(names):
        store = Path(study.data["store"] or "/nonexistent", name)
        if name in study.data["tfrecords"]:
            folder = Path(study.data["tfrecords"][name]).resolve()
            paths = [path for split in SPLIT_NAMES for path in shards(folder, split)]
            listing = "\n".join(f"{path.name} {path.stat().st_size}" for path in paths)
            adopted[name] = folder, hashlib.sha256(listing.encode()).hexdigest()
        elif (store / "manifest.json").is_file():
            manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
            digest = manifest["code_sha256"] or sha256(store / "manifest.json")
            adopted[name] = store.resolve(), digest
    return adopted


def shards(folder, split):
    """The shards of a split, flat or in a folder of their own, under the usual names."""
    if not folder.is_dir():
        raise AdoptionError(f"{folder}: no such folder, or no permission to read it")
    for name in SPLIT_NAMES[split]:
        pattern = re.compile(rf"(.*-)?{name}(\.tfrecords?)?-\d{{5}}-of-\d{{5}}(\.tfrecords?)?")
        for place in (folder, folder / name):
            if place.is_dir():
                found = sorted(p for p in place.iterdir() if pattern.fullmatch(p.name))
                if found:
                    return _all_there(found)
    there = sorted(path.name for path in folder.iterdir())
    raise AdoptionError(
        f"{folder}: no shards of the split {split} (as in {split}-00000-of-00128), neither flat "
        f"nor in {split}/; there are {len(there)} entries: {', '.join(there[:5])}"
    )


def _all_there(paths):
    count = int(re.search(r"-of-(\d{5})", paths[0].name)[1])
    if len(paths) != count:
        numbers = {int(re.search(r"-(\d{5})-of-", path.name)[1]) for path in paths}
        missing = sorted(set(range(count)) - numbers)
        raise AdoptionError(
            f"{paths[0].parent}: {count} shards announced in the names, {len(paths)} there; "
            f"missing: {', '.join(f'{number:05d}' for number in missing[:5])}"
        )
    return paths
