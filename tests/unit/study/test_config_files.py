"""Which config files are read, from our own folder and from that of another workflow."""

import pytest
import yaml

from dlbench.common import own_code
from dlbench.study import config_files
from dlbench.study.config_schema import ConfigError
from support.machines.paths import REPOSITORY

OURS = str(REPOSITORY / "config.yaml")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of another workflow, with a config.yaml."""
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("study: theirs\n")
    return tmp_path


def test_at_home_config_yaml_is_read_and_site_yaml_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert config_files.files() == ["config.yaml"]
    (tmp_path / "site.yaml").touch()
    assert config_files.files() == ["config.yaml", "site.yaml"]


def test_elsewhere_ours_comes_first_and_a_module_leaves_config_yaml_to_the_other(elsewhere):
    assert config_files.files() == [OURS, "config.yaml"]
    assert config_files.files(in_a_module=True) == [OURS]
    merged = config_files.settings_of([])
    assert merged["study"] == "theirs"
    assert merged["seed"] == config_files.read(OURS)["seed"]


def test_what_a_module_is_given_is_laid_over_ours_and_over_what_the_site_says(elsewhere):
    (elsewhere / "site.yaml").write_text("site: {name: there, nodes: 3}\n")
    merged = config_files.laid_over({"study": "given", "site": {"nodes": 4}})
    ours = config_files.read(OURS)
    assert merged == ours | {"study": "given", "site": ours["site"] | {"name": "there", "nodes": 4}}


def test_in_the_config_of_another_workflow_ours_is_what_stands_under_dlbench(elsewhere):
    both = {"samples": ["a"], "dlbench": {"study": "given"}}
    assert config_files.laid_over(both)["study"] == "given"
    assert "samples" not in config_files.laid_over(both)
    (elsewhere / "both.yaml").write_text(yaml.safe_dump(both))
    assert config_files.settings_of(["both.yaml"])["study"] == "given"


def test_a_file_that_is_named_and_not_there_is_said(elsewhere):
    with pytest.raises(ConfigError, match=r"--configfile none\.yaml: there is no such file"):
        config_files.settings_of(["none.yaml"])
