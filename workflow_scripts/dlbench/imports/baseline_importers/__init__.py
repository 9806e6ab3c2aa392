"""Importers of other programs' measurements of a machine, one file each, as rows of baselines.

A file's docstring says what the program's numbers mean. It defines:
    recognise(log): whether a LogFile (dlbench/imports/log_file.py) is of this kind, from
        `log.head_text` alone.
    read(log, fields): yields a Measurement for each table in the log. `fields` are the user's
        columns, for what does not follow from the log.
        Raises LogError, with the line, if the log is of this kind but cannot be understood.
and may define LINE_MARKS, as other importers do.
"""

from dataclasses import dataclass, field


@dataclass
class Measurement:
    """One table of a program.

    Attributes:
        measure: as the table of baselines calls it.
        meaning: what the numbers are, for its column `source`.
        seconds: of one, in each round, by the size of the message in bytes.
        gb_per_s: the same for bandwidths that are printed, which take the place of those that
            would follow from the time.
        conditions: that the log states: nodes, devices_per_node, device_model, ...
    """

    measure: str
    meaning: str
    seconds: dict[int, list[float]] = field(default_factory=dict)
    gb_per_s: dict[int, list[float]] = field(default_factory=dict)
    conditions: dict[str, str | int] = field(default_factory=dict)
