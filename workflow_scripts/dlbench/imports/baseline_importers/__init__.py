"""Importers of other programs' measurements of a machine as baselines, one file each.

A file's docstring explains the program's numbers. It defines:
    recognise(log): whether a LogFile (dlbench/imports/log_file.py) is of this kind, judged by
        `log.head_text` alone.
    read(log, fields): yields a Measurement for each table in the log. `fields` are the user's
        columns, for values that the log lacks.
        Raises LogError, with the line, if the log is of this kind but cannot be parsed.
and may define LINE_MARKS, like other importers.
"""

from dataclasses import dataclass, field


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
