"""The list of all records with their digests: the one input of what is made from all records."""

import os
from collections.abc import Iterable
from pathlib import Path

from dlbench.common import files
from dlbench.records import run_record

PATH = "results/records.sha256"


def unlisted(run_ids: Iterable[str]) -> list[str]:
    """The runs whose records are not in the list, or have changed since it was written."""
    try:
        listed_ns = os.stat(PATH).st_mtime_ns
        lines = Path(PATH).read_text(encoding="utf-8").splitlines()
    except OSError:
        return list(run_ids)
    listed = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}

    def is_listed(path):
        is_older = os.stat(path).st_mtime_ns < listed_ns
        return is_older or listed.get(str(path)) == files.sha256(path)

    return [key for key in run_ids if not is_listed(run_record.folder(key) / "run.json")]
