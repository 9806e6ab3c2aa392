"""Read the numbers, texts and crosses of a drawn figure."""

import numpy as np

from dlbench.drawing import styles


def saved_figures(monkeypatch):
    """Collect the figures that are saved from now on, laid out but not written, in a list."""
    figures, save = [], styles.save
    monkeypatch.setattr(styles, "FORMATS", ())
    monkeypatch.setattr(styles, "save", lambda *saved: save(*saved) or figures.append(saved[0]))
    return figures


def lines(axes):
    """Every (x, y) of every line, rounded."""
    return {
        (float(f"{x:.9g}"), float(f"{y:.9g}"))
        for line in axes.lines
        for x, y in zip(*map(np.atleast_1d, line.get_data()), strict=True)
        if np.isreal(x)
    }


def has(axes, value, along="y"):
    """Whether a number was drawn, as a coordinate of some line."""
    return any(np.isclose(p[along == "y"], value, rtol=1e-8, atol=0) for p in lines(axes))


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def crosses(axes):
    return [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]
