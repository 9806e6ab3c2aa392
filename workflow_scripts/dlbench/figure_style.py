"""How our figures look, and files that are the same byte for byte when drawn again."""

import contextlib
import itertools
import textwrap

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from dlbench.files import written_whole

# Okabe and Ito's colours, legible for the colour-blind; text needs the darker orange.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
TEXT_COLOURS = {"#E69F00": "#B37700", "#56B4E9": "#2E86B5"}
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--")
GREY, LIGHT = "#5f5f5f", "#e2e2e2"
FORMATS = ("svg", "png", "pdf")
MOST_DIRECT_LABELS = 6
NAME_CHARACTERS = 26  # of a line of a series' name

STYLE = {
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
    "savefig.dpi": 160,
}


def looks(index):
    """Colour, marker and line of the series number `index`; 72 of them differ."""
    return {
        "color": COLOURS[index % 6],
        "marker": MARKERS[(index + index // 6) % 6],
        "linestyle": LINES[index // 6 % 2],
    }


def text_colour(colour):
    return TEXT_COLOURS.get(colour, colour)


@contextlib.contextmanager
def figure(columns, rows=1, width=5.0, height=3.6, **options):
    """Yield (figure, axes array of shape (rows, columns)) in our style."""
    with mpl.rc_context(STYLE):
        drawn, axes = plt.subplots(
            rows, columns, figsize=(width * columns, height * rows), squeeze=False, **options
        )
        try:
            yield drawn, axes
        finally:
            plt.close(drawn)


def save(drawn, stem):
    """Write STEM.svg, STEM.png and STEM.pdf, without dates and versions in them."""
    without = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    for suffix in FORMATS:
        with written_whole(f"{stem}.{suffix}") as part:
            drawn.savefig(part, format=suffix, metadata=without[suffix])


def heading(axes, title, subtitle):
    """A bold title with a grey line below it."""
    axes.set_title(title, pad=20)
    axes.annotate(
        subtitle,
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        color=GREY,
        fontsize=9,
    )


def name_series(axes, ends):
    """Write each series' name at its end, in its colour; beside the axes where they are many.

    Call it when the limits are final.

    Args:
        ends: (x, y, name, colour) of the last point of each series.
    """
    if len(ends) > MOST_DIRECT_LABELS:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)
        return
    to_fraction = axes.transData + axes.transAxes.inverted()
    height_points = axes.get_window_extent().height * 72 / axes.figure.dpi
    line = 13 / height_points
    placed = [
        [*to_fraction.transform((x, y)), textwrap.fill(name, NAME_CHARACTERS), colour]
        for x, y, name, colour in ends
    ]
    placed.sort(key=lambda end: end[1])
    rightmost = max(end[0] for end in placed)
    for end in placed:
        if rightmost - end[0] < 0.05:  # side by side: no name over the other's bar
            end[0] = rightmost
    for below, above in itertools.pairwise(placed):
        lines = 1 + (below[2].count("\n") + above[2].count("\n")) / 2
        above[1] = max(above[1], below[1] + lines * line)
    for x, y, name, colour in placed:
        axes.annotate(
            name,
            (x, y),
            xytext=(9, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            color=text_colour(colour),
            fontweight="bold",
            fontsize=9,
        )


def side_by_side(values, index, count):
    """Positions on a logarithmic axis, moved a little so that `count` series do not overlap."""
    return np.asarray(values, dtype=float) * 2 ** (0.03 * (index - (count - 1) / 2))


def logarithmic(axis):
    """A logarithmic axis with a few round ticks, also within one decade."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axis.set_major_formatter(thousands)
    axis.set_minor_locator(NullLocator())


def powers(axis, values):
    """A logarithmic axis whose ticks are the values that occur."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=2)
    axis.set_ticks(sorted(set(values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def thousands(value, _=None):
    """1500 -> `1 500`, with a thin space."""
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 10 else f"{value:g}"
