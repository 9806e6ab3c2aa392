"""Import measurements of a machine by other programs as baselines, beside our own.

Each table in a log becomes a file like those of measure_baselines.py, which collect_runs.py
and `snakemake baselines` add to the table of baselines. The column `source` names the program.

One file here is an importer. Its docstring explains the program's numbers. It defines:
    recognise(log): whether a LogFile (dlbench/imports/log_file.py) is of this kind, judged by
        `log.head_text` alone.
    read(log, fields): yields a Measurement for each table in the log. `fields` are the user's
        columns, for values that the log lacks.
        Raises LogError, with the line, if the log is of this kind but cannot be parsed.
and may define LINE_MARKS, like other importers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.baselines import collectives, rounds
from dlbench.common import plugins
from dlbench.common.files import write_json
from dlbench.imports import kinds
from dlbench.imports.log_file import LogFile
from dlbench.imports.table_rows import parse_fields

KIND = "baseline_importers"
# Columns of baselines that users may give. The log or the user must give the first three.
NEEDED = ("site", "nodes", "devices_per_node")
USER_COLUMNS = (
    *(*NEEDED, "measure", "runtime", "runtime_options", "launcher"),
    *("device_kind", "device_model", "host"),
)
NOT_CONDITIONS = ("device_model", "host", "measure")  # elsewhere in a file of baselines


@dataclass
class Measurement:
    """One table of a program.

    Attributes:
        measure: name of the measure in the table of baselines.
        meaning: what the numbers are, for the column `source`.
        seconds: {message size in bytes: time of one operation in each round}.
        gb_per_s: the same for printed bandwidths, which replace those computed from the time.
        conditions: conditions that the log states: nodes, devices_per_node, device_model, ...
    """

    measure: str
    meaning: str
    seconds: dict[int, list[float]] = field(default_factory=dict)
    gb_per_s: dict[int, list[float]] = field(default_factory=dict)
    conditions: dict[str, str | int] = field(default_factory=dict)


def import_baselines(
    paths: Sequence[Path | str], folder: Path | str, fields: Mapping[str, Any]
) -> list[Path]:
    """Write a file for each table in logs into a machine's folder. Returns the files' paths.

    `fields`: the user's values for columns that the logs lack; site, nodes and devices_per_node are
    required. Raises Error, and writes nothing: no importer recognises a log, a log cannot be read,
    or a field is missing or differs from the log.
    """
    fields = _parse_fields(fields)
    if unknown := sorted(set(fields) - set(USER_COLUMNS)):
        raise Error(
            f"no field {', '.join(unknown)} of baselines; there are: {', '.join(USER_COLUMNS)}"
        )
    contents = {}
    for candidates in kinds.candidates_by_folder(paths, lambda below: False):
        for candidate in filter(lambda each: each.is_readable, candidates):
            log = LogFile(candidate.path)
            for number, (kind, measurement) in enumerate(_measurements(log, fields)):
                name = f"{kind}-{log.sha256[:10]}-{number}.json"
                contents[Path(folder) / name] = _file_content(measurement, fields, candidate)
    if not contents:
        names = ", ".join(plugins.names(KIND))
        raise Error(f"nothing was imported: no log of {names} in {', '.join(map(str, paths))}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_json(path, content)
    return list(contents)


def _parse_fields(fields):
    """The fields, converted to the types of their columns; `measure` is no column of runs."""
    if not isinstance(fields, dict) or "measure" not in fields:
        return parse_fields(fields)
    measure = fields["measure"]
    if not isinstance(measure, str):
        raise Error(f"measure: expected the name of a collective, found {measure!r}")
    others = {name: value for name, value in fields.items() if name != "measure"}
    return {**parse_fields(others), "measure": measure}


def _measurements(log: LogFile, fields: Mapping[str, Any]) -> Iterator[tuple[str, Measurement]]:
    modules = {name: plugins.load(KIND, name) for name in plugins.names(KIND)}
    for kind in kinds.importers_of(log, modules):
        yield from (
            (kind, measurement) for measurement in plugins.load(KIND, kind).read(log, fields)
        )


def _file_content(measurement, fields, candidate):
    """The content of a file like those of measure_baselines.py."""
    for name, value in {"measure": measurement.measure, **measurement.conditions}.items():
        if fields.get(name, value) != value:
            raise Error(
                f"{candidate.path}: --fields says {name} is {fields[name]}, the log says {value}"
            )
    conditions = measurement.conditions | fields
    if missing := [name for name in NEEDED if conditions.get(name) is None]:
        raise Error(
            f"{candidate.path}: the log does not say {', '.join(missing)}: give them, as "
            '--fields \'{"site": "far", "nodes": 2, "devices_per_node": 8}\''
        )
    devices = conditions["nodes"] * conditions["devices_per_node"]
    source = f"{candidate.name}: {measurement.meaning}"
    return {
        "conditions": {"framework": None, "strategy": "imported"}
        | {name: value for name, value in conditions.items() if name not in NOT_CONDITIONS},
        "versions": {},
        "measured_at": None,
        "host": conditions.get("host"),
        "device_model": conditions.get("device_model"),
        "load_average_1min": None,
        "hardware_sha256": None,
        "rows": [{**row, "source": source} for row in _rows(measurement, devices, candidate)],
    }


def _rows(measurement, devices, candidate):
    for size in sorted({*measurement.seconds, *measurement.gb_per_s}):
        seconds, rates = measurement.seconds.get(size, []), measurement.gb_per_s.get(size, [])
        if measurement.measure == "all_reduce":
            if devices < 2:
                raise Error(f"{candidate.path}: an all-reduce needs two devices, found {devices}")
            moved = collectives.bus_bytes(collectives.ALL_REDUCE, size, devices)
            yield rounds.timed(collectives.ALL_REDUCE, size, seconds, moved)
        elif rates:
            row = rounds.summary(measurement.measure, "GB/s", rates, size_bytes=size)
            yield row | _times(seconds)
        else:
            row = {"measure": measurement.measure, "size_bytes": size, "rounds": len(seconds)}
            yield row | _times(seconds) | {"unknown": "the time alone is known"}


def _times(seconds):
    if not seconds:
        return {}
    row = rounds.timed("", 1, seconds, 1)
    return {name: row[name] for name in ("time_s", "time_low_s", "time_high_s")}
