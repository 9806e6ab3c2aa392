"""The CSV file of Keras' CSVLogger, one row an epoch; lightning_csv.py says more and reads it."""

from dlbench.imports.importers import lightning_csv
from dlbench.imports.log_file import LogFile

FAMILY = "keras"


def recognise(log: LogFile) -> bool:
    return lightning_csv.counted(log) == "epoch"


read = lightning_csv.read
