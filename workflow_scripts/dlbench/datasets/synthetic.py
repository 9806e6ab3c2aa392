"""Random images and labels in the model's native shape, made once on the device.

Nothing is read while training: the throughput is the model's alone.
"""

TITLE = "Synthetic images"
LICENCE = "none: made on the device"
CITATION = ""
SYNTHETIC = True
