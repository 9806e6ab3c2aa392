"""Runs as the series and rows of figures, and the settings in their names.

- Runs that agree in all SETTINGS but those along the axis are one series; runs that agree in
  all of them are repeats of one condition.
- The name of a series has what differs between the series of its figure. A series has one index,
  so one colour and marker, in all panels.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dlbench.analysis import estimates
from dlbench.common import phrases
from dlbench.common.run_fields import DECLARED
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study import parameters, wording
from dlbench.tables import cells
from dlbench.trainer.flags import LENGTHS

LONGEST = 64  # characters of a setting in a name; an importer may bring any text
MAX_SERIES, MAX_PANELS = 40, 24  # of a figure; a note counts further ones
# What makes a condition, in the order of its name.
SETTINGS = wording.in_order({*wording.FACTS, *(n for n in DECLARED if DECLARED[n].is_axis)})
# Settings that may change from point to point of a series.
ALONG = {
    "devices": ("devices", "nodes", "launcher", "global_batch"),
    "batch_per_device": ("batch_per_device", "global_batch"),
    "sequence_length": ("sequence_length", "item_shape"),
    None: ("global_batch",),
}
# Labels of runs that leave a setting unset, beside those that set it.
UNSET_LABELS = {"power_limit_w": "limit as found"}
# Known only once a run trains; missing if it failed earlier.
KNOWN_LATE = ("device_model", "framework_version")
# Settings that the heading of a panel names if all its runs share them.
HEADING = ("mode", "strategy", "devices", "batch_per_device", "precision", "runtime")
MODES = {
    "train": "training",
    "forward": "forward",
    "forward_backward": "forward and backward",
    "input": "input alone",
}


@dataclass(frozen=True)
class Series:
    """Runs that differ along one axis only."""

    name: str
    index: int
    x: str | None
    runs: pd.DataFrame

    @functools.cached_property
    def finished(self) -> pd.DataFrame:
        return self.runs[self.runs["status"].isin(SUCCEEDED)]

    @property
    def published(self) -> bool:
        return bool((self.runs["timing_source"] == cells.PUBLISHED).all())

    def repeats(self, value: str) -> list[tuple[Any, np.ndarray]]:
        """[(x, values of the repeats that have this column), ...]"""
        known = self.finished[[self.x, value]].dropna()
        return [(x, values.to_numpy(dtype=float)) for x, values in known.groupby(self.x)[value]]

    def means(self, value: str) -> list[tuple[Any, estimates.Estimate]]:
        """[(x, Estimate), ...]: geometric means over repeats."""
        return [(x, estimates.mean(values.tolist())) for x, values in self.repeats(value)]

    def rates(self, unit: wording.Unit) -> list[tuple[Any, estimates.Estimate]]:
        """As `means`, of the throughput in a unit."""
        return replace(self, runs=rated(self.runs, unit)).means("rate")

    def unstable(self) -> set[Any]:
        """The x at which runs are unstable."""
        return set(self.runs.loc[self.runs["status"] == "unstable", self.x])

    def failures(self) -> list[tuple[Any, str, int, int]]:
        """[(x, status, failed, tried), ...] where runs failed, the commonest status first."""
        failures: list[tuple[Any, str, int, int]] = []
        if len(self.finished) == len(self.runs):
            return failures
        for x, statuses in self.runs.groupby(self.x)["status"]:
            failed = statuses[~statuses.isin(SUCCEEDED)]
            if len(failed):
                failures.append((x, failed.mode().iloc[0], len(failed), len(statuses)))
        return failures


def rate_unit(all_series: Iterable[Series]) -> wording.Unit:
    """The unit of the rates of a panel."""
    return wording.rate_unit(shape for s in all_series for shape in s.runs["item_shape"].unique())


def rated(runs: pd.DataFrame, unit: wording.Unit) -> pd.DataFrame:
    """Runs with a column `rate`: their throughput in a unit."""
    rates = runs["images_per_second"].astype(float)
    if unit.plural == "tokens":
        rates = rates * runs["item_shape"].map(wording.tokens).astype(float)
    return pd.concat([runs, rates.rename("rate")], axis=1)


def started_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs that were started, with text instead of categories.

    Facts that are known once a run trains (KNOWN_LATE) are filled in from runs of equal settings.
    """
    runs = runs[runs["status"] != "skipped"]
    names = [name for name in runs if isinstance(runs[name].dtype, pd.CategoricalDtype)]
    runs = runs.astype({name: object for name in names}).copy()  # in one piece
    settings = [name for name in SETTINGS if name not in KNOWN_LATE]
    if runs.empty:
        return runs
    # A publication or log that states no mode is about training.
    runs["mode"] = runs["mode"].fillna("train")
    for name in KNOWN_LATE:
        known = runs.groupby(settings, dropna=False, sort=False)[name].transform("first")
        measured = runs["timing_source"] == cells.MEASURED
        usual = runs[measured][name].mode()
        runs[name] = runs[name].fillna(known)
        runs.loc[measured, name] = runs[name].fillna(usual.iloc[0] if len(usual) else "unknown")
    return runs


def series_along(
    x: str | None,
    runs: pd.DataFrame,
    panel: Sequence[str] = ("model", "dataset"),
    minimum: int = 1,
) -> dict[Any, list[Series]]:
    """Series of started runs along an axis, by panel: {values of `panel`: [Series, ...]}.

    Args:
        x: a key of ALONG, or a parameter of other programs (`parameters.NAME`) that is a number;
            None for series of repeats only.
        minimum: series with fewer values of x are left out.
    """
    changing = ALONG.get(x, (x, parameters.FIELD, "global_batch"))
    keys = [name for name in SETTINGS if name not in (*panel, *changing)]
    if x in runs and x not in ALONG:
        own = [name for name in runs if name.startswith(parameters.PREFIX)]
        keys = [name for name in keys if name not in _following(runs, own)]
        keys += [name for name in own if name != x]
    if x == "devices" and _layouts(runs, keys):
        keys.append("nodes")
    if x and len(runs):
        counts = runs.groupby([*panel, *keys], dropna=False)[x].transform("nunique")
        runs = runs[counts >= minimum]
    grouped = runs.groupby([*panel], dropna=False)
    differing = [
        name
        for name in _differing(runs, keys)
        # The length of runs does not change their steps.
        if name not in LENGTHS or (grouped[name].nunique(dropna=False) > 1).any()
    ]
    shapes = _shapes(runs)
    panels: dict[Any, list[Series]] = {}
    indices: dict[str, int] = {}
    for key, group in runs.groupby([*panel], dropna=False):
        for _, series in group.groupby(keys, dropna=False):
            first = series.iloc[0]
            one_shape = shapes.get((first["model"], first["dataset"]), 1) == 1
            name = condition_label(
                first, [name for name in differing if name != "item_shape" or not one_shape]
            )
            index = indices.setdefault(name, len(indices))
            panels.setdefault(key, []).append(Series(name, index, x, series))
    return panels


def _following(runs, own):
    """The settings that follow from one of the parameters, as the batch of a formula does."""
    return [
        name
        for name in ("batch_per_device", "item_shape")
        if any((runs.groupby(column)[name].nunique() == 1).all() for column in own)
    ]


def conditions(
    runs: pd.DataFrame, heading: Sequence[str] = ("model", "dataset")
) -> dict[tuple[str, str], list[tuple[str, pd.DataFrame]]]:
    """Repeats of one condition each, under headings: {(heading, subheading): [(name, runs), ...]}.

    The settings that differ under a heading are in the names; the others are in the subheading.
    """
    if runs.empty:
        return {}
    keys = [name for name in SETTINGS if name not in (*heading, "global_batch")]
    groups = {}
    for key, group in runs.groupby(list(heading), dropna=False):
        differing = _differing(group, keys)
        groups[" \u00b7 ".join(map(str, key)), common([group])] = [
            (condition_label(repeats.iloc[0], differing), repeats)
            for _, repeats in group.groupby(keys, dropna=False)
        ]
    return groups


def differing_settings(runs: pd.DataFrame, keys: Iterable[str]) -> list[str]:
    """The settings in which runs differ.

    A setting that a publication or a log does not state is not counted as a difference.
    """
    if "timing_source" not in runs:
        return [name for name in keys if runs[name].nunique(dropna=False) > 1]
    sides = [side for _, side in runs.groupby("timing_source")]
    return [
        name
        for name in keys
        if runs[name].nunique() > 1 or any(s[name].nunique(dropna=False) > 1 for s in sides)
    ]


def condition_label(row: pd.Series, names: Iterable[str]) -> str:
    """The label of some settings of a run.

    >>> condition_label(pd.Series({"strategy": "mirrored", "xla": True}), ["strategy", "xla"])
    'mirrored, XLA'
    >>> condition_label(pd.Series({"launcher": "none"}), ["launcher"])
    'no launcher'
    """
    labels = (setting_label(row, name) for name in wording.fields_for_label(names, row))
    # A missing launcher is named only if the label would be empty.
    return ", ".join(filter(None, labels)) or ("no launcher" if "launcher" in names else "")


def setting_label(row: pd.Series, name: str) -> str:
    """The label of one setting of a run; "" if it has none."""
    value = row[name]
    if name in UNSET_LABELS and pd.isna(value) and row.get("device_kind") == "gpu":
        return UNSET_LABELS[name]  # only GPUs have limits
    if pd.isna(value) or value in ("", cells.MEASURED):
        return ""
    if name == "devices":
        return phrases.counted(value, wording.device(row.get("device_kind")))
    if name == "item_shape" and (tokens := wording.tokens(value)):
        return wording.setting("sequence_length", tokens)
    if name == "nodes":
        return phrases.counted(value, "node")
    if name == "mode":
        return MODES.get(value, value)
    if isinstance(value, bool) or str(value) in ("True", "False"):
        if name in wording.SWITCHES:
            return wording.switch(name, value)
        field = wording.field_name(name)
        return field if value else f"not {field}"
    if isinstance(value, str):
        value = value.replace(",", ", ")
        value = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}\u2026"
    return wording.field(name, value)


def common(tables: Iterable[pd.DataFrame], names: Sequence[str] = HEADING) -> str:
    """The label of the settings that all runs of some data frames share."""
    runs = pd.concat([table[[*names, "device_kind"]] for table in tables])
    return condition_label(
        runs.iloc[0], [name for name in names if name not in differing_settings(runs, names)]
    )


def _differing(runs, keys):
    """The settings that differ, without a framework's version that follows from the framework."""
    differing = differing_settings(runs, keys)
    if "framework" in differing and "framework_version" in differing:
        versions = runs.groupby("framework", dropna=False)["framework_version"].nunique()
        if (versions <= 1).all():
            differing.remove("framework_version")
    return differing


def _shapes(runs):
    """{(model, dataset): how many shapes its items have}: synthetic items can have several."""
    if runs.empty:
        return {}
    return runs.groupby(["model", "dataset"], dropna=False)["item_shape"].nunique().to_dict()


def _layouts(runs, keys):
    """Whether a number of devices is spread over nodes in several ways."""
    groups = runs.groupby([*keys, "model", "dataset", "devices"], dropna=False)["nodes"]
    return bool((groups.nunique() > 1).any())
