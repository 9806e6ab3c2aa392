"""The tables of a study as data frames."""

from pathlib import Path

import pandas as pd

from dlbench.analysis import run_tables
from dlbench.analysis.drift import Drift
from dlbench.analysis.scaling_series import MARGIN
from dlbench.study import contradictions, parameters
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.cells import is_absent
from dlbench.tables.metrics import THROUGHPUT

# Of these, which results may lack, tables of before are kept: what is in them is measured once.
MAY_LACK = {
    "metrics": table_columns.METRICS,
    "baselines": table_columns.BASELINES,
    "explanations": table_columns.EXPLANATIONS,
}


class Tables:
    """The tables of a study, and of its runs, as pandas data frames; each access reads a file.

    Every table of table_columns.STUDY_TABLES is an attribute, as are the baselines. Numbers of a
    run that contradict one another are left out.
    """

    def __init__(self, folder: Path | str, runs_folder: Path | str):
        self._folder, self._runs_folder = Path(folder), Path(runs_folder)

    @property
    def runs(self) -> pd.DataFrame:
        """Rows of the table of runs, but for those that are in no mean (`apart`)."""
        frame = self._study_table("runs")
        return frame[frame[table_columns.APART].isna()].reset_index(drop=True)

    @property
    def comparisons(self) -> pd.DataFrame:
        """Those of throughput."""
        return _of_throughput(self._study_table("comparisons"))

    @property
    def sentinels(self) -> pd.DataFrame:
        """Rows of the table of runs of all sentinels, repeats or not."""
        frame = self._study_table("runs")
        return frame[frame["sentinel"] > 0].reset_index(drop=True)

    @property
    def drift(self) -> pd.DataFrame:
        """That of throughput."""
        return _of_throughput(self._study_table("drift"))

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Any other table of a study, by its name."""
        if name in MAY_LACK:
            path, schema = self._folder / f"{name}.parquet", MAY_LACK[name]
            if not path.is_file():
                return parquet_files.table([], schema).to_pandas()
            return parquet_files.read(path, schema, earlier=True).to_pandas()
        if name in table_columns.STUDY_TABLES.keys() - vars(Tables).keys():
            return self._study_table(name)
        raise AttributeError(f"a study has no table {name!r}")

    @property
    def margin(self) -> float:
        """The margin within which drift is equivalent to none."""
        margins = self.drift["margin"]
        return margins.iloc[0] if len(margins) else MARGIN

    def drift_of(self, runs: pd.DataFrame) -> Drift:
        """The Drift between the sessions of some rows of `runs`."""
        sentinels = self.sentinels.to_dict("records")
        return Drift(runs.to_dict("records"), sentinels, self.margin)

    def steps(self, run_id: str) -> pd.DataFrame:
        """All steps of a run, ranks one after the other; no rows if they are not known."""
        return self._run_table(run_id, "steps", table_columns.STEPS)

    def samples(self, run_id: str) -> pd.DataFrame:
        """The samples of a run, one a second of each process and of each of its GPUs."""
        return self._run_table(run_id, "samples", table_columns.SAMPLES)

    def _study_table(self, name):
        table = self._read(name)
        if "settings_of" in table.column_names:
            table = table_columns.with_settings(table, self._read("runs"))
        frame = table.to_pandas()
        if parameters.FIELD in frame:
            frame = _with_parameters(frame)
        if contradictions.REASON in frame:
            columns = frame.columns.intersection(contradictions.WITHHELD)
            frame.loc[frame[contradictions.REASON].notna(), columns] = None
        return frame

    def _read(self, name):
        path = self._folder / f"{name}.parquet"
        return parquet_files.read(path, table_columns.STUDY_TABLES[name])

    def _run_table(self, run_id, name, schema):
        own_path = self._runs_folder / run_id / f"{name}.parquet"
        if own_path.is_file():
            return run_tables.run_table(own_path.parent, name).to_pandas()
        for path in sorted(self._runs_folder.parent.glob(f"imports/*/{name}.parquet")):
            table = parquet_files.read(path, schema, run_id, earlier=True)
            if len(table):
                return table.to_pandas()
        return parquet_files.table([], schema).to_pandas()


def _of_throughput(frame):
    return frame[frame["metric"] == THROUGHPUT.name].reset_index(drop=True)


def _with_parameters(frame):
    """A frame with a column for each parameter of other programs, as the tables have them.

    They follow from the text of all parameters, which imported tables and archives have, too.
    """
    own = [
        {} if is_absent(text) else parameters.column_values(text)
        for text in frame[parameters.FIELD].astype(object)
    ]
    names = sorted({name for values in own for name in values})
    columns = {name: [values.get(name) for values in own] for name in names}
    return frame.assign(**columns)
