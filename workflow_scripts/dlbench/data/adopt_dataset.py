"""Adopt existing TFRecords: another user's store, or shards that other tools wrote.

- A folder with our manifest is a store. It is verified once and used in place, never copied.
- The layout of other shards follows from the keys of their records: tensorflow/models has
  image/encoded and image/class/label, TensorFlow Datasets has image and label.
- A folder of text is converted to TFRecords.
"""

from pathlib import Path

from dlbench.common import plugins
from dlbench.common.tfrecord import count_records, parse_example, payloads
from dlbench.data import convert_dataset, pictures, stores
from dlbench.data.stores import AdoptionError
from dlbench.trainer.reading import manifest

MAGIC = {b"\xff\xd8": "jpeg", b"\x89PNG": "png"}


def adopt(
    name: str,
    folder: Path | str,
    output: Path | str,
    check: str = "header",
    code_sha256: str = "",
) -> None:
    """Write a manifest for the shards of dataset `name` in `folder`.

    Args:
        output: path of the manifest; shards converted from text are written beside it.
        check: `header`: count the records, parse the first record of each shard and read its
            image's header. `decode`: parse every record and decode its image.
        code_sha256: digest of a text and of the code that converts it, kept in the manifest.

    Raises:
        AdoptionError: the folder has no shards, their layout is unknown, or a label is out of
            range.
        RecordError: a shard is damaged.
        PictureError: an image cannot be read.
    """
    folder = Path(folder).resolve()
    if getattr(plugins.load("datasets", name), "FROM_FOLDER", False):
        convert_dataset.convert(name, folder, Path(output).parent, code_sha256=code_sha256)
        return
    if (folder / "manifest.json").is_file():
        content = _store_manifest(name, folder)
    else:
        content = _made_manifest(name, folder, check)
    manifest.write(output, {**content, "folder": str(folder)})


def _store_manifest(name, folder):
    """The manifest of a store, after its shards were compared with it."""
    if problems := stores.verify(folder):
        raise AdoptionError("\n".join([f"the store {folder} is damaged:", *problems]))
    content = manifest.read(folder)
    if content["dataset"] != name:
        raise AdoptionError(f"{folder}: expected dataset {name}, found {content['dataset']}")
    return content


def _made_manifest(name, folder, check):
    """A new manifest for shards that other tools wrote."""
    dataset = plugins.load("datasets", name)
    splits = {split: stores.shards(folder, split) for split in stores.SPLIT_NAMES}
    layout, first_label = _layout(splits["train"][0], dataset.READER["encoding"])
    reader = {**dataset.READER, "layout": layout, "first_label": first_label}
    labels = range(first_label, first_label + reader["classes"])
    entries = {}
    for split, paths in splits.items():
        shards = [
            _checked_shard(path, folder, layout, labels, reader["encoding"], check)
            for path in paths
        ]
        entries[split] = {"records": sum(s["records"] for s in shards), "shards": shards}
    return {
        **convert_dataset.manifest_head(name, dataset),
        "reader": reader,
        "check": check,
        "splits": entries,
    }


def _layout(path, encoding):
    """(layout, first label) of a shard, from the keys and the image of its first record.

    Raises AdoptionError: the layout is unknown, or the image's encoding is not `encoding`.
    """
    with open(path, "rb") as file:
        _, payload = next(payloads(file, path), (0, None))
    if payload is None:
        raise AdoptionError(f"{path}: empty")
    features = parse_example(payload, f"{path}: record at byte 0")
    for layout, keys in manifest.KEYS.items():
        if features.keys() >= set(keys):
            image = _single_value(features, keys[0], bytes, f"{path}: record at byte 0")
            kind = next((kind for start, kind in MAGIC.items() if image.startswith(start)), "raw")
            if kind != encoding:
                raise AdoptionError(
                    f"{path}: its images are {kind}, and those of this dataset are read as "
                    f"{encoding}; let the workflow fetch and convert the dataset itself"
                )
            return layout, 1 if layout == "tensorflow/models" else 0
    known = " or ".join(", ".join(keys) for keys in manifest.KEYS.values())
    raise AdoptionError(
        f"{path}: unknown layout: expected the keys {known}; found "
        f"{', '.join(sorted(features)) or 'none'}"
    )


def _single_value(features, key, kind, where):
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


def _checked_shard(path, folder, layout, labels, encoding, check):
    """Check the records of a shard against the dataset's reader. Returns its manifest entry.

    Raises:
        AdoptionError: a label or a feature is not as the reader expects.
        PictureError: an image cannot be read.
    """
    image_key, label_key = manifest.KEYS[layout]
    count = 0
    with open(path, "rb") as file:
        for offset, payload in payloads(file, path):
            count += 1
            where = f"{path}: record at byte {offset}"
            features = parse_example(payload, where)
            label = _single_value(features, label_key, int, where)
            if label not in labels:
                raise AdoptionError(
                    f"{where} has label {label}, expected {labels[0]} .. {labels[-1]}; is this "
                    "another dataset or layout?"
                )
            image = _single_value(features, image_key, bytes, where)
            if encoding == "jpeg":
                pictures.check(image, check, where)
            if check != "decode":
                count = count_records(path)
                break
    return {
        "file": str(path.relative_to(folder)),
        "records": count,
        "bytes": path.stat().st_size,
        "sha256": None,
    }
