"""The runs of a campaign, wherever they lie: records in a results folder, or a runs table.

A folder holds `runs/*/run.json` or `tables/runs.parquet`, also in a `results` of its own, as
archives have when they are unpacked. A table is that of results/tables or of export_runs.py.
Runs that have not ended are counted, never waited for, so a campaign may be read while it runs.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from dlbench import Error
from dlbench.analysis import estimates
from dlbench.log.event_fields import ENDED_WELL
from dlbench.machine import fingerprints
from dlbench.records import run_record
from dlbench.study.runs import DEFAULTS, FIELDS, is_sentinel
from dlbench.tables import runs_table

# What repeats differ in; a seed is no other condition, so runs of other seeds are repeats too.
REPEATED = ("repeat", "sentinel", "seed")
JOINABLE = tuple(name for name in FIELDS if name not in REPEATED)
MAY_BE_NONE = ("steps", "epochs")  # of which a run has one
VERSIONS = ("python", "keras", "numpy")
FACTS = (
    "study", "site", "device_kind", "device_model", "host", *VERSIONS, "framework_version",
    "container_start", "image_digest", "environment_sha256", "training_code", "git_commit",
    "git_dirty", "data_sha256", "hardware_sha256", "software_sha256", "parser_version",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A run that ended: the values of its fields, how it ended, its numbers, where and of what.

    Fields and facts that the source does not know are absent; so is the session of a run by hand.
    `disturbed`: others on the machine used more beside it than they may.
    """

    run_id: str
    fields: dict
    status: str
    numbers: dict
    facts: dict
    session: str | None = None
    disturbed: bool = False

    @property
    def finished(self):
        return self.status in ENDED_WELL


@dataclass(frozen=True)
class Campaign:
    """What is there of a campaign.

    Attributes:
        path: where it was read from.
        runs: the Measured that ended, in whatever way.
        not_ended: how many runs have no record yet.
        unread: why records are left out, one text each.
    """

    path: str
    runs: tuple
    not_ended: int = 0
    unread: tuple = field(default=())

    def finished(self):
        return [run for run in self.runs if run.finished]

    def known(self, name):
        """Whether a field is known of some run here."""
        if name in MAY_BE_NONE:
            return any(name in run.fields for run in self.runs)
        return any(run.fields.get(name) is not None for run in self.runs)


def read(path):
    """The Campaign in a folder or a table.

    Raises:
        Error: there is none, it is of another version, or no run in it has ended.
    """
    path = Path(path)
    if path.is_dir():
        campaign = _of_folder(path)
    elif path.is_file():
        campaign = Campaign(str(path), tuple(map(_of_row, runs_table.table_rows(path))))
    else:
        raise Error(f"{path}: no such folder or file")
    if not campaign.runs:
        why = f"{campaign.not_ended} have no record yet" if campaign.not_ended else "it is empty"
        why = campaign.unread[0] if campaign.unread else why
        raise Error(f"{path}: no run that ended is in it ({why})")
    return campaign


def _of_folder(path):
    for folder in (path, path / "results"):
        if (folder / "runs").is_dir():
            return _of_records(path, folder)
        for table in (folder / "tables" / "runs.parquet", folder / "runs.parquet"):
            if table.is_file():
                return Campaign(str(path), tuple(map(_of_row, runs_table.table_rows(table))))
    raise Error(
        f"{path}: not a results folder: expected runs/*/run.json, tables/runs.parquet or "
        "results/ in it; a table (.parquet, .csv, .json) can be named too"
    )


def _of_records(path, folder):
    runs, unread, not_ended = [], [], 0
    for place in sorted((folder / "runs").iterdir()):
        if is_sentinel(place.name):
            continue  # none of a study's
        if not (place / "run.json").is_file():
            not_ended += place.is_dir()
            continue
        try:
            runs.append(_of_record(run_record.read(place / "run.json")))
        except run_record.RecordError as error:
            unread.append(str(error))
    if not (runs or unread or not_ended):
        raise Error(f"{folder / 'runs'}: not a results folder: no run in it has a run.json")
    return Campaign(str(path), tuple(runs), not_ended, tuple(unread))


def _of_record(record):
    spec, provenance = record["spec"], record["provenance"]
    unknown = sorted(spec.keys() - FIELDS.keys())
    if unknown:
        raise run_record.RecordError(
            f"{record['run_id']}: made by another dlbench: no field {', '.join(unknown)} here"
        )
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
        **fingerprints.columns(provenance),
    }
    return Measured(
        run_id=record["run_id"],
        fields={**DEFAULTS, **spec},
        status=record["status"],
        numbers=_numbers(record["summary"]),
        facts=_known(facts),
        session=(provenance.get("session") or {}).get("id"),
        disturbed=estimates.is_disturbed(record["summary"]),
    )


def _of_row(row):
    return Measured(
        run_id=row["run_id"],
        fields={name: row[name] for name in FIELDS if name in row},
        status=row["status"],
        numbers=_numbers(row),
        facts=_known({name: row.get(name) for name in FACTS}),
        session=row.get("session"),
        disturbed=estimates.is_disturbed(row),
    )


def _numbers(values):
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _known(facts):
    return {name: value for name, value in facts.items() if value is not None}


def positive(run, metric):
    """A number of a run, None where it has none.

    Raises:
        Error: it is no positive number, of which no ratio can be taken.
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
