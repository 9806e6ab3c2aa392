"""The files of each figure."""

FORMATS = ("svg", "png", "pdf")
