"""What a batch size, a strategy, a precision ... changes, where runs are alike in all else.

- The config does not ask for these comparisons. All of them are one family, corrected (Holm) for
  how many there are, whichever of them are shown.
- Real items are compared with synthetic ones of their shape, and of runs as long as theirs.
- A batch size is compared from the smallest to the largest that completed; other fields, each
  value with the field's default, or with the first value where that was not run.
"""

from collections.abc import Collection, Sequence

from dlbench.analysis import base_flags, equivalence, run_lengths
from dlbench.analysis.drift import Drift, Sides
from dlbench.common import plugins
from dlbench.log import event_fields
from dlbench.run_fields.fields import DECLARED
from dlbench.study import config
from dlbench.study.runs import CONDITION, DEFAULTS, SAME_SPEED
from dlbench.tables.cells import Row

# Fields of a run that are compared, and their figures.
FIGURES = {name: field.contrast for name, field in DECLARED.items() if field.contrast}
SYNTHETIC = "synthetic"
# Runs of a condition, those of its base, and how they compare.
Contrast = tuple[list[Row], list[Row], equivalence.Comparison, Sides]


def is_synthetic(dataset: str) -> bool:
    """Whether a dataset is synthetic; datasets of other programs are taken for real ones."""
    return (
        plugins.is_known("datasets", dataset)
        and plugins.constants("datasets", dataset)["SYNTHETIC"]
    )


def by_field(
    runs: Sequence[Row], left_out: Collection[str], margin: float, sentinels: Sequence[Row] = ()
) -> dict[str, list[Contrast]]:
    """The Contrasts of each field, their p adjusted for all of them.

    Args:
        runs, sentinels: rows of the tables of these names.
        left_out: fields that are left out, since the config has them compared.
        margin: of equivalence.
    """
    drift = Drift(runs, sentinels, margin)
    done = [
        row
        for row in runs
        if row["status"] in event_fields.SUCCEEDED and (row.get("images_per_second") or 0) > 0
    ]
    pairs = [(n, *pair) for n in FIGURES if n not in left_out for pair in _pairs(n, done)]
    sides = [drift.compare(a, b) for _, a, b in pairs]
    judged = equivalence.adjust([equivalence.judge(s.difference, margin) for s in sides])
    contrasts: dict[str, list[Contrast]] = {}
    for (name, a, b), compared, sides_of_pair in zip(pairs, judged, sides, strict=True):
        contrasts.setdefault(name, []).append((a, b, compared, sides_of_pair))
    return contrasts


def _pairs(name, rows):
    """Yield (runs of a condition, runs of its base), which are equal in all but a field."""
    free = {name, *config.COMPANIONS.get(name, ())}
    free |= set(CONDITION) - set(SAME_SPEED) if name == "dataset" else set()
    shared = [field for field in (*CONDITION, *base_flags.FACTS) if field not in free]
    groups = {}
    for row in rows:
        value = row.get(name)
        if value is None or (name == "dataset" and not row.get("item_shape")):
            continue  # a field that is not stated makes no condition
        key = tuple(row.get(field) for field in shared)
        groups.setdefault(key, {}).setdefault(value, []).append(row)
    for conditions in groups.values():
        if name == "dataset":
            yield from _pairs_of_data(conditions)
            continue
        base = _base(name, conditions)
        others = [value for value in conditions if value != base]
        # A batch size gains along its axis: from the smallest to the largest.
        others = [max(others)] if name == "batch_per_device" and others else others
        yield from ((conditions[value], conditions[base]) for value in others)


def _pairs_of_data(conditions):
    """Each dataset, and each length of its runs, with synthetic items."""
    synthetic = conditions.pop(SYNTHETIC, [])
    for rows in conditions.values() if synthetic else ():
        by_length = {}
        for row in rows:
            by_length.setdefault(run_lengths.length(row), []).append(row)
        for same_length in by_length.values():
            yield same_length, run_lengths.of_length(same_length[0], synthetic)


def _base(name, conditions):
    if name == "batch_per_device":
        return min(conditions)
    default = DEFAULTS.get(name)
    return default if default in conditions else min(conditions)
