"""What keeps a comparison from being one of like with like: `base_flags`, `base_mismatch`.

They name fields and facts in which the two sides differ, APART or NEIGHBOURS. Joined by `, ` they
are a column of tables.
"""

# In sessions between which the machine is not known to have stayed the same.
APART = "measured apart"
NEIGHBOURS = "neighbours"  # others disturbed a run of either side
OTHERS = {NEIGHBOURS: "disturbed by others", APART: APART}  # no names of fields, and in few words
REMEDY = "With workflow_scripts/rerun_bases.py both sides are measured again, in one session."


def words(flags, sides, verb="differ in"):
    """Flags as a clause.

    Args:
        flags: a column's text.
        sides: what both are called, in the plural.
        verb: before names of fields.

    >>> words("device_model, seed, neighbours, measured apart", "both")
    'both differ in device_model and seed and were measured apart, and others on the machine \
disturbed some of their runs'
    >>> words("neighbours", "point and base")
    'others on the machine disturbed some runs of point and base'
    """
    fields, others = _split(flags)
    said = [f"{verb} {_listed(fields)}"] if fields else []
    said += ["were measured apart"] if APART in others else []
    clauses = [f"{sides} {' and '.join(said)}"] if said else []
    if NEIGHBOURS in others:
        whose = "of their runs" if said else f"runs of {sides}"
        clauses.append(f"others on the machine disturbed some {whose}")
    return ", and ".join(clauses)


def note(flags):
    """Flags in few words, as beside a row of a figure.

    >>> note("seed, measured apart"), note("")
    ('differs in seed \u00b7 measured apart', '')
    """
    fields, others = _split(flags or "")
    said = [f"differs in {_listed(fields)}"] if fields else []
    return " \u00b7 ".join([*said, *(OTHERS[name] for name in others)])


def _split(flags):
    names = list(filter(None, flags.split(", ")))
    return [n for n in names if n not in OTHERS], [n for n in names if n in OTHERS]


def _listed(names):
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
