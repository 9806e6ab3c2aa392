"""Use TFRecords that are there already: another user's store, or shards of other tools.

- A folder with our manifest is a store: it is verified once and used where it
  lies, never copied.
- Other shards are recognised by the keys of their records: tensorflow/models
  (image/encoded, image/class/label) and TensorFlow Datasets (image, label).
"""

import json
from pathlib import Path

from dlbench.common import plugins
from dlbench.common.files import write_json
from dlbench.data import convert_dataset, pictures, stores, verify_dataset
from dlbench.data.stores import AdoptionError
from dlbench.data.tfrecord import parse_example, payloads, records_in

LAYOUTS = {
    "tensorflow/models": ("image/encoded", "image/class/label"),
    "tfds": ("image", "label"),
}
MAGIC = {b"\xff\xd8": "jpeg", b"\x89PNG": "png"}


def adopt(name, folder, output, check="header"):
    """Write a manifest for the shards of dataset `name` in `folder`.

    Args:
        output: path of the manifest.
        check: `header` (the records are counted, the first of each shard is parsed, its image's
            header read) or `decode` (every record is read, its label compared with the classes,
            its image decoded).

    Raises:
        AdoptionError: no shards, of no known layout, or labels out of range.
        RecordError: a shard is damaged.
    """
    folder = Path(folder).resolve()
    if (folder / "manifest.json").is_file():
        manifest = _stored(name, folder)
    else:
        manifest = _recognised(name, folder, check)
    write_json(output, {**manifest, "folder": str(folder)})


def _stored(name, folder):
    if problems := verify_dataset.verify(folder):
        raise AdoptionError("\n".join([f"the store {folder} is damaged:", *problems]))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if manifest["dataset"] != name:
        raise AdoptionError(f"{folder}: expected dataset {name}, found {manifest['dataset']}")
    return manifest


def _recognised(name, folder, check):
    dataset = plugins.load("datasets", name)
    splits = {split: stores.shards(folder, split) for split in stores.SPLIT_NAMES}
    layout, first_label = _layout(splits["train"][0], dataset.READER["encoding"])
    reader = {**dataset.READER, "layout": layout, "first_label": first_label}
    labels = range(first_label, first_label + reader["classes"])
    described = {}
    for split, paths in splits.items():
        shards = [
            _described(path, folder, layout, labels, reader["encoding"], check) for path in paths
        ]
        described[split] = {"records": sum(s["records"] for s in shards), "shards": shards}
    return {
        "manifest_version": convert_dataset.MANIFEST_VERSION,
        "dataset": name,
        "title": dataset.TITLE,
        "licence": dataset.LICENCE,
        "citation": dataset.CITATION,
        "kind": dataset.KIND,
        "reader": reader,
        "check": check,
        "splits": described,
    }


def _layout(path, encoding):
    """(layout, first label) by the keys of the first record, its image of the right kind."""
    with open(path, "rb") as file:
        _, payload = next(payloads(file, path), (0, None))
    if payload is None:
        raise AdoptionError(f"{path}: empty")
    features = parse_example(payload, f"{path}: record at byte 0")
    keys = set(features)
    for layout, wanted in LAYOUTS.items():
        if keys.issuperset(wanted):
            image = _one(features, wanted[0], bytes, f"{path}: record at byte 0")
            found = next((kind for start, kind in MAGIC.items() if image.startswith(start)), "raw")
            if found != encoding:
                raise AdoptionError(
                    f"{path}: its images are {found}, and those of this dataset are read as "
                    f"{encoding}; let the workflow fetch and convert the dataset itself"
                )
            return layout, 1 if layout == "tensorflow/models" else 0
    known = " or ".join(", ".join(wanted) for wanted in LAYOUTS.values())
    raise AdoptionError(
        f"{path}: of no layout that is known: expected the keys {known}; found "
        f"{', '.join(sorted(keys)) or 'none'}"
    )


def _one(features, key, kind, where):
    """The single value of a feature."""
    values = features.get(key)
    if values is None:
        raise AdoptionError(f"{where} lacks {key}")
    if len(values) != 1 or not isinstance(values[0], kind):
        raise AdoptionError(
            f"{where}: expected one value of type {kind.__name__} as {key}, found "
            f"{', '.join(type(value).__name__ for value in values[:3]) or 'none'}"
        )
    return values[0]


def _described(path, folder, layout, labels, encoding, check):
    encoded, label = LAYOUTS[layout]
    count = 0
    with open(path, "rb") as file:
        for offset, payload in payloads(file, path):
            count += 1
            where = f"{path}: record at byte {offset}"
            features = parse_example(payload, where)
            found = _one(features, label, int, where)
            if found not in labels:
                raise AdoptionError(
                    f"{where} has label {found}, expected {labels[0]} .. {labels[-1]}; is this "
                    "another dataset or layout?"
                )
            image = _one(features, encoded, bytes, where)
            if encoding == "jpeg":
                pictures.check(image, check, where)
            if check != "decode":
                count = records_in(path)
                break
    return {
        "file": str(path.relative_to(folder)),
        "records": count,
        "bytes": path.stat().st_size,
        "sha256": None,
    }
