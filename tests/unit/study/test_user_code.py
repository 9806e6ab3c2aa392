"""user_code: names of the user's pictures are datasets of a config."""

import pytest

from dlbench.common import plugins
from support.studies.made_studies import BLOCK, STUDY, refused, study

OWN = BLOCK | {"model": "cnn12", "dataset": "photos", "steps": 5}


@pytest.fixture(autouse=True)
def forgotten():
    yield
    plugins.set_user_names("datasets", "images", [])


def data(**images):
    return STUDY["data"] | {"images": images}


def test_a_name_is_a_dataset_of_its_config_and_of_no_other():
    made = study(OWN, data=data(photos={"path": "/data/photos"}))
    assert made.runs[0].dataset == "photos"
    assert "no file datasets/photos.py" in refused(OWN)


def test_a_misspelt_name_is_named_with_the_nearest():
    message = refused(OWN | {"dataset": "fotos"}, data=data(photos={"path": "/data/photos"}))
    assert "no file datasets/fotos.py (did you mean 'photos'?)" in message


@pytest.mark.parametrize("name", ["cifar10", "images", "text_books"])
def test_a_name_that_a_dataset_has_already_is_refused(name):
    message = refused(data=data(**{name: {"path": "/data/photos"}}))
    assert message.startswith(f"data.images.{name}: the file datasets/")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"paht": "/data"}, "unknown key 'paht' (did you mean 'path'?)"),
        ({"path": "/data", "max_unreadable": 5}, "expected less than 1, found 5"),
        ({"path": "/data", "image_size": [224]}, "image_size: expected a list of at least 2"),
        ({"path": "/data", "image_size": [8, 8, 3]}, "expected a list of at most 2"),
        ({"path": "/data", "image_size": 224}, "image_size: expected a list, found 224"),
        ({"path": "/data", "validation_share": 0}, "expected more than 0, found 0"),
        ("/data", "expected a mapping"),
    ],
)
def test_what_a_config_cannot_say_of_pictures_is_named(given, message):
    found = refused(data=data(photos=given))
    assert message in found and "data.images.photos" in found
