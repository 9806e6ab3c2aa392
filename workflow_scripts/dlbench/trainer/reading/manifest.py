"""The manifest of a converted dataset: written, read, and validated.

    manifest.json: dataset, kind, reader, splits: {split: {records, shards: [{file, records, bytes,
    sha256}]}}; folder, if the shards lie elsewhere; manifest_sha256, of all the rest

- All fields that training reads are validated: `reader` (encoding, shape, mask, dtype, classes,
  first_label, layout), the splits with their shards and numbers of records, and `folder`.
- The digest is of the whole content, terms and versions included. Manifests of earlier versions and
  of other programs have none.

Needs the standard library only.
"""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from dlbench import Error
from dlbench.common.files import json_digest, write_json

NAME, DIGEST = "manifest.json", "manifest_sha256"
ENCODINGS = ("jpeg", "raw", "stream")  # the last: one sequence of tokens
# Names of the features of an encoded image and of its label.
KEYS = {
    "tensorflow/models": ("image/encoded", "image/class/label"),
    "tfds": ("image", "label"),
}
_DTYPE = re.compile(r"[<>=|]?[biuf][1248]|u?int(8|16|32|64)|float(16|32|64)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_AGAIN = "convert the dataset again: delete it and start the workflow"


def write(path: str | Path, content: dict[str, Any]) -> None:
    """Write a manifest with its digest, whole or not at all."""
    content = {key: value for key, value in content.items() if key != DIGEST}
    # Tuples become lists in JSON, and so in the digest.
    write_json(path, {**content, DIGEST: json_digest(content)})


def read(folder: str | Path) -> dict[str, Any]:
    """The manifest of the converted dataset in a folder.

    Raises Error: there is none, it is not JSON, was edited, or lacks a field that training reads.
    """
    path = Path(folder) / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Error(
            f"{path} cannot be read ({error.strerror}): --data must name the folder of a "
            "converted dataset; convert_dataset.py makes one"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise Error(f"{path}: it is not JSON ({reason}); {_AGAIN}") from error
    _check(content, path)
    return content


def _check(content, path):
    """Check all fields that training reads.

    Raises Error: a field is wrong; the message names the first one.
    """

    def expect(good, field, expected, found):
        if not good:
            shown = json.dumps(found, default=str)[:100]
            raise Error(f"{path}: {field}: expected {expected}, found {shown}; {_AGAIN}")

    def whole(value, least):
        return type(value) is int and least <= value < 1 << 63

    def shape(value):
        return isinstance(value, list) and value and all(whole(size, 1) for size in value)

    expect(isinstance(content, dict), "all of it", "an object", content)
    rest = {key: value for key, value in content.items() if key != DIGEST}
    if DIGEST in content:
        found, expected = json_digest(rest), content[DIGEST]
        expect(found == expected, DIGEST, f"{found}, of its content (somebody edited it)", expected)
    for name in ("dataset", "kind"):
        expect(isinstance(content.get(name), str), name, "a text", content.get(name))
    expect(isinstance(content.get("folder", ""), str), "folder", "a path", content.get("folder"))
    reader = content.get("reader")
    expect(isinstance(reader, dict), "reader", "an object", reader)
    encoding = reader.get("encoding")
    expect(
        encoding in ENCODINGS,
        "reader.encoding",
        f"one of {', '.join(ENCODINGS)} (READER in the dataset's file)",
        encoding,
    )
    wanted = {"shape", "classes"} if encoding == "raw" and "mask" not in reader else set()
    for name, good, expected in (
        ("shape", shape, "a list of sizes"),
        ("mask", shape, "a list of sizes"),
        ("classes", lambda value: whole(value, 1), "a whole number, at least 1"),
        ("first_label", lambda value: whole(value, 0), "a whole number, at least 0"),
        ("dtype", lambda value: _DTYPE.fullmatch(str(value)), "a type of NumPy"),
        ("layout", lambda value: value in KEYS, f"one of {', '.join(KEYS)}"),
    ):
        if name in reader or name in wanted:
            expect(good(reader.get(name)), f"reader.{name}", expected, reader.get(name))
    splits = content.get("splits")
    expect(isinstance(splits, dict) and "train" in splits, "splits", "one named train", splits)
    for name, split in splits.items():
        field = f"splits.{name}"
        shards = split.get("shards") if isinstance(split, dict) else None
        expect(isinstance(shards, list) and shards, f"{field}.shards", "a list of shards", shards)
        files = set()
        for place, shard in enumerate(shards):
            entry = f"{field}.shards[{place}]"
            expect(isinstance(shard, dict), entry, "an object", shard)
            file = shard.get("file")
            inside = isinstance(file, str) and _is_inside(file) and file not in files
            expect(inside, f"{entry}.file", "a file below the folder, each once", file)
            files.add(file)
            for number in ("records", "bytes"):
                expect(
                    whole(shard.get(number), 0), f"{entry}.{number}", "a number", shard.get(number)
                )
            digest = shard.get("sha256")
            valid = digest is None or (isinstance(digest, str) and _SHA256.fullmatch(digest))
            expect(valid, f"{entry}.sha256", "64 hexadecimal digits, or null", digest)
        total = sum(shard["records"] for shard in shards)
        records = split.get("records")
        expect(
            whole(records, 1) and records == total,
            f"{field}.records",
            f"{total}, as its shards have together",
            records,
        )


def _is_inside(file):
    path = PurePosixPath(file)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts
