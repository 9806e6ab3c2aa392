"""config: datasets of the user: names of pictures, and a folder with files."""

import pytest

from dlbench.common import own_code, plugins
from dlbench.records import staleness
from support.studies.made_studies import BLOCK, STUDY, refused, study

OWN = BLOCK | {"model": "cnn12", "dataset": "photos", "steps": 5}


@pytest.fixture(autouse=True)
def forgotten():
    yield
    plugins.set_user_names("datasets", "images", [])
    plugins.add_user_folder("datasets")


FILE = 'KIND = "image"\nSYNTHETIC = False\nTITLE = "ours"\n'


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


def files(folder, **texts):
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_a_file_of_the_users_folder_is_a_dataset_of_its_config_and_of_no_other(tmp_path):
    own = files(tmp_path / "own", photos=FILE)
    made = study(OWN, dataset_folder=own)
    assert made.runs[0].dataset == "photos" and made.dataset_folder == own
    assert staleness.recipe("photos") and "photos" in plugins.names("datasets")
    assert "no file datasets/photos.py" in refused(OWN)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("digits", FILE, "digits.py: there is a file datasets/digits.py of ours; choose another"),
        ("x", "TASK = 1", "x.py: expected SYNTHETIC = False and a KIND, as files of datasets have"),
        ("x", FILE.replace("False", "True"), "expected SYNTHETIC = False"),
        ("x", "KIND = (", "x.py, line 1: not valid Python"),
    ],
)
def test_a_file_that_describes_no_dataset_of_the_user_is_refused(tmp_path, name, text, message):
    found = refused(dataset_folder=files(tmp_path / "own", **{name: text}))
    assert found.startswith("dataset_folder: ") and message in found


def test_a_folder_of_datasets_that_is_missing_is_named(tmp_path):
    assert refused(dataset_folder=str(tmp_path / "none")) == (
        f"dataset_folder: {tmp_path}/none: expected a folder with datasets of your own, found none"
    )


def test_pictures_may_not_have_the_name_of_a_file_of_the_user(tmp_path):
    own = files(tmp_path / "own", photos=FILE)
    found = refused(data=data(photos={"path": "/data/photos"}), dataset_folder=own)
    assert found == "data.images.photos: the file datasets/photos.py has this name; " + (
        "choose another one"
    )


def test_what_only_describes_a_dataset_of_the_user_is_in_no_digest(tmp_path):
    digests = []
    for number, text in enumerate((FILE, FILE.replace("ours", "mine"), FILE + "SPLITS = {}\n")):
        study(dataset_folder=files(tmp_path / f"own{number}", photos=text))
        digests.append(own_code.digest([str(plugins.path("datasets", "photos"))]))
    assert digests[0] == digests[1] != digests[2]
