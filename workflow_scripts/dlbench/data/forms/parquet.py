"""Parquet files as Hugging Face has pictures: a column of images, and one of their classes.

- A file's split is how its name or that of its folder begins, as in train-00000-of-00002.parquet.
- An image is a struct with its file's `bytes`. Classes are names or whole numbers; the names of
  numbers are those of the ClassLabel in the schema's metadata, where it has one.
- Rows are read one after the other, so pictures are copied to one file to be read in any order.
"""

import collections
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlbench.common import own_code
from dlbench.data.picture_index import (
    ALL,
    TRAIN,
    VALIDATION,
    Index,
    IndexingError,
    first,
    in_order,
    is_class,
)

COLUMNS = ("image", "label")
ROWS = 64  # read at once
METADATA = b"huggingface"


def files(given: Mapping[str, Any]) -> dict[str, list[Path]]:
    """The files of each split; those of other splits, as `unsupervised`, are not read.

    Raises IndexingError: there are none.
    """
    place = Path(given["parquet"])
    if place.is_file():
        return {ALL: [place]}
    by_split: dict[str, list[Path]] = collections.defaultdict(list)
    paths = sorted(place.rglob("*.parquet"))
    for path in paths:
        names = (re.split(r"[-_.]", path.name)[0], path.parent.name)
        known = [name for name in names if name in (TRAIN, *VALIDATION)]
        by_split[known[0] if known else ALL].append(path)
    if not paths:
        raise IndexingError(
            f"{place}: expected a Parquet file, or a folder with train-*.parquet and "
            f"test-*.parquet, found none{own_code.search_hint(place)}"
        )
    validation = next((name for name in VALIDATION if name in by_split), None)
    if TRAIN not in by_split and validation:
        raise IndexingError(f"{place}: expected train-*.parquet beside {validation}, found none")
    if validation:
        return {TRAIN: by_split[TRAIN], VALIDATION[0]: by_split[validation]}
    return {ALL: by_split.get(TRAIN) or by_split[ALL]}


def index(given: Mapping[str, Any], place: Path | None = None) -> Index:
    """The pictures, each at its place in a file below `place`.

    Raises IndexingError: a file is damaged, or a column, a class or a picture's content is missing.
    """
    import pyarrow

    parts = files(given)
    folder = Path(os.path.commonpath([path.parent for paths in parts.values() for path in paths]))
    splits, places = {}, {}
    unpacked = place / "pictures" if place else Path(os.devnull)
    with open(unpacked, "wb") as file:
        for part, paths in parts.items():
            classes: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
            for path in paths:
                try:
                    for row, (label, content) in enumerate(_rows(path, given, bool(place))):
                        name = f"{path.relative_to(folder)}: row {row}"
                        classes[label].append(name)
                        places[name] = unpacked, file.tell(), file.write(content)
                except pyarrow.ArrowException as error:
                    raise IndexingError(f"{path}: no complete Parquet file: {error}") from error
            splits[part] = {label: classes[number, label] for number, label in _in_order(classes)}
    return Index(folder, splits, places=places)


def _in_order(classes):
    """Named numbers by number, other classes as everywhere."""
    if any(number >= 0 for number, _ in classes):
        return sorted(classes)
    return [(-1, label) for label in in_order(label for _, label in classes)]


def _rows(path, given, with_contents):
    """Yield ((number of a class with a name, or -1; class), content of the picture) of each row.

    `with_contents`: whether pictures are read; else contents are empty.
    """
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        image, label = _columns(path, file.schema_arrow, given.get("columns", COLUMNS))
        names = _class_names(file.schema_arrow, label)
        row = 0
        wanted = [f"{image}.bytes", label] if with_contents else [label]
        for batch in file.iter_batches(ROWS, columns=wanted):
            labels = batch.column(label).to_pylist()
            pictures = batch.column(image) if with_contents else [None] * len(labels)
            for found, picture in zip(labels, pictures, strict=True):
                content = picture["bytes"].as_py() if picture is not None else b""
                if content is None:
                    raise IndexingError(
                        f"{path}: row {row}: expected the picture's content, found none: it has a "
                        "path only; embed pictures before the file is written"
                    )
                yield _class(found, names, f"{path}: row {row}"), content
                row += 1


def _columns(path, schema, columns):
    """The names of the columns, after a check of their types."""
    import pyarrow

    if absent := [name for name in columns if name not in schema.names]:
        raise IndexingError(
            f"{path}: expected the columns {' and '.join(columns)}, found no "
            f"{' and no '.join(absent)}; there are: {first(schema.names)} (`columns` names others)"
        )
    image, label = (schema.field(name).type for name in columns)
    is_struct = pyarrow.types.is_struct(image) and image.get_field_index("bytes") >= 0
    content = image.field("bytes").type if is_struct else None
    if content not in (pyarrow.binary(), pyarrow.large_binary()):
        raise IndexingError(
            f"{path}: {columns[0]}: expected pictures as structs with bytes and path, found {image}"
        )
    if not pyarrow.types.is_integer(label) and label not in (
        pyarrow.string(),
        pyarrow.large_string(),
    ):
        raise IndexingError(
            f"{path}: {columns[1]}: expected classes, which are whole numbers or names, found "
            f"{label}"
        )
    return columns


def _class_names(schema, column):
    """The names of the numbers of classes; [] if there are none."""
    try:
        features = json.loads((schema.metadata or {})[METADATA])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return names if isinstance(names, list) and all(isinstance(n, str) for n in names) else []


def _class(label, names, where):
    if isinstance(label, int) and names and 0 <= label < len(names):
        return label, names[label]
    if label is None or names or not is_class(str(label)):
        expected = f"a number below {len(names)}, as there are names," if names else "a class"
        hint = ": -1 means that the class is not published" if label == -1 else ""
        raise IndexingError(f"{where}: expected {expected} as label, found {label!r}{hint}")
    return -1, str(label)
