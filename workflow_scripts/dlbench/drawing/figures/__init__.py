"""Figures, one file each. The file's name is its name in the config.

A figure file defines:
    CAPTION: how it was computed, for the report; reStructuredText.
    CATEGORY: where the report files it.
    BASELINES (optional): "alone" if it is drawn from the table of baselines and no other, which is
        then measured for it; "beside" if it also draws that table, where there is one.
    draw(tables, stem): draw from a `Tables` and save as STEM.svg, STEM.png and STEM.pdf.

Figures are loaded by name (common/plugins.py).
"""
