"""The runs of a campaign, read from records in a results folder or from a runs table.

A folder holds `runs/*/run.json` or `tables/runs.parquet`, or a folder `results` that does, as
unpacked archives have. A table is that of results/tables or of `dlbench export`.
Runs that have not ended are counted, never waited for: a campaign may be read while it runs.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.analysis import base_flags, measures
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import fingerprints
from dlbench.records import run_record
from dlbench.study import contradictions, wording
from dlbench.study.runs import DEFAULTS, FIELDS, REPEATED, Run, is_of_statistics
from dlbench.tables import metrics, parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.metrics import Metric
from dlbench.tables.table_columns import METRICS
from dlbench.trainer.flags import LENGTHS

JOINABLE = tuple(name for name in FIELDS if name not in REPEATED)
ITEM_RATE, TOKEN_RATE = "images_per_second", "tokens_per_second"  # throughput
CONTRADICTORY = "contradictory"
VERSIONS = ("python", "keras", "numpy")
FACTS = (
    *("study", "site", "device_kind", "device_model", "host", *VERSIONS, "framework_version"),
    "item_shape",
    *("container_start", "image_digest", "environment_sha256", "training_code", "git_commit"),
    *("git_dirty", "release", "data_sha256", "hardware_sha256", "software_sha256"),
    *("software_origin", "parser_version"),
)


@dataclass(frozen=True)
class Measured:
    """A run that ended. Fields and facts that its source does not know are absent.

    The status of one that completed with numbers that contradict one another is CONTRADICTORY.

    Attributes:
        fields: values of the fields of a run.
        numbers: what was measured, by column of the runs table, or by name of a metric.
        facts: where and with what it was measured, by name of FACTS.
        session: the start of the workflow that trained it; None of a run by hand.
        disturbed: whether others used more of the machine beside it than the config allows.
        metrics: rows of the table of metrics.
    """

    run_id: str
    fields: dict[str, Any]
    status: str
    numbers: dict[str, float]
    facts: dict[str, Any]
    session: str | None = None
    disturbed: bool = False
    metrics: tuple[dict[str, Any], ...] = ()

    @property
    def finished(self) -> bool:
        return self.status in SUCCEEDED


@dataclass(frozen=True)
class Campaign:
    """The runs of a campaign so far.

    Attributes:
        path: where they were read from.
        runs: those that ended, also those that failed.
        not_ended: how many runs have no record yet.
        unread: why records are left out, one text each.
    """

    path: str
    runs: tuple[Measured, ...]
    not_ended: int = 0
    unread: tuple[str, ...] = ()

    def finished(self) -> list[Measured]:
        return [run for run in self.runs if run.finished]

    @property
    def counted(self) -> str:
        """How many runs it has, as in `48 runs: 45 ok, 3 oom; 2 not ended`."""
        counts = Counter(run.status for run in self.runs).most_common()
        text = f"{len(self.runs)} runs: {', '.join(f'{n} {status}' for status, n in counts)}"
        text += f"; {self.not_ended} not ended" if self.not_ended else ""
        return text + (f"; {len(self.unread)} unreadable" if self.unread else "")

    def knows(self, name: str) -> bool:
        """Whether some run here has a value of a field."""
        if name in LENGTHS:  # a run has one of them
            return any(name in run.fields for run in self.runs)
        return any(run.fields.get(name) is not None for run in self.runs)


def read(folder_or_table: str | Path) -> Campaign:
    """The Campaign in a folder or a table.

    Raises Error: there is none, it is of another version, or no run in it has ended.
    """
    path = Path(folder_or_table)
    if path.is_dir():
        campaign = _read_folder(path)
    elif path.is_file():
        campaign = Campaign(str(path), tuple(_from_table(path)))
    else:
        raise Error(f"{path}: no such folder or file")
    if not campaign.runs:
        reason = f"{campaign.not_ended} have no record yet" if campaign.not_ended else "it is empty"
        reason = campaign.unread[0] if campaign.unread else reason
        raise Error(f"{path}: no run that ended is in it ({reason})")
    return campaign


def _read_folder(path):
    for folder in (path, path / "results"):
        if (folder / "runs").is_dir():
            return _read_records(path, folder)
        for table in (folder / "tables" / "runs.parquet", folder / "runs.parquet"):
            if table.is_file():
                return Campaign(str(path), tuple(_from_table(table)))
    raise Error(
        f"{path}: not a results folder: expected runs/*/run.json, tables/runs.parquet or "
        "results/ in it; a table (.parquet, .csv, .json) can be named too"
    )


def _read_records(path, folder):
    runs, unread, not_ended = [], [], 0
    for run_folder in sorted((folder / "runs").iterdir()):
        if not is_of_statistics(run_folder.name):
            continue  # a study has no sentinels and no probes among its runs
        if not (run_folder / "run.json").is_file():
            not_ended += run_folder.is_dir()
            continue
        try:
            runs.append(from_record(run_record.read(run_folder / "run.json")))
        except run_record.RecordError as error:
            unread.append(str(error))
    if not (runs or unread or not_ended):
        raise Error(f"{folder / 'runs'}: not a results folder: no run in it has a run.json")
    return Campaign(str(path), tuple(runs), not_ended, tuple(unread))


def from_record(record: Mapping[str, Any]) -> Measured:
    """The run of a record.

    Raises RecordError: it has fields that runs of this version have not, or values of other kinds.
    """
    run_record.check(record)
    spec, provenance = record["spec"], record["provenance"]
    container, made_from = provenance.get("container") or {}, record["made_from"]
    versions = provenance.get("versions") or {}
    facts = {
        **{name: provenance.get(name) for name in FACTS},
        **{name: versions.get(name) for name in VERSIONS},
        "site": (provenance.get("site") or {}).get("name"),
        "framework_version": versions.get(spec.get("framework", DEFAULTS["framework"])),
        "container_start": container.get("start"),
        "image_digest": container.get("digest"),
        "environment_sha256": made_from.get("environment"),
        "training_code": made_from.get("code"),
        "parser_version": record["parser_version"],
        "item_shape": "x".join(map(str, provenance.get("item_shape") or ())) or None,
        **fingerprints.columns(provenance),
    }
    run, named = Run(**spec), record["summary"].get("metrics", [])
    summary = {"global_batch": run.global_batch, "devices": run.devices, **record["summary"]}
    summary = contradictions.withheld(contradictions.marked(summary))
    shape, rate = provenance.get("item_shape"), summary.get(ITEM_RATE)
    return Measured(
        run_id=record["run_id"],
        fields={**DEFAULTS, **spec},
        status=_status(record["status"], summary),
        numbers=_with_metrics(
            _numeric_values(summary | wording.item_columns(shape, rate, run.devices)), named
        ),
        facts=_without_none(facts),
        session=(provenance.get("session") or {}).get("id"),
        disturbed=base_flags.is_disturbed(record["summary"]),
        metrics=tuple({"run_id": record["run_id"], **metric} for metric in named),
    )


def _from_table(path):
    """The runs of a runs table, with the table of metrics that is beside it, if there is one."""
    beside = path.with_name("metrics.parquet")
    by_run: dict[str, list[Row]] = {}
    if beside.is_file():
        for metric in parquet_files.read(beside, METRICS).to_pylist():
            by_run.setdefault(metric["run_id"], []).append(metric)
    for row in parquet_files.table_rows(path):
        yield _from_row(row, by_run.get(row["run_id"], []))


def _with_metrics(numbers, named):
    """Numbers of a run, and its metrics but for those with the name of another number."""
    return {metric["name"]: metric["value"] for metric in named} | numbers


def _status(status, numbers):
    contradictory = status in SUCCEEDED and numbers.get(contradictions.REASON)
    return CONTRADICTORY if contradictory else status


def _from_row(row, named):
    row = contradictions.withheld(contradictions.marked(row))
    return Measured(
        run_id=row["run_id"],
        fields={name: row[name] for name in FIELDS if name in row},
        status=_status(row["status"], row),
        numbers=_with_metrics(_numeric_values(row), named),
        facts=_without_none({name: row.get(name) for name in FACTS}),
        session=row.get("session"),
        disturbed=base_flags.is_disturbed(row),
        metrics=tuple(named),
    )


def _numeric_values(values):
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _without_none(facts):
    return {name: value for name, value in facts.items() if value is not None}


def find_metric(name: str, *campaigns: Campaign) -> Metric:
    """The metric of a name: a column of the runs table, or one that runs of campaigns name.

    Raises Error: there is none, or its unit or direction differs between runs.
    """
    table = [row for campaign in campaigns for run in campaign.runs for row in run.metrics]
    named = measures.named(table)
    if name in named.unlike and name not in metrics.METRICS:
        raise Error(f"metric {name}: {named.unlike[name]}: such numbers are not compared")
    return metrics.find_metric(name, named.metrics)


def positive(run: Measured, metric: str) -> float | None:
    """The number that a run has of a metric, or None.

    Raises Error: the number is not finite and above 0, so that it has no ratio.
    """
    value = run.numbers.get(metric)
    if value is None:
        return None
    if not (math.isfinite(value) and value > 0):
        raise Error(
            f"{run.run_id}: {metric} is {value}; ratios need numbers above 0. "
            "Forget that run, or compare another metric"
        )
    return float(value)
