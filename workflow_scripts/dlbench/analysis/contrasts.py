"""What a batch size, a strategy, a precision ... changes, where runs are alike in all else.

- Nobody asked for these comparisons: all of them are one family, corrected (Holm) for how many
  there are, whatever of them is shown.
- Real items are compared with synthetic ones of their shape, and of runs as long as theirs.
- A batch size is compared from the smallest to the largest that ended well; other fields, each
  value with the field's default, or with the first value where that was not run.
"""

from dlbench.analysis import estimates, run_lengths
from dlbench.analysis.drift import Drift
from dlbench.log import event_fields
from dlbench.study import config
from dlbench.study.runs import CONDITION, DEFAULTS

# Topics that are looked at unasked: field of a run, its figure.
TOPICS = {
    "batch_per_device": "batch_size",
    "strategy": "scaling",
    "precision": "batch_size",
    "xla": "scaling",
    "runtime": "overhead",
    "environment": "overhead",
    "dataset": "real_vs_synthetic",
}
SYNTHETIC = "synthetic"
# How real items are read, and what changes numbers but not the work of a step.
NOT_OF_DATA = ("augment", "cache", "evaluate", "learning_rate", "learning_rate_scaling",
               "learning_rate_batch", "learning_rate_warmup_steps", "steps", "warmup_steps",
               "epochs", "seed")  # fmt: skip


def found(runs, asked, margin, sentinels=()):
    """{field: [(runs of the condition, runs of its base, Comparison, Sides), ...]}

    Args:
        runs, sentinels: rows of these tables.
        asked: fields that are left out, since the config has them compared.
        margin: of equivalence.
    """
    drift = Drift(runs, sentinels, margin)
    done = [
        row for row in runs
        if row["status"] in event_fields.ENDED_WELL and (row.get("images_per_second") or 0) > 0
    ]  # fmt: skip
    pairs = [
        (name, *pair)
        for name in TOPICS
        if name not in asked
        for pair in _pairs(name, done)
    ]  # fmt: skip
    sides = [drift.compared(a, b) for _, a, b in pairs]
    judged = estimates.together([estimates.judged(s.difference, margin) for s in sides])
    by_field = {}
    for (name, a, b), compared, both in zip(pairs, judged, sides, strict=True):
        by_field.setdefault(name, []).append((a, b, compared, both))
    return by_field


def _pairs(name, rows):
    """[(runs of a condition, runs of its base), ...] equal in all but a field."""
    free = {name, *config.COMPANIONS.get(name, ())}
    free |= set(NOT_OF_DATA) if name == "dataset" else set()
    alike = [field for field in (*CONDITION, *estimates.FACTS) if field not in free]
    groups = {}
    for row in rows:
        if row[name] is None or (name == "dataset" and not row.get("item_shape")):
            continue  # not stated, so of no condition
        key = tuple(row.get(field) for field in alike)
        groups.setdefault(key, {}).setdefault(row[name], []).append(row)
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
        for alike in by_length.values():
            yield alike, run_lengths.of_length(alike[0], synthetic)


def _base(name, conditions):
    if name == "batch_per_device":
        return min(conditions)
    default = DEFAULTS.get(name)
    return default if default in conditions else min(conditions)
