"""Compare the shards of a converted dataset with its manifest.

The manifest is checked by the same code as in training (dlbench/trainer/reading/manifest.py), and
the first record of each shard is read as the trainer reads it.
"""

from pathlib import Path

from dlbench import Error
from dlbench.common.files import sha256
from dlbench.common.tfrecord import RecordError, payloads
from dlbench.trainer.reading import manifest


def verify(folder: Path | str, content: bool = True) -> list[str]:
    """Compare the shards in `folder` with its manifest.

    Args:
        content: also read every record and compare digests; False: compare sizes only.

    Returns:
        One line for each problem.
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
    """The problem of a shard; None if it has none."""
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

    Raises:
        Error: it does not.
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
