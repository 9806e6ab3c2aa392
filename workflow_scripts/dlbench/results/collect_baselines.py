"""From the files of baselines to their table: a row for each size of each."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

from dlbench import Error
from dlbench.baselines import collectives
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.table_columns import BASELINES

# Conditions that say something of some measures only.
OF_EXCHANGE = ("strategy", "strategy_options", "launcher")
OF_PRODUCTS = ("precision",)
FROM_MACHINE = ("host", "device_model", "load_average_1min", "hardware_sha256")


def collect(folder: Path, output: Path) -> None:
    """Write the table as Parquet and CSV.

    Args:
        folder: has a folder for each machine, with files as measure_baselines.py writes them.
        output: folder of the table.

    Raises:
        Error: a file is not as measure_baselines.py writes it.
    """
    rows = [row for path in sorted(folder.glob("*/*.json")) for row in rows_of(path)]
    parquet_files.write(output / "baselines.parquet", rows, BASELINES)
    parquet_files.write_csv(
        output / "baselines.csv", parquet_files.read(output / "baselines.parquet", BASELINES)
    )


def rows_of(path: Path) -> Iterator[Row]:
    """Yield the rows of one file. Raises Error: it is not as measure_baselines.py writes it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        conditions = content["conditions"]
        common = {name: content[name] for name in FROM_MACHINE}
        common["framework_version"] = content["versions"].get(conditions["framework"])
        measured_at = content["measured_at"]  # none: imported, from a log without a date
        common["measured_at"] = measured_at and datetime.datetime.fromisoformat(measured_at)
        common["devices"] = conditions["nodes"] * conditions["devices_per_node"]
        common["baseline"] = path.stem
        for row in content["rows"]:
            yield {**_relevant_conditions(conditions, row["measure"]), **common, **row}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(
            f"{path}: expected a baseline as measure_baselines.py writes it ({error!r}): delete "
            "it, and `snakemake baselines` measures it again"
        ) from error


def _relevant_conditions(conditions, measure):
    """The conditions that matter for a measure."""
    left_out = OF_PRODUCTS if measure != "matrix_product" else ()
    left_out += OF_EXCHANGE if measure not in collectives.MEASURES else ()
    return {name: value for name, value in conditions.items() if name not in left_out}
