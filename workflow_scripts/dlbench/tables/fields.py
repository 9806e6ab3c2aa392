"""Fields of tables, with units and descriptions in their metadata.

Columns that are fields of a run follow from the declarations in dlbench/common/run_fields.py.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from dlbench.common import assignments
from dlbench.common.run_fields import DECLARED, FIELDS, value_type
from dlbench.study import parameters
from dlbench.tables.cells import Row

TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())  # a text of which there are few
COUNT, REAL = pa.int64(), pa.float64()
# Types of columns by the kinds of their values, the narrowest first.
OF_KINDS = {
    frozenset((bool,)): pa.bool_(),
    frozenset((int,)): COUNT,
    frozenset((int, float)): REAL,
}
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

    `described`: with what they mean, as in the table of runs; other tables refer to that.
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


def with_parameters(schema: pa.Schema, rows: Sequence[Row]) -> tuple[pa.Schema, Sequence[Row]]:
    """A schema and rows with a column for each parameter of other programs that rows have.

    A column is of numbers, of booleans, or of texts if its values are of several kinds.
    """
    if parameters.FIELD not in schema.names:
        return schema, rows
    own = [parameters.column_values(row.get(parameters.FIELD)) for row in rows]
    for name in sorted({name for values in own for name in values}):
        kinds = {type(values[name]) for values in own if name in values}
        type_ = next((OF_KINDS[kind] for kind in OF_KINDS if kinds <= kind), NAME)
        if type_ == NAME:
            own = [v | ({name: assignments.plain(v[name])} if name in v else {}) for v in own]
        schema = schema.append(field(name, type_, note="a parameter of the trainer's program"))
    return schema, [row | values for row, values in zip(rows, own, strict=True)]


def _of_run(name, described):
    declared = DECLARED[name]
    kinds = {str: NAME, bool: pa.bool_(), float: REAL, int: COUNT}
    type_ = pa.int32() if declared.bits == 32 else kinds[value_type(FIELDS[name])]
    return field(name, type_, declared.unit, declared.note if described else "")
