"""Drawing: what figures share, and the figures, one file each in figures/

styles.py and series.py are below all; charts.py draws most of them.
Others may import every file. Imports analysis, tables, study, log and common.
"""

FORMATS = ("svg", "png", "pdf")  # the files of each figure
