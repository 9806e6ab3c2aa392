"""How long a run is, and which runs are as long."""

from dlbench.analysis import estimates


def length(row):
    """How long a run was to be: (epochs, steps), of which one is None."""
    return tuple(None if estimates.is_absent(v := row.get(n)) else v for n in ("epochs", "steps"))


def of_length(row, rows):
    """Those of some rows that are as long as a run; where none is, those as long as the longest.

    >>> of_length({"epochs": 5}, [{"steps": 9, "run_id": "short"}, {"epochs": 5, "run_id": "same"}])
    [{'epochs': 5, 'run_id': 'same'}]
    """
    found = [other for other in rows if length(other) == length(row)]
    if found or not len(rows):
        return found
    measured = [other.get("steps_measured") for other in rows]
    steps = [0 if estimates.is_absent(count) else count for count in measured]
    longest = length(rows[steps.index(max(steps))])
    return [other for other in rows if length(other) == longest]
