"""sources: records from arrays, and values that conversion would change silently."""

import types

import numpy as np
import pytest

from dlbench.common import plugins
from dlbench.data import convert_dataset
from dlbench.data.convert_dataset import DataError
from dlbench.data.sources import ArraySource, WrongRecord, as_bytes

IMAGES = np.zeros((4, 2, 2, 1), np.uint8)


@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf, -1e-9])
def test_a_label_that_is_no_whole_number_is_refused_with_its_record(wrong):
    source = ArraySource({"train": (IMAGES, np.array([0, 1.0, wrong, 1]))})
    assert [source.features("train", n)["image/class/label"] for n in (0, 1, 3)] == [0, 1, 1]
    with pytest.raises(WrongRecord, match=f"train record 2, .* label, found {wrong}"):
        source.features("train", 2)


def test_numbers_become_bytes_within_their_limits():
    assert as_bytes(np.array([[-9.0, -5, 0, 5, 9]]), -5, 5).tolist() == [[0, 0, 128, 255, 255]]
    assert as_bytes(np.array([[0, 5]]), 0, 5).dtype == np.uint8


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_record(wrong):
    numbers = np.ones((7, 1, 4, 1))
    numbers[5, 0, 2, 0] = wrong
    with pytest.raises(WrongRecord, match=f"record 5 of 7, .*found {wrong} as number 2"):
        as_bytes(numbers, 0, 1)


def test_values_of_any_source_that_are_not_finite_stop_a_conversion(tmp_path, monkeypatch):
    images = np.ones((4, 2, 2, 1), np.float32)
    images[3, 1, 1, 0] = np.nan
    dataset = types.SimpleNamespace(
        TITLE="", LICENCE="", CITATION="", KIND="image", FILES={}, SPLITS={"train": 4},
        SHARDS={"train": 1}, open=lambda folder: ArraySource({"train": (images, np.zeros(4))}),
        READER={"encoding": "raw", "dtype": "float32", "shape": [2, 2, 1], "classes": 1,
                "first_label": 0},
    )  # fmt: skip
    monkeypatch.setattr(plugins, "load", lambda kind, name: dataset)
    with pytest.raises(DataError, match="train record 3: expected finite values, found 1 of 4"):
        convert_dataset.convert("x", tmp_path, tmp_path / "out", workers=1)
    images[3] = 1
    convert_dataset.convert("x", tmp_path, tmp_path / "out", workers=1)
    images[3] = np.nan
    convert_dataset.convert("x", tmp_path, tmp_path / "unchecked", workers=1, check="none")
