"""What items are called, and in what their rates are told."""

import math

import pytest

from dlbench.study import wording


@pytest.mark.parametrize("shape", [None, "", math.nan, [], "large", "224 x 224"])
def test_an_item_of_unknown_shape_has_no_name_and_its_rate_is_of_items(shape):
    assert wording.item_name(shape) is None
    assert wording.tokens(shape) is None
    assert wording.rate_unit([shape]) == wording.ITEMS


def test_a_line_of_tokens_is_a_sequence_and_anything_wider_an_image():
    assert wording.item_name("20") == wording.item_name((20,)) == "sequence"
    assert wording.item_name("28x28") == wording.item_name([32, 32, 3]) == "image"


def test_runs_on_texts_are_told_in_tokens_and_beside_images_in_items():
    assert wording.rate_unit(["20"]) == ("tokens", 20, "sequence")
    assert wording.rate_unit(["20", "128"]) == ("tokens", 128, "sequence")
    assert wording.rate_unit(["20", "128"], one_factor=True) == ("sequences", 1, "sequence")
    assert wording.rate_unit(["20", "32x32x1"]) == wording.ITEMS
    assert wording.rate_unit(["32x32x1", None]) == wording.IMAGES
