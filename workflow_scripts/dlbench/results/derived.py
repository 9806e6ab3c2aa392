"""Columns of the runs table that need more than a record: a run's fields, its gate, other runs.

- Energy per image, of runs that were not resumed.
- Bits per byte of held-out text, where it is known how many bytes a token has.
- Epochs x images / time, by the clock of the log, beside the throughput of the steps.
- Time to accuracy: the first evaluation with all scores that the learning gate asks for.
- What items are, and the throughput in tokens and of a device.
- Throughput over that of the same combination on synthetic items of the same shape.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dlbench.analysis import contrasts, estimates, run_lengths
from dlbench.common import plugins
from dlbench.log import energies
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study import contradictions, goals, other_trainers, runs, wording
from dlbench.study.runs import Run
from dlbench.tables.cells import Row
from dlbench.trainer import engine

AGREES = "agrees"
NEXT_TOKEN = "language"  # noqa: S105 - the task of models that predict each token of a text
CLOCK_SHARE = 0.05  # the clock and the steps may differ by so much, and by one batch


def energies_per_image_j(run: Run, summary: dict[str, Any]) -> dict[str, float | None]:
    """Joules an item, by column; None if energy is not known, or only since a resumption."""
    steps = 0 if summary.get("resumes") else _steps(summary)
    items = steps * run.global_batch * run.copies_per_node
    energies_j = {prefix: summary.get(f"{prefix}energy_j") for prefix in energies.SUBJECTS}
    return {
        f"{prefix}energy_per_image_j": energy_j / items if items and energy_j is not None else None
        for prefix, energy_j in energies_j.items()
    }


def bytes_per_token(run: Run) -> float | None:
    """Bytes of held-out text for a token that a run predicts; None if they are not known.

    A model that predicts masked tokens alone has no bits per byte.
    """
    if run.is_external:
        return other_trainers.stated(run, "bytes_per_token")
    kind = engine.plugin_kind(run.framework, "models")
    if not (plugins.is_known(kind, run.model) and plugins.is_known("datasets", run.dataset)):
        return None  # of an older study
    if plugins.constants(kind, run.model).get("TASK") != NEXT_TOKEN:
        return None
    return plugins.constants("datasets", run.dataset).get("BYTES_PER_TOKEN")


def bits_per_byte(loss: float, token_bytes: float) -> float | None:
    """Bits that a model needs for a byte of text, whatever its tokenizer; None if not finite.

    The formula is that of L. Gao et al. (2020), The Pile, arXiv:2101.00027, section 3.1.

    >>> bits_per_byte(math.log(256), 1)
    8.0

    Args:
        loss: cross-entropy, nats a token.
    """
    return loss / math.log(2) / token_bytes if math.isfinite(loss) else None


def epochs_check(run: Run, summary: dict[str, Any]) -> str | None:
    """AGREES if epochs x images / time is the throughput of the steps, else by how much it differs.

    None if the run has no whole measured epoch. The two may differ by CLOCK_SHARE, and by the one
    batch that goes across the end of an epoch.
    """
    clock, steps = summary.get("epochs_images_per_second"), summary.get("images_per_second")
    if not clock or not steps:
        return None
    allowed = CLOCK_SHARE + 1 / summary["steps_measured"]
    if abs(clock / steps - 1) <= allowed:
        return AGREES
    return (
        f"{100 * (clock / steps - 1):+.1f} %: epochs x images / time is {clock:.4g} items/s, "
        f"the steps say {steps:.4g}; expected at most {100 * allowed:.3g} % apart"
    )


def disagreement(checked: str | None) -> str:
    """The message of an `epochs_check` that failed; "" for any other."""
    if not checked or checked == AGREES:
        return ""
    return f"throughput by the clock differs by {checked}"


def reached_at(must_reach: dict[str, Any] | None, evals: Iterable[Row]) -> Row | None:
    """The first evaluation with all scores that a gate asks for; None if there is none.

    Args:
        must_reach: bounds by score; final_loss, of training, and metrics are left out.
        evals: rows of the evals table, in their order.
    """
    not_evaluated = ("final_loss", goals.METRICS)
    bounds = {k: v for k, v in (must_reach or {}).items() if k not in not_evaluated}
    if not bounds:
        return None
    return next((row for row in evals if not goals.describe_miss(bounds, row)), None)


def training_time_s(
    ranks: np.ndarray, steps: np.ndarray, step_times_s: np.ndarray, until: int
) -> float:
    """Seconds of the steps up to one of them, on the rank that took longest for them.

    Args:
        ranks, steps: columns of the steps table.
        step_times_s: of each row, that of a whole window where the row is of one.
        until: the last step that counts.

    >>> ranks, steps = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 2, 3, 1, 2, 3])
    >>> training_time_s(ranks, steps, np.array([5.0, 1, 1, 4, 2, 9]), until=2)
    6.0
    """
    counted = steps <= until
    by_rank = np.bincount(ranks[counted], weights=step_times_s[counted])
    return float(by_rank.max(initial=0.0))


def with_shared(rows: Sequence[Row]) -> list[Row]:
    """Rows of the runs table with the columns that need other rows, and those that follow.

    What items are, the rates in tokens, and throughput over that on synthetic items.
    """
    shapes: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        if row.get("item_shape"):
            shapes.setdefault(_data_key(row), set()).add(row["item_shape"])
    rows = [row | _item(row, shapes.get(_data_key(row), set())) for row in rows]
    synthetic: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if _is_measured(row) and contrasts.is_synthetic(row["dataset"]) and row.get("item_shape"):
            synthetic.setdefault(_partner_key(row), []).append(row)
    return [row | _beside_synthetic(row, synthetic.get(_partner_key(row))) for row in rows]


def _item(row, shapes):
    """What a row's items are; where its shape is missing, that of other runs of model and data."""
    shape = row.get("item_shape") or (next(iter(shapes)) if len(shapes) == 1 else None)
    rate, devices = row.get("images_per_second"), row.get("devices")
    return {"item_shape": shape} | wording.item_columns(shape, rate, devices)


def _beside_synthetic(row, twins):
    """Throughput over that on synthetic items.

    The partner is equal in all of SAME_SPEED and in the shape of its items, site, device and
    framework's version; its throughput is the geometric mean of its completed repeats. If
    partners have several lengths, those as long as the run count (`of_length`).
    """
    if not twins or not _is_measured(row) or contrasts.is_synthetic(row["dataset"]):
        return {}
    rates = [partner["images_per_second"] for partner in run_lengths.of_length(row, twins)]
    ratio = row["images_per_second"] / estimates.mean(rates).value
    return {"synthetic_ratio": ratio, "synthetic_runs": len(rates)}


def _partner_key(row):
    names = (*runs.SAME_SPEED, "site", "framework_version", "device_model", "item_shape")
    return tuple(row.get(name) for name in names)


def shape_text(shape: Sequence[int] | None) -> str | None:
    """The shape of an item as text; None if it is not known.

    >>> shape_text([224, 224, 3]), shape_text(None)
    ('224x224x3', None)
    """
    return "x".join(map(str, shape)) if shape else None


def _data_key(row):
    return tuple(row.get(n) for n in ("model", "dataset", "trainer", "timing_source", "study"))


def _is_measured(row):
    usable = row["status"] in SUCCEEDED and not row.get(contradictions.REASON)
    usable = usable and not row.get("apart")
    return usable and (row.get("images_per_second") or 0) > 0


def _steps(summary):
    return (summary.get("burn_in_steps") or 0) + (summary.get("steps_measured") or 0)
