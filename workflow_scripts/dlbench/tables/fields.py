"""Fields of tables, with units and descriptions in their metadata.

Columns that are fields of a run follow from the declarations in dlbench/run_fields/.
"""

from collections.abc import Iterable

import pyarrow as pa

from dlbench.run_fields.declaring import value_type
from dlbench.run_fields.fields import DECLARED, FIELDS

TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())  # a text of which there are few
COUNT, REAL = pa.int64(), pa.float64()
TIME = pa.timestamp("us", tz="UTC")


def field(name: str, type_: pa.DataType, unit: str = "", note: str = "") -> pa.Field:
    """A field; its metadata has a `unit` and a `description` where they are not empty."""
    metadata = {k: v for k, v in (("unit", unit), ("description", note)) if v}
    return pa.field(name, type_, metadata=metadata or None)


def fields(type_: pa.DataType, *names: str) -> list[pa.Field]:
    """Fields of one type, without units."""
    return [field(name, type_) for name in names]


def with_interval(name: str, unit: str, note: str) -> list[pa.Field]:
    """A value and the ends of its 95 % interval, which are absent where one run gives none."""
    return [
        field(name, REAL, unit, note),
        field(f"{name}_ci95_low", REAL, unit, "Student's or Welch's t on logarithms"),
        field(f"{name}_ci95_high", REAL, unit),
    ]


def of_run(*names: str, described: bool = False) -> list[pa.Field]:
    """Columns of fields of a run.

    Args:
        described: with what they mean, as in the table of runs; other tables refer to that.
    """
    return [_of_run(name, described) for name in names]


def with_run_fields(
    columns: Iterable[pa.Field], names: Iterable[str], described: bool = False
) -> pa.Schema:
    """Columns, and those of the fields of a run that they lack, after the last that they have.

    So a table gets a newly declared field, and its other columns stay where they are.
    """
    columns = list(columns)
    names_in_order = [column.name for column in columns]
    further = of_run(*(name for name in names if name not in names_in_order), described=described)
    end = max(index for index, name in enumerate(names_in_order) if name in FIELDS) + 1
    return pa.schema([*columns[:end], *further, *columns[end:]])


def _of_run(name, described):
    declared = DECLARED[name]
    kinds = {str: NAME, bool: pa.bool_(), float: REAL, int: COUNT}
    type_ = pa.int32() if declared.bits == 32 else kinds[value_type(FIELDS[name])]
    return field(name, type_, declared.unit, declared.note if described else "")
