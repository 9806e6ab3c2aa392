"""The rows of a session in the history, from the records of its runs.

- One row a condition and metric. The number is the mean of logarithms over the runs of the session
  that completed, sentinels included; runs that other processes disturbed are left out and counted.
- A condition is known by its fields that are not their defaults, so that a new field of a run
  changes none. What else may differ under the same fields (data, files of one's own) is its
  meaning.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from dlbench import Error
from dlbench.analysis import campaigns, estimates
from dlbench.common.files import canonical_json, json_digest
from dlbench.history import causes, machines
from dlbench.log import event_fields
from dlbench.records.run_record import RecordError
from dlbench.study.runs import DEFAULTS, PROBE_ID, Run, labels
from dlbench.tables.cells import Row

Record = Mapping[str, Any]
EARLIEST = datetime(2020, 1, 1, tzinfo=timezone.utc)  # older than dlbench
LOG_DIGITS, ID_DIGITS = 16, 12
THROUGHPUT = {campaigns.ITEM_RATE: "items/s", campaigns.TOKEN_RATE: "tokens/s"}


def by_session(
    records: Sequence[Record], report: Callable[[str], None]
) -> dict[str, list[tuple[campaigns.Measured, Record]]]:
    """{session: its runs}, but for probes; records of newer versions are reported and left out.

    Runs of which no session is known are one session, which is named by its first start.
    """
    sessions: dict[str | None, list[tuple[campaigns.Measured, Record]]] = {}
    for record in records:
        if PROBE_ID.fullmatch(record["run_id"]):
            continue
        try:
            run = campaigns.from_record(record)
        except RecordError as error:
            report(str(error))
            continue
        sessions.setdefault(run.session, []).append((run, record))
    if unnamed := sessions.pop(None, []):
        first = min((r["summary"].get("started_at") or "unknown" for _, r in unnamed))
        sessions[f"none-{first[:19].replace('-', '').replace(':', '')}Z"] = unnamed
    return {str(session): runs for session, runs in sessions.items()}


def rows(
    session: str,
    runs: Sequence[tuple[campaigns.Measured, Record]],
    options: Mapping[str, Any],
    report: Callable[[str], None],
    missed_gates: Mapping[str, bool],
) -> list[Row]:
    """The rows of a session, without the columns about its source.

    Args:
        options: `site` and `date` that the config gives it.
        report: called with a text for each number that is left out.
        missed_gates: {digest of a run's log: whether it missed its learning gate}.

    Raises:
        Error: the date of the session cannot be right, or it is not of one site.
    """
    records = [record for _, record in runs]
    machine_facts = machines.facts(records)
    common = {
        "session": session,
        "started_at": _started_at(session, records, options.get("date")),
        "site": _site(session, runs, options.get("site")),
        "study": _texts(run.facts.get("study") for run, _ in runs),
        "machine_key": machines.key(machine_facts),
        "machine": machines.name(machine_facts),
        "machine_facts": _json(machine_facts),
    }
    conditions: dict[tuple[str, str], list[tuple[campaigns.Measured, Record]]] = {}
    for run, record in runs:
        names = _json(_fields(run)), _json(_meaning(record))
        conditions.setdefault(names, []).append((run, record))
    named = labels(map(_combination, conditions.values()))
    return [
        common | row
        for (fields, meaning), members in sorted(conditions.items())
        for row in _of_condition(
            fields, meaning, members, named[_combination(members).id], report, missed_gates
        )
    ]


def _combination(members):
    _, record = members[0]
    return Run(**record["spec"]).combination


def _of_condition(fields, meaning, members, label, report, missed_gates):
    """The rows of a condition, one a metric."""
    records = [record for _, record in members]
    facts = causes.facts(records)
    completed = [(run, record) for run, record in members if run.finished]
    quiet = [(run, record) for run, record in completed if not run.disturbed]
    logs = [record["log_sha256"] for record in records]
    judged = [missed_gates[log] for log in logs if log in missed_gates]
    common = {
        "condition_id": json_digest(fields)[:ID_DIGITS],
        "condition": label.removesuffix(", repeat 1"),
        "fields": fields,
        "meaning": meaning,
        "failed": len(members) - len(completed),
        "disturbed": len(completed) - len(quiet),
        "missed": sum(judged) if judged else None,
        "hosts": _texts(h for record in records for h in record["provenance"].get("hosts") or ()),
        "driver": facts.get("GPU driver"),
        "firmware": _texts(facts.get(name) for name in ("GPU VBIOS", "CPU microcode")),
        "kernel": facts.get("kernel"),
        "framework": _combination(members).framework,
        "framework_version": _texts(one.facts.get("framework_version") for one, _ in members),
        "image_digest": facts.get("image"),
        "git_commit": facts.get("dlbench commit"),
        "facts": _json(facts),
        "logs": sorted(log[:LOG_DIGITS] for log in logs),
    }
    for (metric, unit, better), values in _metrics(quiet, members).items():
        good = [value for value in values if math.isfinite(value) and value > 0]
        if len(good) < len(values):
            report(
                f"{common['condition']}: {metric}: {len(values) - len(good)} of {len(values)} "
                "values are not above 0, and have no logarithm: left out"
            )
        yield common | {"metric": metric, "unit": unit, "better": better} | _numbers(good)


def _metrics(quiet, members):
    """{(name, unit, better): values of the runs} of throughput and of the runs' own metrics."""
    rates = [name for name in THROUGHPUT if any(name in run.numbers for run, _ in members)]
    rate = rates[-1] if rates else campaigns.ITEM_RATE
    values = {
        (rate, THROUGHPUT[rate], "higher"): [
            run.numbers[rate] for run, _ in quiet if rate in run.numbers
        ]
    }
    for _, record in quiet:
        for one in record["summary"].get("metrics") or ():
            key = (one["name"], one.get("unit") or "", one.get("better") or "")
            values.setdefault(key, []).append(float(one["value"]))
    return values


def _numbers(values):
    if not values:
        return {"n": 0}
    mean = estimates.mean(values)
    logs = [math.log(value) for value in values]
    centre = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - centre) ** 2 for x in logs) / max(1, len(logs) - 1))
    return {
        "n": len(values),
        "mean_log": centre,
        "scatter": spread if len(values) > 1 else None,
        **mean.columns("mean"),
    }


def _fields(run):
    return {
        name: value
        for name in campaigns.JOINABLE
        if (value := run.fields.get(name)) is not None and value != DEFAULTS.get(name)
    }


def _meaning(record):
    provenance = record["provenance"]
    model = (provenance.get("user_files") or {}).get("model") or {}
    meaning = {"data": provenance.get("data_sha256"), "model": model.get("sha256")}
    return {name: value for name, value in meaning.items() if value}


def _started_at(session, records, given):
    starts = [record["summary"].get("started_at") for record in records]
    dates = [datetime.strptime(d, event_fields.UTC_FORMAT) for d in starts if d]
    first = min(dates, default=None)
    first = first and first.replace(tzinfo=timezone.utc)
    if given:
        return datetime.fromisoformat(given).replace(tzinfo=timezone.utc)
    latest = datetime.now(timezone.utc).timestamp() + 86400
    if first is None or first < EARLIEST or first.timestamp() > latest:
        found = f"{first:%Y-%m-%d %H:%M}" if first else "no date"
        raise Error(
            f"session {session}: its first run began at {found}, which cannot be: was the clock of "
            'the machine not set? Give the entry of the config a date: "YYYY-MM-DD"'
        )
    return first


def _site(session, runs, given):
    sites = sorted({run.facts.get("site") or "unknown" for run, _ in runs})
    if given or len(sites) == 1:
        return given or sites[0]
    raise Error(
        f"session {session}: its runs name several sites ({', '.join(sites)}): give the entry of "
        "the config a site"
    )


def _texts(values):
    return ", ".join(sorted({str(value) for value in values if value})) or None


def _json(value):
    return canonical_json(value).decode()
