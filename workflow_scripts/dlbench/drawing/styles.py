"""How figures look. Drawn again, their files are the same byte for byte."""

import contextlib
import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, NullFormatter, NullLocator

from dlbench.common.files import atomic_write
from dlbench.drawing import FORMATS

# Okabe and Ito's colours, legible for the colour-blind; text needs the darker orange.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
TEXT_COLOURS = {"#E69F00": "#B37700", "#56B4E9": "#2E86B5"}
MARKERS = ("o", "s", "^", "D", "v", ">")
LINES = ("-", "--")
GREY, LIGHT = "#5f5f5f", "#e2e2e2"
MAX_DIRECT_LABELS = 6
MAX_ABOVE = 1.1  # of the axes' height: above it a name would be among those of the next panel
MAX_APART = 0.35  # share of the axis between ends of lines that are named there
NOTE_INCHES = 0.22  # of a line below all panels
NOTE_CHARACTERS_PER_INCH = 13.5  # of 9 points, on average
LEGEND_LINES = 15  # of a column beside axes
NAME_CHARACTERS = 26  # of a line of a series' name
CHARACTER_EMS, TICK_EMS = 0.65, 0.8  # width of a character, and between the labels of two ticks

SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
STYLE: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#404040",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT,
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "lines.linewidth": 2,
    "lines.markersize": 6.5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.8,
    "legend.frameon": False,
    "svg.hashsalt": "dlbench",
    "text.parse_math": False,  # a name may have a $ in it
    "savefig.dpi": 160,
}


def looks(index: int) -> dict[str, Any]:
    """Colour, marker and line of the series number `index`; 72 of them differ."""
    return {
        "color": COLOURS[index % 6],
        "marker": MARKERS[(index + index // 6) % 6],
        "linestyle": LINES[index // 6 % 2],
    }


def half(axes: Axes, x: Any, y: Any, looks: Mapping[str, Any], **more: Any) -> None:
    """Draw half-filled markers over others, for what was measured apart."""
    marker: dict[str, Any] = {name: looks[name] for name in ("color", "marker")}
    marker |= {"fillstyle": "bottom", "markerfacecoloralt": "white", "linestyle": "none"}
    marker |= {"markeredgecolor": looks["color"], "markeredgewidth": 1.4}
    axes.plot(x, y, **marker, **more)


STAR = "*"
STAR_NOTE = (
    f"{STAR} some of its runs are unstable: steps stalled, or other processes disturbed them"
)


def star(axes: Axes, x: Any, y: Any, colour: str) -> None:
    """Mark a point that rests on unstable runs, as STAR_NOTE says."""
    looks = {"color": text_colour(colour), "fontsize": 13, "fontweight": "bold", "zorder": 5}
    write(axes, STAR, (x, y), (0, 2), ha="center", **looks)


def cross(axes: Axes, x: float, y: float, colour: str, **more: Any) -> None:
    """Mark a place where runs failed."""
    axes.plot(x, y, "x", color=colour, mec=colour, ms=7, mew=2, clip_on=False, **more)


def write(
    axes: Axes, text: str, at: tuple[Any, Any], points: tuple[float, float] = (0, 0), **more: Any
) -> None:
    """Write a text at a place, moved to the right and up by some points."""
    axes.annotate(text, at, xytext=points, textcoords="offset points", **more)


def star_note(figure: Figure) -> str:
    """What stars in a figure mean; "" if it has none."""
    return STAR_NOTE if any(t.get_text() == STAR for a in figure.axes for t in a.texts) else ""


def note_below(figure: Figure, text: str) -> None:
    """Write notes below all panels, wrapped to their width; the figure grows by their lines."""
    characters = int(NOTE_CHARACTERS_PER_INCH * figure.get_figwidth())
    text = "\n".join(textwrap.fill(line, characters) for line in text.splitlines())
    figure.set_figheight(figure.get_figheight() + NOTE_INCHES * (1 + text.count("\n")))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=9, color=GREY)


def text_colour(colour: str) -> str:
    """The colour for text of a series: darker where its own is too bright to read."""
    return TEXT_COLOURS.get(colour, colour)


@contextlib.contextmanager
def figure(
    columns: int,
    rows: int = 1,
    width: float = 5.0,
    height: float = 3.6,
    heights: Sequence[float] = (),
    **options: Any,
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Yield (figure, axes array of shape (rows, columns)) in our style.

    `heights`: inches of each row, where they differ.
    """
    total = height * rows
    if heights:
        rows, total = len(heights), sum(heights)
        options["height_ratios"] = heights
    with mpl.rc_context(STYLE):
        drawn, axes = plt.subplots(
            rows, columns, figsize=(width * columns, total), squeeze=False, **options
        )
        try:
            yield drawn, axes
        finally:
            plt.close(drawn)


def save(drawn: Figure, stem: Path | str) -> None:
    """Write STEM.svg, STEM.png and STEM.pdf, without dates and versions in them."""
    _mark_logarithmic(drawn)
    drawn.draw_without_rendering()
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        drawn.set_layout_engine(None)  # laid out once for all formats
    without = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    for suffix in FORMATS:
        with atomic_write(f"{stem}.{suffix}") as part:
            drawn.savefig(part, format=suffix, metadata=without[suffix])


def _mark_logarithmic(drawn):
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            label = axis.get_label_text()
            if axis.get_scale() == "log" and label.strip():
                text = label.rstrip("\n")  # these make room
                axis.set_label_text(f"{text} (log){label[len(text) :]}")


def heading(axes: Axes, title: str, subtitle: str, size: float | None = None) -> None:
    """Write a bold title, of a size in points, with one or several grey lines below it."""
    axes.set_title(
        title, pad=20 + 13 * subtitle.count("\n"), fontsize=size or STYLE["axes.titlesize"]
    )
    write(axes, subtitle, (0, 1), (0, 6), xycoords="axes fraction", color=GREY, fontsize=9)


def draw_message(stem: Path | str, text: str) -> None:
    """Save a figure that says why there is nothing to draw."""
    with figure(1, width=6, height=0.35 + 0.25 * (1 + text.count("\n"))) as (drawn, axes):
        axes[0, 0].set_axis_off()
        axes[0, 0].text(0, 0.5, text, color=GREY, transform=axes[0, 0].transAxes, va="center")
        save(drawn, stem)


def name_series(axes: Axes, ends: Sequence[tuple[Any, ...]]) -> None:
    """Write each series' name at its end, in its colour; beside the axes where they are many.

    Call it when the limits are final; ends are (x, y, name, colour) of each series' last point.
    """
    if len(ends) > MAX_DIRECT_LABELS:
        _legend_right(axes, ends)
        return
    to_fraction = axes.transData + axes.transAxes.inverted()
    height_points = axes.get_window_extent().height * 72 / axes.figure.dpi
    line = 13 / height_points
    placed = [
        [*to_fraction.transform((x, y)), textwrap.fill(name, NAME_CHARACTERS), colour]
        for x, y, name, colour in ends
    ]
    rightmost, leftmost = (pick(end[0] for end in placed) for pick in (max, min))
    if rightmost - leftmost > MAX_APART:
        _legend_right(axes, ends)
        return
    placed.sort(key=lambda end: end[1])
    for end in placed:
        if rightmost - end[0] < 0.15:  # side by side: no name over the other's bar
            end[0] = rightmost
    for below, above in itertools.pairwise(placed):
        lines = 1 + (below[2].count("\n") + above[2].count("\n")) / 2
        above[1] = max(above[1], below[1] + lines * line)
    if placed and placed[-1][1] + (1 + placed[-1][2].count("\n")) / 2 * line > MAX_ABOVE:
        _legend_right(axes, ends)
        return
    for x, y, name, colour in placed:
        looks = {"color": text_colour(colour), "fontweight": "bold", "fontsize": 9}
        write(axes, name, (x, y), (9, 0), xycoords="axes fraction", va="center", **looks)


def _legend_right(axes, ends):
    """A legend right of the axes, in columns; the figure grows by the widest of its legends."""
    figure = axes.figure
    columns = math.ceil(len(ends) / LEGEND_LINES)
    handles, _ = axes.get_legend_handles_labels()
    handles = handles or [Line2D([], [], color=colour, label=name) for _, _, name, colour in ends]
    legend = axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1, 1.02), fontsize=8, ncols=columns
    )
    wide = legend.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
    grown = getattr(figure, "grown_inches", 0)
    figure.grown_inches = max(grown, wide)
    figure.set_figwidth(figure.get_figwidth() + figure.grown_inches - grown)


def side_by_side(values: Sequence[float], index: int, count: int) -> np.ndarray:
    """Positions on a logarithmic axis, moved so that `count` series do not overlap."""
    step = min(0.03, 0.4 / count)
    return np.asarray(values, dtype=float) * 2 ** (step * (index - (count - 1) / 2))


class _Ticks(Locator):
    """Ticks for what is seen of an axis, in a unit, as 60 where seconds are shown as minutes."""

    def __init__(self, max_ticks: int, unit: float = 1.0):
        self._max_ticks, self._unit = max_ticks, unit

    def __call__(self):
        return self.tick_values(*self.axis.get_view_interval())


class RoundTicks(_Ticks):
    """A few round numbers on a logarithmic axis, also within one decade or a part of one."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Round numbers between two limits."""
        low, high = (value / self._unit for value in sorted((vmin, vmax)))
        return [tick * self._unit for tick in self._round(low, high) if low <= tick <= high]

    def _round(self, low, high):
        first, last = (math.floor(math.log10(value)) for value in (low, high))
        for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
            ticks = [f * 10.0**e for e in range(first, last + 1) for f in factors]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) < 3:
                return MaxNLocator(4).tick_values(low, high)
            if len(ticks) <= self._max_ticks:
                return ticks
        return ticks[:: math.ceil(len(ticks) / self._max_ticks)]


class FittingTicks(_Ticks):
    """Round numbers on a horizontal axis, so few that their labels do not touch."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Round numbers between two limits, at least two."""
        axis: Any = self.axis
        points = axis.axes.get_window_extent().width * 72 / axis.axes.figure.dpi
        for most in range(self._max_ticks, 0, -1):
            ticks = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(vmin, vmax)
            characters = max(len(axis.get_major_formatter()(tick)) for tick in ticks)
            apart = points * (ticks[1] - ticks[0]) / abs(vmax - vmin)
            if apart > STYLE["font.size"] * (TICK_EMS + CHARACTER_EMS * characters):
                break
        return ticks


def logarithmic(axis: Any, unit: float = 1.0) -> None:
    """Make an axis logarithmic, with a few round ticks."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(RoundTicks(8 if axis.axis_name == "y" else 6, unit))
    axis.set_major_formatter(thousands)
    axis.set_minor_locator(NullLocator())


def scale_labels(axis: Any, factor: float) -> None:
    """Show the values of a logarithmic axis times a factor: tokens instead of sequences."""
    if factor != 1:
        logarithmic(axis, 1 / factor)
        axis.set_major_formatter(lambda value, _: thousands(factor * value))


def powers(axis: Any, values: Iterable[float]) -> None:
    """Make an axis logarithmic, its ticks the values that occur."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=2)
    axis.set_ticks(sorted(set(values)))
    axis.set_major_formatter(FuncFormatter(thousands))
    axis.set_minor_formatter(NullFormatter())


def thousands(value: float, _: Any = None) -> str:
    """1500 -> `1 500`, with a thin space; 4e11 -> `4\u00b710\u00b9\u00b9`."""
    if value and not 1e-4 <= abs(value) < 1e7:
        mantissa, exponent = f"{value:.3g}".partition("e")[::2]
        mantissa, exponent = (mantissa, exponent) if exponent else f"{value:.2e}".split("e")
        power = str(int(exponent)).translate(SUPERSCRIPTS)
        return f"{float(mantissa):g}\u00b710{power}"
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 10 else f"{value:g}"


def significant(value: float, _: Any = None) -> str:
    """Three digits: 12.3456 -> `12.3`, 12345.6 -> `12\u2009300`."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:g}" if 1e-4 <= abs(rounded) < 100 else thousands(rounded)


def milliseconds(value: float, _: Any = None) -> str:
    """0.0123 s -> `12.3`."""
    return significant(1e3 * value)


def percent(value: float, _: Any = None) -> str:
    """0.9612 -> `96.12 %`."""
    return f"{100 * value:.4g} %"


def signed(number: float, digits: str = ".1f") -> str:
    """-12.34 -> `\u221212.3`, with the minus of typesetters."""
    return f"{number:+{digits}}".replace("-", "\u2212")


def time_unit(longest_s: float) -> tuple[str, float]:
    """(unit, its seconds) in which a time is a number that one reads easily.

    >>> time_unit(5000)
    ('min', 60)
    """
    least = {"h": 7200, "min": 120, "s": 0.5, "ms": 0}
    unit = next(unit for unit, seconds in least.items() if longest_s >= seconds)
    return unit, {"h": 3600, "min": 60, "s": 1, "ms": 1e-3}[unit]
