"""config: a folder with models of the user's own."""

import pytest

from dlbench.common import plugins
from support.studies.made_studies import BLOCK, refused, study

OWN = 'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\n'


@pytest.fixture
def own(tmp_path):
    yield tmp_path / "models"
    plugins.add_user_folder("models")


def models(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_a_model_of_the_user_is_found_beside_ours(own):
    folder = models(own, mine=OWN)
    made = study(BLOCK | {"steps": 5, "model": ["mine", "lenet5"]}, model_folder=folder)
    assert {run.model for run in made.runs} == {"mine", "lenet5"}
    assert made.model_folder == folder
    assert "mine" in plugins.names("keras/models")


def test_without_the_folder_the_model_is_gone_again(own):
    study(BLOCK | {"steps": 5, "model": "mine"}, model_folder=models(own, mine=OWN))
    assert "no file models/mine.py" in refused(BLOCK | {"steps": 5, "model": "mine"})
    assert "mine" not in plugins.names("keras/models")


def test_a_misspelt_model_is_named_with_the_nearest_of_both(own):
    folder = models(own, mine=OWN)
    message = refused(BLOCK | {"steps": 5, "model": "mien"}, model_folder=folder)
    assert "no file models/mien.py (did you mean 'mine'?)" in message


def test_a_folder_of_models_that_is_missing_is_named(own):
    assert refused(model_folder=str(own)) == (
        f"model_folder: {own}: expected a folder with models of your own, found none"
    )


def test_a_model_of_the_user_may_not_have_one_of_our_names(own):
    folder = models(own, lenet5=OWN)
    assert refused(model_folder=folder) == (
        f"model_folder: {own}/lenet5.py: there is a file models/lenet5.py of ours; choose another "
        "name"
    )
    assert study().runs[0].model == "lenet5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('TASK = "classifying"\n', "no file tasks/classifying.py (did you mean 'classification'"),
        ("", "TASK of models/mine.py: no file tasks/None.py"),
    ],
)
def test_a_model_without_a_task_that_there_is_is_named(own, text, message):
    folder = models(own, mine=text)
    assert message in refused(BLOCK | {"steps": 5, "model": "mine"}, model_folder=folder)
