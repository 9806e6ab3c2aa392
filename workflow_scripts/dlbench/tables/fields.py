"""Fields of tables, with their units and what they mean in their metadata."""

import pyarrow as pa

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
