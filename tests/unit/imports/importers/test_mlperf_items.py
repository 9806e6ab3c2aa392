"""mlperf: which intervals are complete, and the number of items in them."""

import pytest

from support.logs.mlperf_lines import (
    BEGIN,
    END,
    POINT,
    START,
    SUCCESS,
    epochs,
    evaluation,
    lines,
    stated,
    success,
)
from support.logs.reading_logs import notes, read


def test_batches_of_a_loader_are_counted_where_the_rules_name_the_items_of_an_epoch(log):
    # As the logs of RetinaNet in round 5.0 have it: 4572 batches of 256 are 1170301 items.
    header = stated("retinanet", 256, 4572)
    content = epochs((0, 488_000), (519_000, 1_005_000), (1_035_000, 1_040_000))
    per_gpu = lines((1, POINT, "tracked_stats", {"throughput": 299.6}, {}))
    (run,) = read("mlperf", log, header + content + per_gpu + success(1_040_000))
    # The third epoch ends with the run, so perhaps before its end.
    assert run.columns["images_per_second"] == pytest.approx(2 * 4572 * 256 / 974)
    assert "1 intervals are left out: they end with the run" in notes(run)


def test_an_only_epoch_that_ends_with_the_run_gives_no_rate(log):
    (run,) = read("mlperf", log, BEGIN + epochs((0, 60_000)) + SUCCESS)
    assert "images_per_second" not in run.columns
    assert "no interval ends before the run" in notes(run)


def test_a_block_whose_stop_repeats_its_first_count_has_the_samples_until_the_next(log):
    # As NVIDIA's llama2_70b_lora of round 5.0: blocks of 1536 and 384, evaluated in between.
    content = lines(
        (0, START, "block_start", None, {"samples_count": 0}),
        (300_000, END, "block_stop", None, {"samples_count": 0}),
        (315_000, START, "block_start", None, {"samples_count": 1536}),
        (390_000, END, "block_stop", None, {"samples_count": 1536}),
        (405_000, START, "block_start", None, {"samples_count": 1920}),
        (480_000, END, "block_stop", None, {"samples_count": 1920}),
    )
    (run,) = read("mlperf", log, BEGIN + content + success(490_000))
    assert run.columns["images_per_second"] == 1920 / 375  # of the last nobody knows the samples
    assert "1920 items (samples_count) in 2 intervals (block), 375 s" in notes(run)


def test_a_block_of_an_evaluation_has_not_the_samples_that_are_trained_after_it(log):
    content = lines((40_000, START, "block_start", None, {"samples_count": 500}))
    content += evaluation(40_100, 40_400, 1)
    content += lines(
        (42_000, END, "block_stop", None, {"samples_count": 500}),
        (55_000, START, "block_start", None, {"samples_count": 900}),
    )
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert "images_per_second" not in run.columns
