"""Random items and labels in the model's native shape, made once on the device.

Training reads no data, so that the throughput is the model's alone.
"""

TITLE = "Synthetic items"
AUTHOR = "dlbench"
DESCRIPTION = "random items in the model's native shape, made once on the device"
KIND = "image"
LICENCE = "none: made on the device"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = True
