"""published_beside_own: files of published numbers, and our own beside them."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlbench import Error
from dlbench.analysis import estimates, published_numbers
from dlbench.analysis.published_numbers import COLUMNS
from dlbench.results import published_beside_own
from dlbench.tables import parquet_files, table_columns

ONE = {
    "point": "one", "site": "there", "device_kind": "gpu", "framework": "tensorflow",
    "framework_version": "1.10", "model": "resnet50", "dataset": "imagenet",
    "precision": "float32", "mode": "train", "strategy": "horovod", "nodes": 1, "devices": 1,
    "batch_per_device": 64, "metric": "images_per_second", "value": "100", "unit": "items/s",
    "quality": "printed", "source": "Paper 2019", "page": "slide 3",
}  # fmt: skip
FOUR = ONE | {"point": "four", "nodes": 2, "devices": 4, "value": "370"}
SPEEDUP = FOUR | {"metric": "speedup", "value": "3.7", "unit": "1", "base": "one"}
MATCH = ("model", "dataset", "devices", "batch_per_device")


@pytest.fixture
def study(tmp_path):
    def make(*lines, match=MATCH):
        path = tmp_path / "paper" / "references.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)
        return SimpleNamespace(name="mine", references=({"path": str(path), "match": match},))

    return make


def own(rate, devices=1, repeat=1, **changes):
    known = [name for name in published_numbers.SETTINGS if name in ONE]
    row = dict.fromkeys(table_columns.RUNS.names) | {name: ONE[name] for name in known}
    row |= {"timing_source": "dlbench", "status": "ok", "site": "here", "nodes": 1}
    row |= {"devices": devices, "images_per_second": rate, "repeat": repeat}
    row |= {"run_id": f"own-{devices}-{repeat}"}
    return row | changes


RUNS = [
    own(rate, devices, repeat)
    for devices, rates in ((1, (50, 51, 52)), (4, (190, 200, 210)))
    for repeat, rate in enumerate(rates, 1)
]


def number(study, *runs, metric="speedup"):
    return next(row for row in published_beside_own.numbers(study, runs) if row["metric"] == metric)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": "4.5"}, "devices: expected a whole number from 1, found '4.5'"),
        ({"devices": "0"}, "devices: expected a whole number from 1, found '0'"),
        ({"nodes": 3}, "4 devices cannot be spread evenly on 3 nodes"),
        ({"precision": "float23"}, "found 'float23' (did you mean 'float32'?)"),
        ({"quality": "guessed"}, "expected one of printed, derived, read_off, found 'guessed'"),
        ({"quality": ""}, "quality: expected where the number is from, found nothing"),
        ({"source": ""}, "source: expected where the number is from, found nothing"),
        ({"metric": "top11"}, "found 'top11' (did you mean 'top1'?)"),
        ({"metric": ""}, "expected a metric beside value, unit, quality, found none"),
        ({"value": "370 img/s"}, "value: expected a number, found '370 img/s'"),
        ({"value": "nan"}, "value: expected a number, found 'nan'"),
        ({"value": ""}, "expected a value, or both low and high, found neither"),
        ({"low": "380", "high": "390"}, "expected low <= value <= high"),
        ({"low": "360"}, "expected a value, or both low and high"),
        ({"base": "one"}, "expected none: it is absolute, found 'one'"),
        ({"metric": "speedup"}, "expected the point that it is relative to, found none"),
        ({"metric": "speedup", "base": "oen"}, "found 'oen' (did you mean 'one'?)"),
        ({"point": ""}, "expected the name of a point, found none"),
        (
            {"point": "one"},
            "expected the settings of point one as on its first line, found another nodes, devices",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_was_expected(changes, message, study):
    path = study(ONE, FOUR | changes).references[0]["path"]
    with pytest.raises(Error) as error:
        published_numbers.read(path)
    assert str(error.value).startswith(f"{path}, line 3")
    assert message in str(error.value)


def test_a_number_that_is_there_twice_is_refused_and_the_shape_of_items_may_be_missing(study):
    path = study(ONE, FOUR, FOUR | {"value": "371"}).references[0]["path"]
    words = "line 4: point four has two values of images_per_second, in lines 3 and 4; delete"
    with pytest.raises(Error, match=words):
        published_numbers.read(path)
    at = COLUMNS.index("item_shape")
    study(ONE)
    lines = [line.split(",") for line in Path(path).read_text().splitlines()]
    Path(path).write_text("\n".join(",".join(cells[:at] + cells[at + 1 :]) for cells in lines))
    (point,) = published_numbers.read(path).values()
    assert "item_shape" not in point.settings
    assert point.settings["dataset"] == ONE["dataset"]


def test_what_is_no_such_file_is_refused(tmp_path):
    path, header = tmp_path / "references.csv", ",".join(COLUMNS).encode()
    with pytest.raises(Error, match="cannot be read"):
        published_numbers.read(path)
    for content, message in (
        (b"", "line 1: expected the columns point,"),
        (b"point,metrics\n", "without site, .* and with metrics"),
        (header + b"\na,b\n", "line 2: expected 29 cells, found 2"),
        (b"\xff\xfe", "cannot be read as UTF-8"),
        (header + b'\n"a', "line 2: no CSV"),
    ):
        path.write_bytes(content)
        with pytest.raises(Error, match=message):
            published_numbers.read(path)


def test_a_point_with_a_number_of_runs_is_a_row_of_the_runs_table(study):
    top1 = FOUR | {"metric": "top1", "value": "0.5", "quality": "read_off"}
    rows = published_beside_own.rows(study(ONE, FOUR, SPEEDUP, top1))
    assert [row["run_id"] for row in rows] == ["published-paper-one", "published-paper-four"]
    four = {name: value for name, value in rows[1].items() if value is not None}
    assert four == {name: FOUR[name] for name in published_numbers.SETTINGS if name in FOUR} | {
        "run_id": "published-paper-four", "study": "mine", "status": "ok",
        "timing_source": "published", "quality": "read_off", "devices_per_node": 2,
        "global_batch": 256, "images_per_second": 370, "top1": 0.5,
    }  # fmt: skip
    assert parquet_files.table(rows, table_columns.RUNS).num_rows == 2


def test_a_point_with_relative_numbers_only_is_no_run(study):
    unstated = ONE | {"point": "base", "metric": "", "value": "", "unit": "", "quality": ""}
    point = SPEEDUP | {"base": "base"}
    assert published_beside_own.rows(study(unstated, point)) == []
    row = number(study(unstated, point), *RUNS)
    assert "recomputed" not in row and row["base_mismatch"] == ""
    assert row["own"] == pytest.approx(estimates.ratio([190, 200, 210], [50, 51, 52]).value)


@pytest.mark.parametrize(
    ("metric", "value", "recomputed", "agrees"),
    [
        ("speedup", "3.7", 3.7, True),
        ("speedup", "3.8", 3.7, False),
        ("efficiency", "0.925", 0.925, True),
        ("efficiency", "0.93", 0.925, True),
        ("difference_percent", "270", 270, True),
        ("slowdown", "0.27", 1 / 3.7, True),
        ("slowdown", "0.271", 1 / 3.7, False),
    ],
)
def test_a_relative_number_is_recomputed_and_rounded_as_printed(
    metric, value, recomputed, agrees, study
):
    row = number(study(ONE, FOUR, SPEEDUP | {"metric": metric, "value": value}), metric=metric)
    assert row["recomputed"] == pytest.approx(recomputed)
    assert row["agrees"] is agrees


def test_a_difference_is_of_one_setting_and_what_else_a_base_differs_in_is_named(study):
    bare = ONE | {"runtime": "bare"}
    inside = ONE | {"point": "inside", "runtime": "apptainer", "value": "99"}
    percent = {"metric": "difference_percent", "value": "-1.0", "unit": "%", "base": "one"}
    row = number(study(bare, inside, inside | percent), metric="difference_percent")
    assert row["base_mismatch"] == "" and row["agrees"]
    older = inside | {"framework_version": "1.12"}
    row = number(study(bare, older, older | percent), metric="difference_percent")
    assert row["base_mismatch"] == "runtime, framework_version"
    other = ONE | {"dataset": "synthetic", "strategy": "parameter_server", "batch_per_device": 32}
    row = number(study(other, FOUR, SPEEDUP))
    assert row["base_mismatch"] == "dataset, strategy, batch_per_device"


def test_own_numbers_are_geometric_means_over_runs_with_their_interval(study):
    row = number(study(ONE, FOUR, SPEEDUP), *RUNS, metric="images_per_second")
    mean = estimates.mean([50, 51, 52])
    assert (row["own"], row["own_runs"]) == (mean.value, 3)
    assert (row["own_ci95_low"], row["own_ci95_high"]) == (mean.low, mean.high)
    assert row["own_over_published"] == mean.value / 100
    assert row["own_differs"] == ""
    row = number(study(ONE), RUNS[0], metric="images_per_second")
    assert (row["own"], row["own_ci95_low"], row["own_runs"]) == (pytest.approx(50), None, 1)


def test_own_scores_are_arithmetic_means_and_stay_shares(study):
    scores = [own(50, repeat=n, top1=score) for n, score in enumerate((0.0, 0.9, 0.9), 1)]
    row = number(study(ONE | {"metric": "top1", "value": "0.5"}), *scores, metric="top1")
    assert row["own"] == pytest.approx(0.6)
    assert (row["own_ci95_low"], row["own_ci95_high"]) == (0, 1)
    near = [own(50, repeat=n, top1=score) for n, score in enumerate((0.58, 0.6, 0.62), 1)]
    row = number(study(ONE | {"metric": "top1", "value": "0.5"}), *near, metric="top1")
    assert row["own_ci95_low"] == pytest.approx(0.6 - 4.3027 * 0.02 / 3**0.5, abs=1e-5)


def test_own_relative_numbers_are_ratios_of_means(study):
    ratio = estimates.ratio([190, 200, 210], [50, 51, 52])
    rows = published_beside_own.numbers(study(ONE, FOUR, SPEEDUP), RUNS)
    row = rows[-1]
    found = row["own"], row["own_ci95_low"], row["own_ci95_high"]
    assert found == (ratio.value, ratio.low, ratio.high)
    table = parquet_files.table(rows, table_columns.PUBLISHED)
    assert table.column("printed").to_pylist() == ["100", "370", "3.7"]
    assert table.column("reference").to_pylist() == ["paper"] * 3
    slower = SPEEDUP | {"metric": "slowdown", "value": "0.27"}
    row = number(study(ONE, FOUR, slower), *RUNS, metric="slowdown")
    assert (row["own_ci95_low"], row["own_ci95_high"]) == (1 / ratio.high, 1 / ratio.low)
    share = SPEEDUP | {"metric": "efficiency", "value": "0.93"}
    row = number(study(ONE, FOUR, share), *RUNS, metric="efficiency")
    assert row["own"] == ratio.value / 4


def test_times_are_compared_where_only_those_were_published(study):
    timed = [
        row | {"metric": "duration_s", "value": v, "printed": p, "epochs": 5}
        for row, v, p in ((ONE, "121500", "33:45"), (FOUR, "30840", "8:34"))
    ]
    found = study(*timed, SPEEDUP | {"value": "3.9", "epochs": 5})
    runs = [own(None, n, duration_s=t, epochs=2) for n, t in ((1, 400.0), (4, 125.0))]
    row = number(found, *runs)
    assert row["agrees"] and row["recomputed"] == pytest.approx(121500 / 30840)
    assert (row["own"], row["own_differs"]) == (pytest.approx(3.2), "nodes, epochs")
    assert number(found, *runs, metric="duration_s")["printed"] == "33:45"


def test_failed_and_published_runs_are_not_our_own(study):
    others = [own(9, repeat=4, status="failed"), own(9, repeat=5, timing_source="published"),
              own(9, repeat=6, status="skipped"), own(None, repeat=7)]  # fmt: skip
    row = number(study(ONE), *RUNS, *others, metric="images_per_second")
    assert row["own_runs"] == 3
    assert "own" not in number(study(ONE), *others, metric="images_per_second")


def test_runs_of_several_combinations_give_no_number_but_a_note(study):
    mixed = [*RUNS, own(70, repeat=4, precision="float16")]
    row = number(study(ONE), *mixed, metric="images_per_second")
    assert "own" not in row
    assert row["own_note"] == "several combinations match: they differ in precision"
    named = study(ONE, match=(*MATCH, "precision"))
    assert number(named, *mixed, metric="images_per_second")["own_runs"] == 3
    row = number(study(ONE, FOUR, SPEEDUP, match=("model",)), *RUNS[:3])
    assert row["own_note"] == "the same runs match the point and its base"


def test_a_setting_that_is_not_stated_matches_any_run(study):
    unstated = {k: v for k, v in ONE.items() if k != "batch_per_device"}
    runs = [own(50, batch_per_device=8)]
    assert number(study(unstated), *runs, metric="images_per_second")["own_runs"] == 1
    assert "own" not in number(study(ONE), *runs, metric="images_per_second")
    loose = number(study(ONE, match=("model",)), *runs, metric="images_per_second")
    assert loose["own_differs"] == "batch_per_device"
