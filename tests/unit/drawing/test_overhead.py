"""The figure of comparisons: what is drawn is what the table says, and everything can be drawn."""

import itertools

import pandas as pd
import pytest
from PIL import ImageColor

from dlbench.analysis import judge
from dlbench.analysis.frames import Tables
from dlbench.drawing.figures import overhead
from dlbench.tables import parquet_files, table_columns
from support.results.drawn_figures import saved_figures, texts

METRIC = {"metric": "images_per_second", "unit": "items/s", "better": "higher"}
ROW = {
    "study": "test", "field": "runtime", "condition": "apptainer", "base": "bare",
    "framework": "tensorflow", "model": "lenet5", "dataset": "synthetic", "precision": "float32",
    "mode": "train", "strategy": "single", "strategy_options": "", "launcher": "none",
    "runtime": "apptainer", "runtime_options": "", "environment": "train", "optimizer": "sgd",
    "device_kind": "cpu", "xla": False, "compile": False, "devices": 1, "threads_per_device": 1,
    "copies_per_node": 1, "seed": 1, "batch_per_device": 64, "steps": 50, "learning_rate": 0.01,
    "margin": 0.01, "family": 1, "n_a": 8, "n_b": 8, "base_flags": "", "value_b": 1234.4,
    "value_a": 1230.0, "repeats_needed": 5,
}  # fmt: skip
START_UP = {
    "start_a_s": 0.4, "import_a_s": 3.0, "first_batch_a_s": 0.8, "start_b_s": 0.05,
    "import_b_s": 2.9, "first_batch_b_s": 0.8,
}  # fmt: skip


def found(ratio, half, verdict, **changes):
    """A row of the table; `half` is half the width of its 90 % interval."""
    return {
        **ROW, "ratio": ratio, "ci90_low": ratio - half, "ci90_high": ratio + half,
        "ci95_low": ratio - 1.2 * half, "ci95_high": ratio + 1.2 * half, "verdict": verdict,
    } | changes  # fmt: skip


def lacking(verdict, **changes):
    return {**ROW, "verdict": verdict, "n_a": 0, "repeats_needed": None, "family": None} | changes


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A function that draws rows and returns the axes of differences and of start-up."""
    kept = saved_figures(monkeypatch)

    def draw(*rows):
        found, runs = [], []
        for number, row in enumerate(rows):
            own = {k: v for k, v in row.items() if k in table_columns.COMPARISONS.names}
            found.append(METRIC | own | {"settings_of": str(number)})
            runs.append({k: v for k, v in row.items() if k in table_columns.SETTINGS})
            runs[-1] |= {"run_id": str(number), "study": "test"}
        parquet_files.write(tmp_path / "comparisons.parquet", found, table_columns.COMPARISONS)
        parquet_files.write(tmp_path / "runs.parquet", runs, table_columns.RUNS)
        overhead.draw(Tables(tmp_path, tmp_path), tmp_path / "overhead")
        return kept[-1].axes

    return draw


def lines(axes, gid):
    """(x in percent, y) of the drawn lines of one kind."""
    return [(list(x.get_xdata()), list(x.get_ydata())) for x in axes.lines if x.get_gid() == gid]


def test_what_is_drawn_is_what_the_table_says(drawn):
    rows = [
        found(1.002, 0.003, "equivalent"),
        found(0.98, 0.004, "slower", condition="udocker", runtime="udocker"),
    ]
    axes, _ = drawn(*rows)
    # The first row of the table stands at the top.
    for y, row in zip((1, 0), rows, strict=True):
        assert ([pytest.approx(100 * (row["ratio"] - 1))], [y]) in lines(axes, "ratio")
        # Of the 95 % interval the report speaks; the 90 % one decides on equivalence.
        for level in ("ci95", "ci90"):
            ends = [100 * (row[f"{level}_{end}"] - 1) for end in ("low", "high")]
            assert ([pytest.approx(end) for end in ends], [y, y]) in lines(axes, level)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["apptainer", "udocker"]
    assert {"+0.2 %", "equivalent", "\u22122.0 %", "slower"} <= set(texts(axes))
    assert texts(axes).count("of 1\u2009234/s") == 2
    zone = axes.patches[0]
    assert zone.get_x() == pytest.approx(-0.990099)
    assert zone.get_x() + zone.get_width() == pytest.approx(1)


def test_rows_of_two_sites_are_named_by_them(drawn):
    rows = [found(1, 0.003, "equivalent", site=site) for site in ("here", "there")]
    axes, _ = drawn(*rows)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["here", "there"]
    others = [found(1, 0.003, "equivalent", site="there", model="vgg16")]
    first, _, second, _ = drawn(rows[0], *others)
    assert any("here" in word for word in texts(first))
    assert any("there" in word for word in texts(second))
    axes, _ = drawn(rows[0])
    assert not any("here" in word for word in texts(axes))


def test_what_is_undecided_says_how_many_repeats_it_needs(drawn):
    axes, _ = drawn(found(1.004, 0.012, "undecided", repeats_needed=19))
    assert "19 repeats needed" in texts(axes)
    axes, _ = drawn(found(1.004, 0.3, "undecided", repeats_needed=judge.MAX_REPEATS))
    assert "\u2265\u20091\u2009000 repeats needed" in texts(axes)


def test_repeats_that_are_there_are_not_asked_for(drawn):
    axes, _ = drawn(found(1.009, 0.009, "undecided", repeats_needed=8))
    assert "undecided" in texts(axes)
    assert not any("needed" in word for word in texts(axes))


def test_start_up_is_drawn_apart_with_its_numbers(drawn):
    _, axes = drawn(found(1, 0.003, "equivalent", **START_UP))
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == pytest.approx([0.4, 3.0, 0.8, 0.05, 2.9, 0.8])
    assert [p.get_x() for p in axes.patches[:3]] == pytest.approx([0, 0.4, 3.4])
    assert texts(axes)[-2:] == ["0.40 + 3.0 + 0.80 s", "bare: 0.05 + 2.9 + 0.80 s"]


def test_several_comparisons_are_said_to_be_corrected(drawn):
    axes, _ = drawn(found(1, 0.003, "equivalent", family=3))
    assert "verdicts corrected for 3 comparisons (Holm)" in axes.get_xlabel()
    axes, _ = drawn(found(1, 0.003, "equivalent"))
    assert axes.get_xlabel() == (
        "difference in throughput, % \u00b7 thin: 95 % CI, thick: 90 % CI\n"
        "green zone: \u00b11 % equivalence margin"
    )


def test_rows_are_named_by_what_tells_them_apart(drawn):
    rows = [found(1, 0.003, "equivalent", devices=n, batch_per_device=64) for n in (1, 2)]
    axes, _ = drawn(*rows)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["1 CPU device", "2 CPU devices"]
    assert "apptainer relative to bare \u00b7 single, batch 64, float32" in texts(axes)
    options = found(1, 0.003, "equivalent", field="copies_per_node", condition="2", base="1")
    axes, _ = drawn(options | {"copies_per_node": 2, "runtime": "bare"})
    assert axes.get_title(loc="left") == "Copies per node \u00b7 lenet5, synthetic"
    assert any(word.startswith("2 at once relative to 1 at once") for word in texts(axes))


def test_spreads_of_copies_are_given_to_two_digits(drawn):
    copies = {"field": "copies_per_node", "condition": "2", "base": "1", "copies_per_node": 2}
    spreads = {"step_time_sd_b_s": 0.00144, "step_time_sd_a_s": 0.1434}
    axes, _ = drawn(found(0.9, 0.01, "slower", **copies, **spreads))
    assert "SD 1.4 \u2192 140 ms" in texts(axes)


def test_a_row_that_was_measured_apart_has_a_half_filled_marker_and_says_so(drawn):
    apart = found(0.9, 0.01, "slower", condition="udocker", base_flags="seed, measured apart")
    axes = drawn(apart, found(1.1, 0.01, "faster"))
    points = [line for line in axes[0].lines if line.get_gid() == "ratio"]
    markers = {line.get_ydata()[0]: line.get_fillstyle() for line in points}
    assert markers == {1: "bottom", 0: "full"}
    assert "differs in seed \u00b7 measured apart" in texts(axes[0])
    assert "half-filled: the two sides were measured apart" in axes[0].get_xlabel()


def shown_ticks(axes):
    """(x in pixels from, to, words) of the ticks of the horizontal axis that are seen."""
    axes.figure.draw_without_rendering()
    low, high = axes.get_xlim()
    labels = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    seen = [label for tick, label in labels if low <= tick <= high]
    return [(*label.get_window_extent().intervalx, label.get_text()) for label in seen]


@pytest.mark.parametrize("percent", [0.3, 15, 970, 1040, 2_500_000])
def test_ticks_stay_apart_however_wide_the_intervals_are(drawn, percent):
    wide = found(1 + percent / 100, 0.9, "undecided", repeats_needed=1000, **START_UP)
    ticks = shown_ticks(drawn(wide)[0])
    assert len(ticks) >= 2
    for (_, end, _), (begin, _, word) in itertools.pairwise(ticks):
        assert begin - end > 3, word


def test_intervals_of_two_runs_do_not_take_the_scale_from_those_of_many(drawn):
    known = found(0.98, 0.004, "slower")
    axes, _ = drawn(known, found(1.1, 0.9, "too few runs", n_a=2, n_b=2, condition="udocker"))
    low, high = axes.get_xlim()
    assert -20 < low < -2 and 10 < high < 30


def test_large_differences_are_in_whole_per_cents_with_thousands_apart(drawn):
    axes, _ = drawn(found(13.1234, 0.4, "faster"))
    assert "+1\u2009212 %" in texts(axes)
    assert "+1\u2009000" in {text for *_, text in shown_ticks(axes)}


def test_the_throughput_of_a_base_of_texts_is_in_tokens(drawn):
    axes, _ = drawn(found(1, 0.003, "equivalent", tokens_per_second_b=157_996.2))
    assert "of 157\u2009996/s" in texts(axes)
    assert "throughput of the base in tokens / s" in axes.get_xlabel()


def test_rows_of_several_lengths_of_sequences_are_named_by_them(drawn):
    rows = [found(1, 0.003, "equivalent", sequence_length=length) for length in (64, 128)]
    axes, _ = drawn(*rows)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["64 tokens", "128 tokens"]
    axes, _ = drawn(rows[0])
    assert any("batch 64, 64 tokens, float32" in word for word in texts(axes))


NOTHING = "no conditions to compare \u00b7 "


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], {NOTHING + "see `compare` in the config"}),
        ([lacking("no base")], {NOTHING + "without a base: 1"}),
        ([lacking("no runs")], {"no runs", "of this condition"}),
        (
            [lacking("no runs", n_a=3, n_b=0, value_b=None)],
            {"no runs", "of the base"},
        ),
        ([found(1.1, 0, "faster")], {"+10.00 %", "faster", "not recorded"}),
        (
            [found(1.3, 0.35, "undecided"), found(0.7, 0.1, "slower")],
            {"+30.0 %", "\u221230.0 %"},
        ),
        (
            [found(1.0001, 0.0005, "equivalent", **(START_UP | {"start_a_s": None}))],
            {"+0.01 %", "? + 3.0 + 0.80 s"},
        ),
        (
            [found(1.1, float("nan"), "too few runs", n_a=1, repeats_needed=3)],
            {"+10.0 %", "too few runs", "3 repeats needed"},
        ),
        (
            [found(1, 0.01, "equivalent", base_flags="framework_version, device_model")],
            {"differs in framework_version and device_model"},
        ),
    ],
)
def test_what_a_row_lacks_is_said(drawn, rows, words):
    assert words <= {word for axes in drawn(*rows) for word in texts(axes)}


@pytest.mark.parametrize(
    ("ratio", "half", "text"),
    [(1.0, 0.01, "0.0 %"), (0.99996, 0.01, "0.0 %"), (0.984, 0.01, "\u22121.6 %"),
     (1.00034, 0.0005, "+0.03 %"), (1.3, 0.2, "+30.0 %")],
)  # fmt: skip
def test_differences_are_written_with_their_sign_and_the_digits_they_have(ratio, half, text):
    assert overhead._difference(pd.Series(found(ratio, half, ""))) == text


def seen(image, colour):
    counts = {c: n for n, c in image.convert("RGB").getcolors(1 << 24)}
    return counts.get(ImageColor.getrgb(colour), 0) / (image.width * image.height)
