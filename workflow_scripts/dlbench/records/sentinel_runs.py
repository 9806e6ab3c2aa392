"""The sentinels (repeats of finished runs) in the results."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlbench.records import run_record
from dlbench.study.runs import SENTINEL_ID, Run


def sentinels_of(
    runs: Iterable[Run], ids: Iterable[str] | None = None, results: Path = run_record.RESULTS
) -> dict[str, Run]:
    """{id: Run} of the sentinels that repeat some runs' combinations.

    Args:
        ids: candidates; None: all folders of the results.
        results: folder of all results.
    """
    matches = list(
        existing_ids(results) if ids is None else filter(None, map(SENTINEL_ID.fullmatch, ids))
    )
    known: dict[str, dict[Run, Run]] = {}
    for run in runs if matches else ():
        prefix = run.id.rsplit("-", 2)[0]  # of the ids of its sentinels
        known.setdefault(prefix, {})[replace(run, repeat=1, sentinel=0)] = run
    made = {}
    for match in matches:
        numbers: dict[str, Any] = {name: int(match[name]) for name in ("repeat", "sentinel")}
        for run in known.get(match["prefix"], {}).values():
            sentinel = replace(run, **numbers)
            if sentinel.id == match[0]:
                made[sentinel.id] = sentinel
    return made


def existing_ids(results: Path = run_record.RESULTS) -> Iterator[re.Match[str]]:
    """A match of SENTINEL_ID for each sentinel in the results, finished or not."""
    with contextlib.suppress(OSError):
        names = os.listdir(results / "runs")
        yield from filter(None, map(SENTINEL_ID.fullmatch, names))
