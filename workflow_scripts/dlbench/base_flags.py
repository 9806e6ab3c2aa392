"""What keeps a comparison from being one of like with like: `base_flags`, `base_mismatch`.

They name fields and facts in which the two sides differ, or one of OTHERS. Joined by `, ` they are
a column of tables.
"""

# In sessions between which the machine is not known to have stayed the same.
APART = "measured apart"
NEIGHBOURS = "neighbours"  # others disturbed a run of either side
# What is no name of a field, and how it is said of both sides.
OTHERS = {
    NEIGHBOURS: "have runs that others on the machine disturbed",
    APART: "were measured apart",
}
REMEDY = "workflow_scripts/rerun_bases.py measures the bases again, in one session with the others."


def words(flags, verb="differ in"):
    """Flags in words.

    Args:
        flags: a column's text.
        verb: before names of fields.

    >>> words("device_model, seed, measured apart"), words("measured apart")
    ('differ in device_model, seed and were measured apart', 'were measured apart')
    """
    names = flags.split(", ")
    fields = ", ".join(name for name in names if name not in OTHERS)
    said = [f"{verb} {fields}"] if fields else []
    return " and ".join([*said, *(OTHERS[name] for name in names if name in OTHERS)])


def note(flags):
    """Flags in few words, as beside a row of a figure.

    >>> note("seed, measured apart"), note("")
    ('differs in seed \u00b7 measured apart', '')
    """
    names = list(filter(None, (flags or "").split(", ")))
    fields = ", ".join(name for name in names if name not in OTHERS)
    said = [f"differs in {fields}"] if fields else []
    return " \u00b7 ".join([*said, *(name for name in names if name in OTHERS)])
