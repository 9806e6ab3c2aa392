"""Random items and labels in the model's native shape, made once on the device.

Nothing is read while training: the throughput is the model's alone.
"""

TITLE = "Synthetic items"
AUTHOR = "dlbench"
DESCRIPTION = "random items in the model's native shape, made once on the device"
KIND = "image"
LICENCE = "none: made on the device"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = True
