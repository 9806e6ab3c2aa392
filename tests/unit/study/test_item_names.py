"""What items are called, and in what their rates are told."""

import math

import pytest

from dlbench.study import item_names


@pytest.mark.parametrize("shape", [None, "", math.nan, [], "large", "224 x 224"])
def test_an_item_of_unknown_shape_has_no_name_and_its_rate_is_of_items(shape):
    assert item_names.name(shape) is None
    assert item_names.tokens(shape) is None
    assert item_names.unit([shape]) == item_names.ITEMS


def test_a_line_of_tokens_is_a_sequence_and_anything_wider_an_image():
    assert item_names.name("20") == item_names.name((20,)) == "sequence"
    assert item_names.name("28x28") == item_names.name([32, 32, 3]) == "image"


def test_runs_on_texts_are_told_in_tokens_and_beside_images_in_items():
    assert item_names.unit(["20"]) == ("tokens", 20, "sequence")
    assert item_names.unit(["20", "128"]) == ("tokens", 128, "sequence")
    assert item_names.unit(["20", "128"], one_factor=True) == ("sequences", 1, "sequence")
    assert item_names.unit(["20", "32x32x1"]) == item_names.ITEMS
    assert item_names.unit(["32x32x1", None]) == item_names.IMAGES
