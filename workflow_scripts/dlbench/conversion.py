"""From a dataset's source files to verified TFRecord shards and their manifest.

- fetch: bring the source files, check size and SHA-256, keep nothing else.
- convert: write the shards, each whole or not at all, then `manifest.json`.
- verify: compare shards with the manifest.
"""

import json
from pathlib import Path

from dlbench import Error, plugins
from dlbench.files import sha256, write_json, written_whole
from dlbench.tfrecord import example, record

MANIFEST_VERSION = 1
FEATURES = {
    "image/encoded": "bytes: uint8 pixels, rows of height, width, channels",
    "image/format": "bytes: RAW",
    "image/height": "int64",
    "image/width": "int64",
    "image/channels": "int64",
    "image/class/label": "int64, from 0",
}


class DataError(Error):
    """Data is not what it should be; the message has file, expected and found."""


def fetch(name, folder):
    """Bring the source files of dataset `name` into `folder`.

    Returns:
        The checked files: names mapped to bytes and sha256.

    Raises:
        DataError: what arrived is not the published file; it is kept as FILE.bad.
    """
    dataset = plugins.load("datasets", name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file, expected in dataset.FILES.items():
        part = folder / f"{file}.part"
        dataset.fetch(file, part)
        found = {"bytes": part.stat().st_size, "sha256": sha256(part)}
        if found != expected:
            part.replace(folder / f"{file}.bad")
            raise DataError(
                f"{name}: {file}: expected {expected['bytes']} bytes with sha256 "
                f"{expected['sha256']}, found {found['bytes']} with {found['sha256']}; "
                f"kept as {folder / file}.bad for a look"
            )
        part.replace(folder / file)
    return dataset.FILES


def convert(name, source, output, code_sha256):
    """Write the TFRecord shards of dataset `name` and their manifest.

    Args:
        source: folder with the fetched files.
        output: folder for `train-00000-of-00004` and so on.
        code_sha256: digest of the converting code, kept in the manifest.

    Raises:
        DataError: a split has not the number of records it should have.
    """
    dataset = plugins.load("datasets", name)
    output = Path(output)
    splits = {split: [] for split in dataset.SPLITS}
    for split, image, label in dataset.examples(Path(source)):
        splits[split].append(record(_example(image, label)))
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "dataset": name,
        "title": dataset.TITLE,
        "licence": dataset.LICENCE,
        "citation": dataset.CITATION,
        "code_sha256": code_sha256,
        "source": dataset.FILES,
        "image_shape": list(dataset.IMAGE_SHAPE),
        "classes": dataset.CLASSES,
        "features": FEATURES,
        "splits": {},
    }
    for split, records in splits.items():
        if len(records) != dataset.SPLITS[split]:
            raise DataError(
                f"{name}: expected {dataset.SPLITS[split]} {split} records, found {len(records)}"
            )
        manifest["splits"][split] = {
            "records": len(records),
            "shards": _write_shards(output, split, records, dataset.SHARDS[split]),
        }
    write_json(output / "manifest.json", manifest)


def verify(folder):
    """Compare the shards in `folder` with its manifest.

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
    problems = []
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            path = folder / shard["file"]
            if not path.is_file():
                problems.append(f"{path}: missing")
            elif path.stat().st_size != shard["bytes"]:
                problems.append(
                    f"{path}: expected {shard['bytes']} bytes, found {path.stat().st_size}"
                )
            elif (found := sha256(path)) != shard["sha256"]:
                problems.append(f"{path}: expected sha256 {shard['sha256']}, found {found}")
    return problems


def _example(image, label):
    height, width, channels = image.shape
    return example(
        {
            "image/encoded": image.tobytes(),
            "image/format": "RAW",
            "image/height": height,
            "image/width": width,
            "image/channels": channels,
            "image/class/label": label,
        }
    )


def _write_shards(output, split, records, count):
    shards = []
    for index in range(count):
        mine = records[index::count]
        path = output / f"{split}-{index:05d}-of-{count:05d}"
        with written_whole(path) as part:
            part.write_bytes(b"".join(mine))
        shards.append(
            {
                "file": path.name,
                "records": len(mine),
                "bytes": path.stat().st_size,
                "sha256": sha256(path),
            }
        )
    return shards
