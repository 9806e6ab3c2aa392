"""Stores: folders of TFRecords, converted ones or those that other tools wrote, which are adopted.

- A folder with our manifest is a store. It is verified once and used in place, never copied.
- The layout of other shards follows from the keys of their records: tensorflow/models has
  image/encoded and image/class/label, TensorFlow Datasets has image and label.
- A folder of text is converted to TFRecords.

Shards are compared with their manifest by the code that checks it in training
(dlbench/trainer/reading/), and the first record of each is read as the trainer reads it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dlbench import Error
from dlbench.common import own_code, phrases, plugins
from dlbench.common.files import read_json, sha256
from dlbench.common.tfrecord import RecordError, count_records, parse_example, payloads
from dlbench.data import convert_dataset, own_pictures, pictures, sources
from dlbench.trainer.reading import manifest

MAGIC = {b"\xff\xd8": "jpeg", b"\x89PNG": "png"}
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

    `as_converted`: whether a user's pictures, which may be a million, are taken as they were
    converted, and not looked for: only a start compares them. Raises AdoptionError: a folder that
    the config names has no shards.
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
        digest = hashlib.sha256(sources.read(folder))
    except Error as error:
        raise AdoptionError(f"dataset {name}: {error}") from error
    digest.update(own_code.digest([str(plugins.path("datasets", name))]).encode())
    return Store(folder, digest.hexdigest())


def _user_pictures(name, given, as_converted):
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

    Raises AdoptionError: there are none, or fewer than their names state.
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


def verify(folder: Path | str, content: bool = True) -> list[str]:
    """Compare the shards in `folder` with its manifest.

    `content`: also read every record and compare digests; False: compare sizes only. Returns one
    line for each problem.
    """
    if not (Path(folder) / manifest.NAME).exists():
        return [f"{folder}: no manifest.json; is this the folder of a converted dataset?"]
    from dlbench.trainer.reading.converted import ConvertedDataset  # it imports NumPy: slow

    try:
        data = ConvertedDataset(folder)
    except Error as error:
        return [str(error)]
    shard_folder = Path(data.manifest.get("folder", folder))  # an adopted dataset's is elsewhere
    shards = [shard for split in data.manifest["splits"].values() for shard in split["shards"]]
    return [
        problem for shard in shards if (problem := _problem(data, shard_folder, shard, content))
    ]


def _problem(data, folder, shard, content):
    path = folder / shard["file"]
    if not path.is_file():
        return f"{path}: missing"
    size_bytes = path.stat().st_size
    sizes = f"expected {shard['bytes']} bytes, found {size_bytes}"
    if not content:
        return f"{path}: {sizes}" if size_bytes != shard["bytes"] else None
    count = 0
    try:
        with open(path, "rb") as file:
            for _, payload in payloads(file, path):
                if count == 0 and not data.streamed:
                    _check_record(data, payload)
                count += 1
    except RecordError as error:
        return f"{error} ({count} of {shard['records']} records are whole; {sizes})"
    except Error as error:
        return f"{path}: {error}"
    if count != shard["records"]:
        return f"{path}: expected {shard['records']} records, found {count}; {sizes}"
    digest = sha256(path)
    if shard["sha256"] not in (None, digest):
        return f"{path}: expected sha256 {shard['sha256']}, found {digest}"
    return None


def _check_record(data, payload):
    """Check that the trainer reads one item from a record, with a label in the model's range.

    Raises Error: it does not.
    """
    from dlbench.trainer.reading.reader import parsed

    inputs, targets = parsed(data, [payload])
    known = range(data.classes or 0)
    if len(inputs) != 1 or len(targets) != 1:
        content = f"{len(inputs)} inputs and {len(targets)} targets in a record"
    elif targets.ndim == 1 and data.classes and targets[0] not in known:
        content = f"label {targets[0] + data.reader.get('first_label', 0)}"
    else:
        return
    raise Error(f"its records are not as manifest.json says ({content}): convert the dataset again")


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
    if (folder / manifest.NAME).is_file():
        content = _store_manifest(name, folder)
    else:
        content = _made_manifest(name, folder, check)
    manifest.write(output, {**content, "folder": str(folder)})


def _store_manifest(name, folder):
    """The manifest of a store, after its shards were compared with it."""
    if problems := verify(folder):
        raise AdoptionError("\n".join([f"the store {folder} is damaged:", *problems]))
    content = manifest.read(folder)
    if content["dataset"] != name:
        raise AdoptionError(f"{folder}: expected dataset {name}, found {content['dataset']}")
    return content


def _made_manifest(name, folder, check):
    """A new manifest for shards that other tools wrote."""
    dataset = plugins.load("datasets", name)
    splits = {split: shards(folder, split) for split in SPLIT_NAMES}
    layout, first_label = _layout(splits["train"][0], dataset.READER["encoding"])
    reader = {**dataset.READER, "layout": layout, "first_label": first_label}
    labels = range(first_label, first_label + reader["classes"])
    entries = {}
    for split, paths in splits.items():
        checked = [
            _checked_shard(path, folder, layout, labels, reader["encoding"], check)
            for path in paths
        ]
        entries[split] = {"records": sum(s["records"] for s in checked), "shards": checked}
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
