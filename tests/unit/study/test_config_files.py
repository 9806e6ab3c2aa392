"""Which config files are read, ours and another workflow's; folders of models and data of users."""

import pytest
import yaml

from dlbench.common import own_code, plugins
from dlbench.machine import redaction
from dlbench.records import judgement
from dlbench.study import config
from dlbench.study import config as config_module
from dlbench.study.config_schema import ConfigError
from support.machines.paths import REPOSITORY
from support.studies.made_studies import BLOCK, STUDY, refused, study

OURS = str(REPOSITORY / "config.yaml")
OWN = BLOCK | {"model": "cnn12", "dataset": "photos", "steps": 5}
MODEL = 'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\n'
DATASET = 'KIND = "image"\nSYNTHETIC = False\nTITLE = "ours"\n'


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of another workflow, with a config.yaml."""
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("study: theirs\n")
    return tmp_path


def test_at_home_config_yaml_is_read_and_site_yaml_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert config.files() == ["config.yaml"]
    (tmp_path / "site.yaml").touch()
    assert config.files() == ["config.yaml", "site.yaml"]


def test_elsewhere_ours_comes_first_and_a_module_leaves_config_yaml_to_the_other(elsewhere):
    assert config.files() == [OURS, "config.yaml"]
    assert config.files(in_a_module=True) == [OURS]
    assert config.settings_of([]) == config.read(OURS) | {"study": "theirs"}


def test_what_a_module_is_given_is_laid_over_ours_and_over_what_the_site_says(elsewhere):
    (elsewhere / "site.yaml").write_text("site: {name: there, nodes: 3}\n")
    merged = config.laid_over({"study": "given", "site": {"nodes": 4}})
    ours = config.read(OURS)
    assert merged == ours | {"study": "given", "site": ours["site"] | {"name": "there", "nodes": 4}}


def test_in_the_config_of_another_workflow_ours_is_what_stands_under_dlbench(elsewhere):
    both = {"samples": ["a"], "dlbench": {"study": "given"}}
    assert config.laid_over(both)["study"] == "given"
    assert "samples" not in config.laid_over(both)
    (elsewhere / "both.yaml").write_text(yaml.safe_dump(both))
    assert config.settings_of(["both.yaml"])["study"] == "given"


def test_a_file_that_is_named_and_not_there_is_said(elsewhere):
    with pytest.raises(ConfigError, match=r"--configfile none\.yaml: there is no such file"):
        config.settings_of(["none.yaml"])


# Models and datasets of the user.


@pytest.fixture
def folder(tmp_path):
    """A function that writes files into a folder of the user, and gives the folder."""

    def make(own="own", **texts):
        (tmp_path / own).mkdir(exist_ok=True)
        for name, text in texts.items():
            (tmp_path / own / f"{name}.py").write_text(text)
        return str(tmp_path / own)

    yield make
    plugins.set_user_names("datasets", "images", [])
    for kind in ("models", "datasets"):
        plugins.add_user_folder(kind)


def pictures(name):
    return STUDY["data"] | {"images": {name: {"path": "/data/photos"}}}


def test_a_name_of_pictures_is_a_dataset_of_its_config_and_of_no_other(folder):
    assert study(OWN, data=pictures("photos")).runs[0].dataset == "photos"
    message = refused(OWN | {"dataset": "fotos"}, data=pictures("photos"))
    assert "no file datasets/fotos.py (did you mean 'photos'?)" in message
    assert "no file datasets/photos.py" in refused(OWN)


def test_names_of_pictures_that_a_dataset_has_already_are_refused(folder):
    for name in ("cifar10", "text_books"):
        message = refused(data=pictures(name))
        assert message.startswith(f"data.images.{name}: the file datasets/")
    message = "data.images.photos: the file datasets/photos.py has this name; choose another one"
    assert refused(data=pictures("photos"), dataset_folder=folder(photos=DATASET)) == message


def test_a_file_of_the_users_folder_is_a_dataset_of_its_config_and_of_no_other(folder):
    made = study(OWN, dataset_folder=folder(photos=DATASET))
    assert (made.runs[0].dataset, made.dataset_folder) == ("photos", folder())
    assert judgement.recipe("photos") and "photos" in plugins.names("datasets")
    assert "no file datasets/photos.py" in refused(OWN)


def test_a_file_of_the_users_folder_is_a_model_of_its_config_and_of_no_other(folder):
    block = BLOCK | {"steps": 5, "model": ["mine", "lenet5"]}
    made = study(block, model_folder=folder(mine=MODEL))
    assert {run.model for run in made.runs} == {"mine", "lenet5"}
    assert made.model_folder == folder() and "mine" in plugins.names("keras/models")
    message = refused(block | {"model": "mien"}, model_folder=folder())
    assert "no file models/mien.py (did you mean 'mine'?)" in message
    assert "no file models/mine.py" in refused(block)
    assert "mine" not in plugins.names("keras/models")


@pytest.mark.parametrize(
    ("kind", "name", "text", "message"),
    [
        ("model", "lenet5", MODEL, "lenet5 is in models/lenet5.py of ours; choose"),
        (
            "dataset",
            "digits",
            DATASET,
            "digits.py: digits is in datasets/digits.py of ours; ",
        ),
        (
            "dataset",
            "x",
            "TASK = 1",
            "x.py: expected SYNTHETIC = False and a KIND, as files of",
        ),
        ("dataset", "x", DATASET.replace("False", "True"), "expected SYNTHETIC = False"),
        ("dataset", "x", "KIND = (", "x.py, line 1: not valid Python"),
    ],
)
def test_files_that_cannot_be_the_users_are_refused(folder, kind, name, text, message):
    found = refused(**{f"{kind}_folder": folder(**{name: text})})
    assert found.startswith(f"{kind}_folder: ") and message in found


def test_a_model_without_a_task_that_there_is_is_named(folder):
    own = BLOCK | {"steps": 5, "model": "mine"}
    found = refused(own, model_folder=folder(mine='TASK = "classifying"\n'))
    assert "no task classifying (did you mean 'classification'?)" in found
    found = refused(own, model_folder=folder(mine=""))
    assert "TASK of model mine: no task None; there are: classification" in found


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_folder_of_the_user_that_is_missing_is_named(kind):
    message = f"{kind}_folder: /none: expected a folder with {kind}s of your own, found none"
    assert refused(**{f"{kind}_folder": "/none"}) == message


def test_what_only_describes_a_dataset_of_the_user_is_in_no_digest(folder):
    digests = []
    texts = (DATASET, DATASET.replace("ours", "mine"), DATASET + "SPLITS = {}\n")
    for number, text in enumerate(texts):
        study(dataset_folder=folder(str(number), photos=text))
        digests.append(own_code.digest([str(plugins.path("datasets", "photos"))]))
    assert digests[0] == digests[1] != digests[2]


def test_commands_are_handed_on_without_their_secrets_which_go_by_a_variable():
    arguments = ["run", "--token=abc-{model}", "--key", "def", "--max-tokens={steps}"]
    config = {
        "site": {"power_meter": "ipmitool -P abc- sdr", "power_limit_command": None},
        "trainers": {"theirs": {"command": arguments}, "plain": {"command": ["run"]}},
    }
    found = config_module.hide(config)
    assert found.site == {"power_meter": "ipmitool -P (hidden-0) sdr"}
    hidden = ["run", "--token=(hidden-0){model}", "--key", "(hidden-1)", "--max-tokens={steps}"]
    assert found.trainers == {"theirs": hidden, "plain": ["run"]}
    assert redaction.restored(hidden, found.variables) == arguments
    config["trainers"].pop("theirs")
    config["site"]["power_meter"] = "watts"
    assert config_module.hide(config).variables == {}
