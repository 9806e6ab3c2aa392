"""Whether rate, batch and step time of a run agree."""

import pytest

from dlbench.study import contradictions

ROW = {"images_per_second": 64.0, "global_batch": 32, "step_time_mean_s": 0.5}


def test_numbers_within_two_per_cent_agree():
    for factor in (0.981, 1.0, 1.019):
        row = ROW | {"images_per_second": 64.0 * factor}
        assert contradictions.marked(row) == row


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("factor", [1 / 2048, 0.979, 1.021, 768])
def test_any_of_the_three_that_is_off_contradicts_the_others(name, factor):
    row = ROW | {name: ROW[name] * factor}
    assert contradictions.marked(row)["contradicts"]


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("value", [None, 0, float("nan")])
def test_what_is_not_known_contradicts_nothing(name, value):
    assert contradictions.describe_contradiction(ROW | {name: value}) == ""


def test_what_printed_digits_leave_open_is_allowed_beside_the_two_per_cent():
    row = ROW | {"images_per_second": 64.0 * 1.06}
    assert contradictions.describe_contradiction(row)
    assert contradictions.describe_contradiction(row | {"rate_uncertainty": 0.05}) == ""


def test_the_mean_rate_of_unlike_copies_is_not_the_rate_of_their_mean_time():
    # Copies that take 1 and 2 s: 32 and 16 items/s, a mean of 24; 32 items over 1.5 s are 21.3.
    row = {"images_per_second": 24.0, "global_batch": 32, "step_time_mean_s": 1.5}
    assert contradictions.describe_contradiction(row)
    assert contradictions.describe_contradiction(row | {"copy_sd_images_per_second": 11.3}) == ""


def test_the_words_have_all_numbers_and_what_a_whole_ratio_may_mean():
    row = {"images_per_second": 48.05, "global_batch": 32, "step_time_mean_s": 5.333}
    words = contradictions.describe_contradiction(row)
    assert words.startswith("images_per_second is 48.05, global_batch / step_time_mean_s is 32 / ")
    assert "8.01 times as much, as if one were of a single device or process and the" in words
    assert "5 % apart" in contradictions.describe_contradiction(ROW | {"global_batch": 33.6})


def test_no_run_has_more_flops_than_its_device_can():
    assert contradictions.marked(ROW | {"mfu": 1.0, "hfu": None}) == ROW | {"mfu": 1.0, "hfu": None}
    row = contradictions.marked(ROW | {"mfu": 0.8, "hfu": 14.8})
    assert row["contradicts"].startswith("hfu is 14.8, above 1: FLOPs of an item, precision or")
    assert contradictions.withheld(row)["images_per_second"] is None


def test_a_row_that_contradicts_itself_has_its_numbers_but_not_for_means_and_comparisons():
    row = contradictions.marked(ROW | {"global_batch": 256, "final_loss": 7.0, "mfu": 0.4})
    assert row["images_per_second"] == 64
    nothing = dict.fromkeys(["images_per_second", "step_time_mean_s", "mfu"])
    assert contradictions.withheld(row) == row | nothing
    assert contradictions.withheld(ROW) == ROW
    found = ROW | {"contradicts": "two totals"}  # by an importer
    assert contradictions.marked(found) == found


def test_steps_may_not_take_longer_than_the_program_did():
    assert contradictions.describe_excess(ROW, 100, 50.0) == ""
    assert contradictions.describe_excess(ROW, 100, 49.5) == ""  # the two per cent
    assert contradictions.describe_excess(ROW, None, 5.0) == ""
    assert contradictions.describe_excess(ROW | {"steps_measured": 90}, 100, 40.0) == (
        "90 steps of 0.5 s by its log are 45 s, and the whole program took 40 s"
    )
