"""Axes name what they count: images, or tokens of texts."""

import pytest

from support.results import made_tables
from support.results.drawn_figures import has

TEXT = {"model": "lstm_ptb", "dataset": "ptb", "item_shape": "20"}


@pytest.fixture
def drawn(draw):
    """A function that draws a figure of some runs and returns its axes."""
    return lambda name, rows: draw(name, rows).axes


def test_the_throughput_of_texts_is_drawn_in_tokens(drawn):
    rows = made_tables.study(repeats=1, batch_per_device=[8, 16], strategy="single", **TEXT)
    (axes,) = drawn("batch_size", rows)
    assert axes.get_ylabel() == "tokens / s"
    assert all(has(axes, 20 * row["images_per_second"]) for row in rows)


def test_sequences_of_several_lengths_are_each_drawn_in_their_own_tokens(drawn):
    rows = []
    for length in ("20", "40"):
        text = TEXT | {"item_shape": length}
        rows += made_tables.study(repeats=1, batch_per_device=[8, 16], strategy="single", **text)
    (axes,) = drawn("batch_size", rows)
    assert all(has(axes, int(r["item_shape"]) * r["images_per_second"]) for r in rows)


@pytest.mark.parametrize(
    ("name", "of_texts", "of_images"),
    [
        ("scaling", "tokens / s (log)", "images / s (log)"),
        ("batch_size", "tokens / s", "images / s"),
        ("time_per_batch", "ms / sequence and device (log)", "ms / image and device (log)"),
    ],
)
def test_an_axis_names_its_items(drawn, name, of_texts, of_images):
    changes = {"repeats": 1, "batch_per_device": [8, 16], "devices": [1, 2]}
    for label, fields in ((of_texts, TEXT), (of_images, {})):
        axes = drawn(name, made_tables.study(**changes, **fields))
        assert label in {axis.get_ylabel().strip() for axis in axes}


def test_series_of_several_lengths_are_named_by_their_tokens(drawn):
    rows = [
        row
        for length in ("20", "40")
        for row in made_tables.study(
            repeats=1, batch_per_device=[8, 16], strategy="single", **TEXT | {"item_shape": length}
        )
    ]
    (axes,) = drawn("batch_size", rows)
    assert {text.get_text() for text in axes.texts} >= {"20 tokens", "40 tokens"}


def test_points_are_seen_beside_an_interval_of_two_runs(drawn):
    rows = made_tables.study(repeats=2, batch_per_device=[8, 16], strategy="single", **TEXT)
    rows = [row | {"images_per_second": 100.0 * row["repeat"] ** 3} for row in rows]
    (axes,) = drawn("batch_size", rows)
    highest = 20 * 100 * 8**0.5
    assert axes.get_ylim() == (0, pytest.approx(2 * highest))
    assert max(max(line.get_ydata()) for line in axes.lines) > 100 * highest


def test_coverage_has_a_row_for_each_length_that_was_asked_for(drawn):
    rows = made_tables.study(repeats=1, batch_per_device=[8, 16], sequence_length=[20, 40], **TEXT)
    rows = made_tables.failing(rows, lambda row: row["sequence_length"] == 40)
    (axes,) = drawn("coverage", [row | {"item_shape": None} for row in rows])
    names = [label.get_text() for label in axes.get_yticklabels()]
    begin = [name.split(", mirrored")[0] for name in names if name.startswith("lstm_ptb")]
    assert begin == ["lstm_ptb, ptb, 20 tokens", "lstm_ptb, ptb, 40 tokens"]


def test_ticks_of_a_logarithmic_axis_are_round_numbers_of_tokens(drawn):
    rows = made_tables.study(repeats=1, devices=[1, 2, 4, 8], **TEXT)
    throughput, *_ = drawn("scaling", rows)
    low, high = throughput.get_ylim()
    shown = [
        label.get_text().replace("\u2009", "")
        for tick, label in zip(throughput.get_yticks(), throughput.get_yticklabels(), strict=True)
        if low <= tick <= high
    ]
    ticks = [tick for tick in throughput.get_yticks() if low <= tick <= high]
    for tick, label in zip(ticks, shown, strict=True):
        assert float(label) == pytest.approx(20 * tick, rel=1e-3)


def test_published_rates_are_named_by_what_they_count(drawn):
    changes = {"repeats": 1, "batch_per_device": 16, "devices": [1, 2]}
    theirs = {"site": "paper", "timing_source": "published", "device_model": "K80", "scale": 0.1}
    for label, fields in (("sequences / s", TEXT), ("images / s", {})):
        rows = made_tables.study(**changes, **fields)
        rows += made_tables.study(**changes, **fields, **theirs)
        assert label in [axes.get_xlabel() for axes in drawn("published", rows)]
