"""Which machine is fastest: only among conditions that are comparable.

Comparable are series of one metric whose runs agree in ALIKE, in the global batch, and in the
digests of data and model. Of each machine the best of them counts; in what else they differ is
named beside it. Series with runs that missed their learning gate since the last change do not lead.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlbench.analysis.estimates import Estimate
from dlbench.common.files import json_digest
from dlbench.log.metrics import HIGHER, LOWER
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.study import wording
from dlbench.study.runs import DEFAULTS, FIELDS
from dlbench.website import page_cells
from dlbench.website.site_data import Series, Site

ALIKE = ("model", "dataset", "precision", "mode", "sequence_length")  # beside the global batch
SIZE = ("batch_per_device", "nodes", "devices_per_node")  # whose product is the global batch
FEWEST = 2  # machines


@dataclass(frozen=True)
class Group:
    """Comparable series, one of each machine, the best first.

    Attributes:
        label: what they have in common.
        differing: fields in which they differ.
    """

    label: str
    metric: str
    series: list[Series]
    differing: list[str]

    def ratio(self, series: Series) -> Estimate:
        """The level of a series over that of the best, with its 95 % interval; of it none."""
        best = self.series[0].level
        found = ratio(series.level, best)
        return Estimate(1.0, math.nan, math.nan, best.runs) if series is self.series[0] else found


def ratio(level: Estimate, base: Estimate) -> Estimate:
    """The ratio of two levels; of its interval the ends are nan where one of them has none.

    The half-widths of both, on logarithms, add up as squares (G. Y. Zou and A. Donner,
    Construction of confidence limits about effect measures, Statistics in Medicine 27, 2008).
    """
    halves = [math.log(one.high / one.low) / 2 for one in (level, base)]
    half = math.hypot(*halves)  # nan if either is: as of a level that one run gives
    value = level.value / base.value
    return Estimate(value, value * math.exp(-half), value * math.exp(half), level.runs)


def missed(series: Series) -> int | None:
    """Runs behind the level of a series that missed their learning gate; None: no gate is known."""
    known = [point.missed for point in series.level_points if point.missed is not None]
    return sum(known) if known else None


def groups(site: Site) -> list[Group]:
    """Groups of comparable series of at least FEWEST machines."""
    found: dict[str, list[Series]] = {}
    for condition in site.conditions:
        for series in condition.series:
            if series.level_points and series.better in (HIGHER, LOWER) and not missed(series):
                values = _values(series)
                alike = {name: values.get(name) for name in ALIKE}
                key = [alike, _global_batch(values), dict(condition.meaning), series.metric]
                found.setdefault(json_digest(key), []).append(series)
    made = [_group(members) for members in found.values()]
    made = [group for group in made if len(group.series) >= FEWEST]
    return sorted(made, key=lambda group: (group.label, group.metric))


def page(site: Site) -> Page:
    """The page of leaders."""
    found = groups(site)
    lead = (
        "Levels of machines whose conditions agree in model, dataset, digests of data and model, "
        "precision and global batch."
    )
    if not found:
        lead = "No two machines have comparable conditions."
    reading = Section("How to read it", _READING)
    return Page("Leaders", lead, (reading, *map(_section, found), *_not_learned(site)))


_READING = (
    "Of each machine the best condition counts. Where the interval of a ratio contains 1, the "
    "order may be chance. What else differs between the conditions is named.",
    "A condition whose runs missed their learning gate does not lead: it is named below. Where no "
    "gate is known, the report of the campaign may say what was learned.",
)


def _group(members: list[Series]) -> Group:
    best: dict[str, Series] = {}
    for series in sorted(members, key=_best_first):
        best.setdefault(series.machine.address, series)
    chosen = list(best.values())
    values = [_values(series) for series in chosen]
    names = dict.fromkeys((*FIELDS, *(name for one in values for name in one)))
    differing = [name for name in names if len({str(one.get(name)) for one in values}) > 1]
    common = values[0]
    said = [n for n in ALIKE if n in wording.ALWAYS or common.get(n) != DEFAULTS.get(n)]
    parts = [
        *filter(None, (wording.field(n, common.get(n)) for n in said)),
        wording.setting("global_batch", _global_batch(common)),
    ]
    return Group(", ".join(parts), chosen[0].metric, chosen, differing)


def _best_first(series):
    sign = -1 if series.better == HIGHER else 1
    return sign * series.level.value, series.machine.address, series.condition.address


def _section(group: Group) -> Section:
    rows: list[list[str | Cell]] = []
    for series in group.series:
        found = group.ratio(series)
        values = _values(series)
        differs = ", ".join(wording.setting(name, values.get(name)) for name in group.differing)
        rows.append(
            [
                page_cells.machine(series.machine),
                page_cells.value(series.level, series.unit),
                Cell(f"{found.value:.3f}", drawn=(found.value, found.low, found.high, 0.0)),
                Cell(differs or "nothing", href=series.condition.address),
                "not known" if missed(series) is None else "reached",
                page_cells.session(series.level_points[-1].session),
            ]
        )
    headings = (
        "machine",
        "level (95 %)",
        "over the first",
        "condition differs in",
        "learning gate",
        "newest from",
    )
    return Section(f"{group.label}: {group.metric}", (), Table(headings, rows, right=(1, 2)))


def _not_learned(site: Site) -> Iterator[Section]:
    """The conditions that do not lead, because their runs did not learn."""
    rows: list[list[str | Cell]] = [
        [
            page_cells.condition(series),
            page_cells.machine(series.machine),
            page_cells.value(series.level, series.unit),
            Cell(f"{number} missed", "bad"),
            page_cells.session(series.level_points[-1].session),
        ]
        for condition in site.conditions
        for series in condition.series
        if (number := missed(series))
    ]
    if rows:
        headings = ("condition", "machine", "level (95 %)", "learning gate", "newest from")
        yield Section("Not among the leaders", (), Table(headings, rows, right=(2,)))


def _values(series: Series) -> Mapping[str, Any]:
    """All fields of a series' condition, with defaults."""
    return DEFAULTS | dict(series.condition.fields)


def _global_batch(values):
    sizes = [values.get(name) for name in SIZE]
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None
