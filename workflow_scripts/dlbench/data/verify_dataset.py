"""Whether a converted dataset is still what was written."""

import json
from pathlib import Path

from dlbench.common.files import sha256
from dlbench.data.tfrecord import RecordError, payloads


def verify(folder, content=True):
    """Compare the shards in `folder` with its manifest.

    Args:
        content: also read every record; else sizes only.

    Returns:
        One line for each thing that is wrong; none where all is well.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [f"{folder}: no manifest.json; is this the folder of a converted dataset?"]
    except ValueError as error:
        return [f"{folder}/manifest.json is not JSON ({error}); convert the dataset again"]
    place = Path(manifest.get("folder", folder))
    shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return [problem for shard in shards if (problem := _problem(place, shard, content))]


def _problem(folder, shard, content):
    path = folder / shard["file"]
    if not path.is_file():
        return f"{path}: missing"
    size_bytes = path.stat().st_size
    sized = f"expected {shard['bytes']} bytes, found {size_bytes}"
    if not content:
        return f"{path}: {sized}" if size_bytes != shard["bytes"] else None
    found = 0
    try:
        with open(path, "rb") as file:
            for _ in payloads(file, path):
                found += 1
    except RecordError as error:
        return f"{error} ({found} of {shard['records']} records are whole; {sized})"
    if found != shard["records"]:
        return f"{path}: {found} of {shard['records']} records (manifest); {sized}"
    digest = sha256(path)
    if shard["sha256"] not in (None, digest):
        return f"{path}: expected sha256 {shard['sha256']}, found {digest}"
    return None
