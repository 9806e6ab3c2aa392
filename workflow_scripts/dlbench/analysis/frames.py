"""The tables of a study as data frames, read when they are asked for."""

from pathlib import Path

from dlbench.analysis.drift import Drift
from dlbench.analysis.speedups import MARGIN
from dlbench.tables import parquet_files, table_columns


class Tables:
    """The result tables as pandas data frames, read when asked for."""

    def __init__(self, folder, runs_folder):
        self._folder, self._runs_folder = Path(folder), Path(runs_folder)

    @property
    def runs(self):
        return parquet_files.read(self._folder / "runs.parquet", table_columns.RUNS).to_pandas()

    @property
    def evals(self):
        return parquet_files.read(self._folder / "evals.parquet", table_columns.EVALS).to_pandas()

    @property
    def coverage(self):
        return parquet_files.read(
            self._folder / "coverage.parquet", table_columns.COVERAGE
        ).to_pandas()

    @property
    def comparisons(self):
        return parquet_files.read(
            self._folder / "comparisons.parquet", table_columns.COMPARISONS
        ).to_pandas()

    @property
    def speedups(self):
        return parquet_files.read(
            self._folder / "speedups.parquet", table_columns.SPEEDUPS
        ).to_pandas()

    @property
    def published(self):
        return parquet_files.read(
            self._folder / "published.parquet", table_columns.PUBLISHED
        ).to_pandas()

    @property
    def sentinels(self):
        return parquet_files.read(
            self._folder / "sentinels.parquet", table_columns.SENTINELS
        ).to_pandas()

    @property
    def drift(self):
        return parquet_files.read(self._folder / "drift.parquet", table_columns.DRIFT).to_pandas()

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
        return self._of_run(run_id, "steps", table_columns.STEPS)

    def samples(self, run_id):
        """What was sampled once a second during a run, of its processes and its GPUs."""
        return self._of_run(run_id, "samples", table_columns.SAMPLES)

    def _of_run(self, run_id, name, schema):
        own = self._runs_folder / run_id / f"{name}.parquet"
        if own.is_file():
            return parquet_files.read(own, schema).to_pandas()
        for path in sorted(self._runs_folder.parent.glob(f"imports/*/{name}.parquet")):
            found = parquet_files.read(path, schema, run_id, earlier=True)
            if len(found):
                return found.to_pandas()
        return parquet_files.table([], schema).to_pandas()
