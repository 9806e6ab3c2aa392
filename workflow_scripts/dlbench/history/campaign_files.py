"""What the files of a campaign say beside its records: learning gates, licence and citation.

A learning gate is part of a study, so its outcome stands in the table of runs, not in a record. A
campaign without these files enters the history all the same.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.study import goals, yaml_files
from dlbench.tables import parquet_files

RUNS, CITATION = "tables/runs.parquet", "CITATION.cff"  # in the results folder; beside it
# Of the Citation File Format 1.2.0: what whoever publishes a history has to keep.
KEPT = ("title", "authors", "license", "license-url", "doi", "url", "repository-code", "version")
MAX_CITATION_BYTES = 1 << 20


def missed_gates(table: Path, note: Callable[[str], None]) -> dict[str, bool]:
    """{digest of a run's log: whether it missed its learning gate} of the runs that have one."""
    if not table.is_file():
        return {}
    try:
        runs = parquet_files.read_any(table)
        gates, logs = (runs[name].to_pylist() for name in ("learning_gate", "log_sha256"))
    except (parquet_files.TableError, KeyError) as error:
        note(f"learning gates are not known: {error}")
        return {}
    judged = zip(logs, gates, strict=True)
    return {log: gate != goals.REACHED for log, gate in judged if gate}


def citation(file: Path, note: Callable[[str], None]) -> str | None:
    """KEPT of a CITATION.cff as JSON; None where there is none."""
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > MAX_CITATION_BYTES:
            raise Error(f"more than {MAX_CITATION_BYTES} bytes")
        content = yaml_files.read(file)
        if not isinstance(content, Mapping) or not isinstance(content.get("authors"), list):
            raise Error("expected authors in it")
    except (OSError, Error) as error:
        note(f"{CITATION}: its licence and authors are not known: {error}")
        return None
    kept: dict[str, Any] = {name: content[name] for name in KEPT if name in content}
    return json.dumps(kept, sort_keys=True, ensure_ascii=False, default=str)
