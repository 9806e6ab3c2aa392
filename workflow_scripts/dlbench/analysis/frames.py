"""The tables of a study as data frames, read when they are asked for."""

from pathlib import Path

import pandas as pd

from dlbench.analysis.drift import Drift
from dlbench.analysis.speedups import MARGIN
from dlbench.tables import parquet_files, run_columns, table_columns


class Tables:
    """The result tables as pandas data frames, read when asked for."""

    def __init__(self, folder, runs_folder):
        self._folder, self._runs_folder = Path(folder), Path(runs_folder)

    @property
    def runs(self) -> pd.DataFrame:
        return self._of_study("runs")

    @property
    def evals(self) -> pd.DataFrame:
        return self._of_study("evals")

    @property
    def coverage(self) -> pd.DataFrame:
        return self._of_study("coverage")

    @property
    def comparisons(self) -> pd.DataFrame:
        return self._of_study("comparisons")

    @property
    def speedups(self) -> pd.DataFrame:
        return self._of_study("speedups")

    @property
    def published(self) -> pd.DataFrame:
        return self._of_study("published")

    @property
    def sentinels(self) -> pd.DataFrame:
        return self._of_study("sentinels")

    @property
    def drift(self) -> pd.DataFrame:
        return self._of_study("drift")

    @property
    def margin(self):
        """Within which drift is equivalent to none."""
        margins = self.drift["margin"]
        return margins.iloc[0] if len(margins) else MARGIN

    def drift_of(self, runs):
        """What is known of drift between the sessions of some rows of `runs`, a Drift."""
        sentinels = self.sentinels.to_dict("records")
        return Drift(runs.to_dict("records"), sentinels, self.margin)

    def steps(self, run_id):
        """All steps of one run, ranks one after the other; none where they are not known."""
        return self._of_run(run_id, "steps", run_columns.STEPS)

    def samples(self, run_id):
        """What was sampled once a second during a run, of its processes and its GPUs."""
        return self._of_run(run_id, "samples", run_columns.SAMPLES)

    def _of_study(self, name):
        schema = table_columns.STUDY_TABLES[name]
        return parquet_files.read(self._folder / f"{name}.parquet", schema).to_pandas()

    def _of_run(self, run_id, name, schema):
        own = self._runs_folder / run_id / f"{name}.parquet"
        if own.is_file():
            return parquet_files.read(own, schema).to_pandas()
        for path in sorted(self._runs_folder.parent.glob(f"imports/*/{name}.parquet")):
            found = parquet_files.read(path, schema, run_id, earlier=True)
            if len(found):
                return found.to_pandas()
        return parquet_files.table([], schema).to_pandas()
