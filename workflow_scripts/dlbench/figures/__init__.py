"""Figures, one file each. The file's name is its name in the config.

A figure file defines:
    CAPTION: how it was computed, for the report; reStructuredText.
    CATEGORY: where the report files it.
    draw(tables, stem): draw from a `Tables` and save as STEM.svg, STEM.png and STEM.pdf.
"""

from pathlib import Path

from dlbench import tables as parquet
from dlbench.drift import Drift
from dlbench.scaling import MARGIN


class Tables:
    """The result tables as pandas data frames, read when asked for."""

    def __init__(self, folder, runs_folder):
        self._folder, self._runs_folder = Path(folder), Path(runs_folder)

    @property
    def runs(self):
        return parquet.read(self._folder / "runs.parquet", parquet.RUNS).to_pandas()

    @property
    def evals(self):
        return parquet.read(self._folder / "evals.parquet", parquet.EVALS).to_pandas()

    @property
    def coverage(self):
        return parquet.read(self._folder / "coverage.parquet", parquet.COVERAGE).to_pandas()

    @property
    def comparisons(self):
        return parquet.read(self._folder / "comparisons.parquet", parquet.COMPARISONS).to_pandas()

    @property
    def speedups(self):
        return parquet.read(self._folder / "speedups.parquet", parquet.SPEEDUPS).to_pandas()

    @property
    def published(self):
        return parquet.read(self._folder / "published.parquet", parquet.PUBLISHED).to_pandas()

    @property
    def sentinels(self):
        return parquet.read(self._folder / "sentinels.parquet", parquet.SENTINELS).to_pandas()

    @property
    def drift(self):
        return parquet.read(self._folder / "drift.parquet", parquet.DRIFT).to_pandas()

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
        return self._of_run(run_id, "steps", parquet.STEPS)

    def samples(self, run_id):
        """What was sampled once a second during a run, of its processes and its GPUs."""
        return self._of_run(run_id, "samples", parquet.SAMPLES)

    def _of_run(self, run_id, name, schema):
        own = self._runs_folder / run_id / f"{name}.parquet"
        if own.is_file():
            return parquet.read(own, schema).to_pandas()
        for path in sorted(self._runs_folder.parent.glob(f"imports/*/{name}.parquet")):
            found = parquet.read(path, schema, run_id, earlier=True)
            if len(found):
                return found.to_pandas()
        return parquet.table([], schema).to_pandas()
