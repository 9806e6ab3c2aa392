"""Flags of comparisons whose sides are not alike: the columns `base_flags` and `base_mismatch`.

A flag is a field or fact in which the two sides differ, or APART, or NEIGHBOURS. The columns join
them by `, `.
"""

from dlbench.common import run_fields
from dlbench.machine import fingerprints
from dlbench.tables.cells import Row, is_absent

# In different sessions, between which drift is not excluded.
APART = "measured apart"
NEIGHBOURS = "neighbours"  # other processes on the machine, or a quota, disturbed a run of a side
OTHER_FLAGS = {NEIGHBOURS: "disturbed", APART: APART}  # flags that are no fields
REMEDY = "After dlbench retry with the ids of both sides one session has them."

# Facts in which runs of one condition agree, besides their fields.
FACTS = ("site", "device_model", "framework_version", "timing_source", "item_shape")
# Unknown of some runs, which is no difference.
MAY_BE_UNKNOWN = ("item_shape", *fingerprints.COLUMNS)
# A speedup compares like with like: these must agree between a point and its base, and the
# batch per device (weak scaling) or the global batch (strong).
BASE_KEYS = (
    *run_fields.tagged(run_fields.FLAGGED),
    *("data_sha256", "steps_measured", "framework_version", "device_model", "site"),
    *MAY_BE_UNKNOWN,
)


def clause(flags: str, sides: str, verb: str = "differ in") -> str:
    """Flags, the text of a column, as a clause on both `sides`; `verb`: before names of fields.

    >>> clause("device_model, seed, neighbours, measured apart", "both")
    'both differ in device_model and seed and were measured apart, and some of their runs were \
disturbed'
    >>> clause("neighbours", "point and base")
    'some runs of point and base were disturbed'
    """
    fields, other_flags = _split(flags)
    predicates = [f"{verb} {_listed(fields)}"] if fields else []
    predicates += ["were measured apart"] if APART in other_flags else []
    clauses = [f"{sides} {' and '.join(predicates)}"] if predicates else []
    if NEIGHBOURS in other_flags:
        owner = "of their runs" if predicates else f"runs of {sides}"
        clauses.append(f"some {owner} were disturbed")
    return ", and ".join(clauses)


def note(flags: str | None) -> str:
    """Flags as a short note, for a row of a figure.

    >>> note("seed, measured apart"), note("")
    ('differs in seed \u00b7 measured apart', '')
    """
    fields, other_flags = _split(flags or "")
    notes = [f"differs in {_listed(fields)}"] if fields else []
    return " \u00b7 ".join([*notes, *(OTHER_FLAGS[name] for name in other_flags)])


def _split(flags):
    names = list(filter(None, flags.split(", ")))
    return [n for n in names if n not in OTHER_FLAGS], [n for n in names if n in OTHER_FLAGS]


def _listed(names):
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def base_mismatch(row: Row, base: Row, fixed: str = "batch_per_device") -> list[str]:
    """The names of the keys that must agree and differ between a row and its base."""
    keys = [key for key in BASE_KEYS if key not in MAY_BE_UNKNOWN]
    differing = [key for key in (*keys, fixed) if _differ(row.get(key), base.get(key))]
    known_of_both = [key for key in MAY_BE_UNKNOWN if row.get(key) and base.get(key)]
    differing += [key for key in known_of_both if _differ(row[key], base[key])]
    return differing + [NEIGHBOURS] * is_disturbed(row, base)


def is_disturbed(*rows: Row) -> bool:
    """Whether any of some runs was disturbed: by others beyond what is allowed, or by a quota."""
    return any(not is_absent(row.get("disturbed")) for row in rows)


def _differ(a, b):
    """Whether two values differ; absent ones (None or nan) are equal to one another."""
    return not (a == b or (is_absent(a) and is_absent(b)))
