"""see_images: images that could not be made are reported, each reason once."""

import pytest

from dlbench import Error
from dlbench.images import make_image, trainer_image


@pytest.fixture
def forms(tmp_path):
    """Paths of three forms, of which the last two could not be made, for one reason."""
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    paths[0].write_text('{"image": "x"}')
    for path in paths[1:]:
        with trainer_image.record_failure(path):
            raise Error("no tool to unpack it")
    return paths


def test_failures_are_an_error_with_each_reason_once(forms):
    with pytest.raises(Error) as error:
        make_image.check(forms)
    assert str(error.value) == "no tool to unpack it"


def test_forms_without_a_failure_pass(forms, tmp_path):
    make_image.check([forms[0], tmp_path / "not_made_yet.json"])
