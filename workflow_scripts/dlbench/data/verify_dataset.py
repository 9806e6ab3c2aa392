"""Compare the shards of a converted dataset with its manifest."""

import json
from pathlib import Path

from dlbench.common.files import sha256
from dlbench.common.tfrecord import RecordError, payloads


def verify(folder: Path | str, content: bool = True) -> list[str]:
    """Compare the shards in `folder` with its manifest.

    Args:
        content: read every record and compare digests too, not the sizes alone.

    Returns:
        The problems, one line each.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [f"{folder}: no manifest.json; is this the folder of a converted dataset?"]
    except ValueError as error:
        return [f"{folder}/manifest.json is not JSON ({error}); convert the dataset again"]
    shard_folder = Path(manifest.get("folder", folder))  # an adopted dataset's is elsewhere
    shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return [problem for shard in shards if (problem := _problem(shard_folder, shard, content))]


def _problem(folder, shard, content):
    """What is wrong with a shard; None if nothing is."""
    path = folder / shard["file"]
    if not path.is_file():
        return f"{path}: missing"
    size_bytes = path.stat().st_size
    sizes = f"expected {shard['bytes']} bytes, found {size_bytes}"
    if not content:
        return f"{path}: {sizes}" if size_bytes != shard["bytes"] else None
    records = 0
    try:
        with open(path, "rb") as file:
            for _ in payloads(file, path):
                records += 1
    except RecordError as error:
        return f"{error} ({records} of {shard['records']} records are whole; {sizes})"
    if records != shard["records"]:
        return f"{path}: expected {shard['records']} records, found {records}; {sizes}"
    digest = sha256(path)
    if shard["sha256"] not in (None, digest):
        return f"{path}: expected sha256 {shard['sha256']}, found {digest}"
    return None
