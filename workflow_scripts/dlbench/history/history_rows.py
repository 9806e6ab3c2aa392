"""The rows of a history: made from the records of a session, and read as arrays.

- One row a condition and metric. The number is the mean of logarithms over the runs of the session
  that completed, sentinels included; runs that other processes disturbed are left out and counted.
- A condition is known by its fields that are not their defaults, so that a new field of a run
  changes none. What else may differ under the same fields (data, files of one's own) is its
  meaning.
- A machine is known by facts of it that do not move. Its key is a digest of the models and numbers
  of processors, cores and GPUs of a node. Clocks, memory sizes, settings of BIOS, microcode and
  host names are not in it: they move between boots of one machine, and are facts whose changes are
  events (causes.py).
- Nodes of one kind at one site are one machine, as a job may get any of them. A session on unlike
  nodes is of a machine of its own.
- The config may say by hand which keys are one machine: `machines: {NAME: [KEY, KEY]}`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench import Error
from dlbench.analysis import campaigns, estimates
from dlbench.common.files import canonical_json, json_digest
from dlbench.history import causes
from dlbench.log import event_fields
from dlbench.records.run_record import RecordError
from dlbench.study.runs import DEFAULTS, PROBE_ID, Run, labels
from dlbench.tables.cells import Row

KEY_DIGITS = 12
LABELS = ("condition_id", "condition", "metric", "unit", "better")
# Marks, and clocks, which some kernels and virtual machines add to the name of a model.
_SPARE = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@\s*[\d.]+\s*[GM]Hz", re.IGNORECASE)


def machine_facts(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of the machine on which some records of a session were made.

    `nodes` has a text for each kind of node; `gpus` one for each kind of GPU, with their number a
    node. Of records of early versions, which have neither, `device_model` alone is known.
    """
    nodes, gpus, models, most = set(), set(), set(), 0
    for record in records:
        provenance = record["provenance"]
        models.add(_plain(provenance.get("device_model") or "unknown"))
        for hardware in (provenance.get("hardware") or {}).values():
            nodes.add(_processors(hardware.get("cpu") or {}))
            kinds = (hardware.get("gpus") or {}).get("kinds") or ()
            gpus |= {_plain(kind.get("name") or "unknown GPU") for kind in kinds}
        present = provenance.get("present") or {}
        links = present.get("gpu_links") or ()  # of each pair of all GPUs of the node
        most = max([most, len(present.get("gpus") or ()), *(b + 1 for _, b, *_ in links)])
    if not nodes:
        return {"device_model": sorted(models)}
    return {"nodes": sorted(nodes), "gpus": sorted(gpus), "gpus_per_node": most if gpus else 0}


def machine_key(facts: Mapping[str, Any]) -> str:
    """The key of the machine that has these facts."""
    return json_digest(dict(facts))[:KEY_DIGITS]


def machine_name(facts: Mapping[str, Any]) -> str:
    """The facts in words, as `2 x AMD EPYC 7763, 128 cores; 8 x NVIDIA A100-SXM4-80GB`."""
    if "device_model" in facts:
        return " and ".join(facts["device_model"])
    text = " and ".join(facts["nodes"])
    if not facts["gpus"]:
        return text
    return f"{text}; {facts['gpus_per_node']} x {' and '.join(facts['gpus'])}"


def _processors(cpu):
    model = _plain(cpu.get("model") or cpu.get("vendor") or "unknown processor")
    sockets, cores = cpu.get("sockets") or "?", cpu.get("cores") or "?"
    return f"{sockets} x {model}, {cores} cores"


def _plain(model):
    """
    >>> _plain("Intel(R) Xeon(R) CPU @ 2.60GHz"), _plain("AMD EPYC 7763 64-Core Processor")
    ('Intel Xeon', 'AMD EPYC 7763 64-Core')
    """
    return " ".join(_SPARE.sub(" ", model).split())


class HistoryRows:
    """The rows of a history by number: codes of what they are of, and their numbers.

    Args:
        table: as dataset.read returns it, with the columns of analyse_history.COLUMNS.
        names: {key of a machine: name}, as the config says.
        more: further columns of the table with texts.

    Attributes:
        texts, codes: of each column its texts, and which of them each row has, -1 for none;
            `machine_id` is the name of its machine in the config, or its key.
        meaning: the code of the meaning of each row, also where its record does not say it.
        remarks: texts on conditions whose name has several meanings.
    """

    def __init__(self, table: pa.Table, names: Mapping[str, str], more: Sequence[str] = ()) -> None:
        self.remarks: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.codes: dict[str, np.ndarray] = {}
        for name in (
            *("site", "session", "machine_key", "machine", "machine_facts", "condition_id"),
            *("condition", "metric", "unit", "better", "meaning", "facts", "hosts", "file"),
            *("study", "archive_sha256", *more),
        ):
            self.codes[name], self.texts[name] = _coded(table[name])
        self.dates = table["started_at"].to_numpy() if len(table) else np.array([], "M8[us]")
        self.n, self.failed = _numbers(table["n"]), _numbers(table["failed"])
        self.means, self.scatters = _numbers(table["mean_log"]), _numbers(table["scatter"])
        of_keys = [names.get(key, key) for key in self.texts["machine_key"]]
        ids = self.texts["machine_id"] = sorted(set(of_keys))
        codes = np.array([ids.index(name) for name in of_keys], dtype=int)
        self.codes["machine_id"] = codes[self.codes["machine_key"]]
        self.condition = self._conditions()

    def text(self, name: str, row: int) -> Any:
        """The text of a column in a row."""
        code = self.codes[name][row]
        return self.texts[name][code] if code >= 0 else None

    def where(self, name: str, text: str | None) -> np.ndarray:
        """Whether each row has a text in a column."""
        known = self.texts[name]
        return self.codes[name] == (known.index(text) if text in known else len(known))

    def labels(self, row: int) -> dict[str, str]:
        """What the condition and the metric of a row are called."""
        return {name: self.text(name, row) or "" for name in LABELS}

    def places(self) -> list[tuple[str, str]]:
        """(site, machine) of all that were measured."""
        pairs = np.unique(np.stack([self.codes["site"], self.codes["machine_id"]]), axis=1)
        return [(self.texts["site"][s], self.texts["machine_id"][m]) for s, m in pairs.T]

    def _conditions(self):
        """A number for each condition, its meaning and the metric; remarks where meanings differ.

        Where the meaning is not recorded, as in early versions, it is taken to be the others'.
        """
        count = len(self.dates)
        ids, meanings = self.codes["condition_id"], self.codes["meaning"]
        meaning = meanings.copy()
        pairs = np.unique(np.stack([ids, meanings]), axis=1) if count else np.empty((2, 0), int)
        known: dict[int, list[int]] = {}
        for condition, code in pairs.T:
            known.setdefault(int(condition), []).append(int(code))
        for condition, codes in known.items():
            if len(codes) < 2:
                continue
            rows = np.flatnonzero(ids == condition)
            told = [code for code in codes if self.texts["meaning"][code] != "{}"]
            if len(told) == 1:
                meaning[rows] = told[0]
                continue
            label = self.text("condition", rows[0])
            parts = ", ".join(
                f"{self.texts['meaning'][code]} from "
                f"{day(self.dates[rows][meanings[rows] == code].min())}"
                for code in codes
            )
            self.remarks.append(
                f"{label}: one name and several meanings, which are kept apart: {parts}"
            )
        self.meaning = meaning
        triples = np.stack([ids, meaning, self.codes["metric"]])
        return np.unique(triples, axis=1, return_inverse=True)[1].ravel()


def _coded(column):
    """(codes, -1 for none; texts) of a column of texts."""
    column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, column.dictionary.to_pylist()


def _numbers(column):
    return column.to_numpy().astype(float) if len(column) else np.array([])


def to_time(date: Any) -> datetime:
    """A date of numpy, or one of Python, as one of Python."""
    return date.astype("M8[us]").astype(object) if isinstance(date, np.datetime64) else date


def day(when: Any) -> str:
    """A date in words."""
    return f"{to_time(when):%Y-%m-%d}"


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


def rows_of_session(
    session: str,
    runs: Sequence[tuple[campaigns.Measured, Record]],
    options: Mapping[str, Any],
    report: Callable[[str], None],
    missed_gates: Mapping[str, bool],
) -> list[Row]:
    """The rows of a session, without the columns about its source.

    `options`: `site` and `date` that the config gives it; `report` is called with a text for each
    number that is left out; `missed_gates`: {digest of a run's log: whether it missed its learning
    gate}. Raises Error: the date of the session cannot be right, or it is not of one site.
    """
    records = [record for _, record in runs]
    of_machine = machine_facts(records)
    common = {
        "session": session,
        "started_at": _started_at(session, records, options.get("date")),
        "site": _site(session, runs, options.get("site")),
        "study": _texts(run.facts.get("study") for run, _ in runs),
        "machine_key": machine_key(of_machine),
        "machine": machine_name(of_machine),
        "machine_facts": _json(of_machine),
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
        "driver": facts.get("gpus driver"),
        "firmware": _texts(facts.get(name) for name in ("gpus kinds vbios", "cpu microcode")),
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
        yield common | {"metric": metric, "unit": unit, "better": better} | _of_values(good)


def _metrics(quiet, members):
    """{(name, unit, better): values of the runs} of throughput and of the runs' own metrics."""
    rates = [name for name in THROUGHPUT if any(name in run.numbers for run, _ in members)]
    rate = rates[-1] if rates else campaigns.ITEM_RATE
    own = [run.numbers[rate] for run, _ in quiet if rate in run.numbers]
    values = {(rate, THROUGHPUT[rate], "higher"): own}
    for _, record in quiet:
        for one in record["summary"].get("metrics") or ():
            key = (one["name"], one.get("unit") or "", one.get("better") or "")
            values.setdefault(key, []).append(float(one["value"]))
    return values


def _of_values(values):
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
