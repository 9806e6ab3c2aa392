"""Compare the records of an archive with its logs, which are parsed again.

Digests detect changes made after the manifest was written. A record that was changed together with
its manifest still differs from its logs. Logs that were changed, too, go undetected.
Needs the standard library only.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.archive import bag as bags
from dlbench.archive import verify_archive
from dlbench.archive.verify_archive import Bag
from dlbench.records import rereading, run_record

MAX_LOG_BYTES = 1 << 30  # parsing holds all events of a run in memory


@dataclass(frozen=True)
class LogComparison:
    """The result of comparing records with logs.

    Attributes:
        same: number of records that agree with their logs.
        differing: one line for each value in which a record differs from its logs.
        others: {version of the parser: number of records}; only that version can compare them.
    """

    same: int
    differing: list
    others: dict


def compare(bag: Bag) -> LogComparison:
    """Compare each record of a bag with the logs beside it.

    Args:
        bag: an open bag without problems (verify_archive.problems).
    """
    others: Counter[int] = Counter()
    same, differing = 0, []
    for name in bag.payload:
        if not verify_archive.RECORD.fullmatch(name):
            continue
        record = run_record.parsed(
            bag.read(f"{bags.PAYLOAD}/{name}", verify_archive.MAX_RECORD_BYTES), name
        )
        if record["parser_version"] != run_record.PARSER_VERSION:
            others[record["parser_version"]] += 1
        elif differences := _differences(bag, name, record):
            differing += [verify_archive.printable(line) for line in differences]
        else:
            same += 1
    return LogComparison(same, differing, dict(others))


def describe_other_versions(others: dict[int, int]) -> str:
    """A sentence about records of other versions of the parser; "" if there are none."""
    if not others:
        return ""
    versions = " and ".join(f"{count} of version {n}" for n, count in sorted(others.items()))
    return (
        f"records not compared with their logs: {versions} of the parser, this one is "
        f"{run_record.PARSER_VERSION}: the programs in the archive are of the right version"
    )


def _differences(bag, name, record):
    """One line for each value in which a record differs from its logs."""
    prefix = f"{bags.PAYLOAD}/{name.removesuffix('run.json')}"
    with tempfile.TemporaryDirectory() as folder:
        for log in record["files"]:
            size = bag.entries[f"{prefix}{log}"].file_size
            if size > MAX_LOG_BYTES:
                return [f"{name}: {log} has {size} bytes: too many to be read"]
            with open(Path(folder, log), "wb") as file:
                file.writelines(bag.blocks(f"{prefix}{log}"))
        try:
            differences = rereading.differences(record, Path(folder, "train.jsonl"))
        except Error as error:
            return [f"{name}: {str(error).replace(f'{folder}/', '')}"]
    return [
        f"{name}: {column}: {_value_text(recorded)}, by its logs {_value_text(logged)}"
        for column, recorded, logged in differences
    ]


def _value_text(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
