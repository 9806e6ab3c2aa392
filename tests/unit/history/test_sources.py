"""The campaigns that a config names."""

from pathlib import Path

import pytest

from dlbench import Error
from dlbench.history import add_campaign, sources
from support.history import made_campaigns as made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_folder_of_campaigns_stands_for_all_of_them():
    made.add_session("all/one", 1, {8: [1.0]})
    made.archive("all/one", "all/two.zip")
    found = sources.sources(["all", {"path": "all/one/../one", "site": "far"}], {})
    assert [source.path for source in found] == ["all/one", "all/two.zip", "all/one/../one"]
    assert found[2].options == {"site": "far"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["nowhere"], "there is no archive or results folder nowhere"),
        (["empty"], "expected a results folder"),
        (["results", "results"], "results is named twice"),
    ],
)
def test_paths_that_name_nothing_are_reported(entries, message):
    Path("empty").mkdir()
    made.add_session("results", 1, {8: [1.0]})
    with pytest.raises(Error, match=message):
        sources.sources(entries, {})


def test_a_source_is_added_again_only_if_it_changed_or_its_file_is_lost():
    made.archive(made.add_session("results", 1, {8: [1.0]}), "a.zip")
    source = sources.Source("a.zip")
    assert not source.is_added()
    (file,) = add_campaign.add(source, sources.HISTORY)["files"]
    assert source.is_added()
    assert not sources.Source("a.zip", {"site": "far"}).is_added()
    (sources.HISTORY / file).unlink()
    assert not source.is_added()


def test_files_of_others_in_the_history_change_its_state():
    made.add_session("results", 1, {8: [1.0]})
    source = sources.Source("results")
    (file,) = add_campaign.add(source, sources.HISTORY)["files"]
    before = sources.foreign_files([source])
    assert before == sources.foreign_files([source])
    (sources.HISTORY / file).with_suffix(".withdrawn").touch()
    assert sources.foreign_files([source]) != before
