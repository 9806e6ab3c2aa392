"""scaling_series: the table of speedups has all that series are made of."""

import dataclasses

from dlbench.analysis import scaling_series
from support.results.made_reports import speedups_of
from support.results.made_scaling import runs


def test_the_table_has_the_series_that_it_was_made_of():
    horovod = {"strategy": "horovod", "launcher": "horovodrun"}
    imported = {"study": "of them", "site": "there", "run_id": "r0-0"}
    rows = runs(
        *((1, 64, {}), (2, 64, {}), (2, 32, {}), (8, 8, {}), (1, 48, {})),
        *((1, 16, {"strategy": "single"}), (2, 16, horovod), (4, 16, horovod)),
        *((1, 64, imported), (2, 64, {"site": "there"}), (1, 32, {"status": "failed"})),
        repeats=1,
    )
    made = scaling_series.all_series(rows)
    assert {series.kind for series in made} == {"weak", "strong", None}
    assert any(series.base and series.base.borrowed for series in made)
    known = scaling_series.series_from_table(speedups_of(rows), rows)
    for series, read in zip(made, known, strict=True):
        assert (read.kind, read.base) == (series.kind, series.base)
        for point, of_table in zip(series.points, read.points, strict=True):
            assert repr(of_table) == repr(dataclasses.replace(point, sides=None))


def test_series_of_runs_that_are_left_out_are_left_out():
    rows = runs((1, 64, {}), (2, 64, {}), (1, 64, {"xla": True}), (2, 64, {"xla": True}))
    kept = [row for row in rows if not row["xla"]]
    (weak,) = scaling_series.series_from_table(speedups_of(rows), kept)
    assert weak.runs == [scaling_series._plain(row) for row in kept]
