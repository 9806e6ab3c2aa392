"""batch_searches: what shares a search, what was found, and what a study makes of it."""

import json

import pytest

from dlbench.study import batch_searches
from dlbench.study.batch_searches import SearchResult
from dlbench.study.runs import Run
from support.studies.found_batches import TRIES, write_found
from support.studies.made_studies import BLOCK, refused, study

WIDEST = BLOCK | {"batch_per_device": "max", "steps": 5}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def search(**changes):
    values = {"model": "lenet5", "dataset": "digits", "batch_per_device": 8, "steps": 9}
    return batch_searches.search_for(Run(**values | changes))


def test_repeats_rates_of_learning_and_lengths_share_a_search_and_its_id_stays():
    assert search().id == "max-lenet5-digits-single-1x1-09c91dd476"
    same = {"batch_per_device": 16, "repeat": 2, "seed": 3, "learning_rate": 0.5, "steps": 100}
    assert search(**same).id == search().id


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bfloat16"},
        {"devices_per_node": 2, "strategy": "mirrored"},
        {"evaluate": "yes"},
        {"recompute": True},
    ],
)
def test_what_changes_the_memory_is_searched_by_itself(changes):
    assert search(**changes).id != search().id


def test_the_least_batch_is_what_a_device_computes_in_its_parts():
    parts = search(accumulate_steps=4)
    assert parts.unit == parts.run.batch_per_device == 4
    assert parts.attempt(12).batch_per_device == 12


def test_an_image_is_entered_by_the_command_of_each_try():
    entered = search(runtime="apptainer", environment="x")
    assert entered.run.runtime_options == "start=command"
    assert search().run.runtime_options == ""


def test_as_long_as_nothing_is_found_a_study_has_the_search_and_no_run():
    made = study(WIDEST)
    assert (len(made.searches), made.runs, made.search_results) == (1, (), {})
    (left_out,) = made.excluded
    assert left_out.values["batch_per_device"] == "max"
    assert left_out.reason == batch_searches.NOT_YET


def test_all_repeats_have_the_batch_that_was_found_which_is_trained_once_where_it_is_asked_for():
    (search_id,) = study(WIDEST).searches
    write_found(search_id)
    for batches in (["max", 8], [48, "max", 8], ["max", 48, 8]):
        made = study(WIDEST | {"batch_per_device": batches, "repeats": 2})
        assert sorted(run.batch_per_device for run in made.runs) == [8, 8, 48, 48]
        of_search = {run.id for run in made.runs if run.batch_per_device == 48}
        assert made.with_found_batch == of_search
        assert made.search_results == {search_id: SearchResult(48, "49 is too many")}


def test_where_no_batch_fits_the_combination_is_excluded_with_the_reason():
    (search_id,) = study(WIDEST).searches
    write_found(search_id, batch_per_device=None, reason="not even 1 fits")
    assert f"not even 1 fits; to search again: dlbench forget {search_id}" in refused(WIDEST)
    made = study(WIDEST, BLOCK | {"name": "other", "steps": 5})
    assert [left_out.reason for left_out in made.excluded] == ["not even 1 fits"]


@pytest.mark.parametrize(
    ("statuses", "text", "chosen"),
    [
        (("failed", "oom", "timeout"), "", ["broken", "small"]),
        (("oom",), "", ["small"]),
        (("failed", "oom"), "LAYERS", ["broken"]),
        (("ok", "timeout", "skipped"), "", []),
    ],
)
def test_searches_in_vain_are_told_from_those_that_found_or_were_skipped(statuses, text, chosen):
    none = {"batch_per_device": None}
    write_found("found", tries=TRIES)
    write_found("skipped", **none, skipped=True, reason="no GPU")
    write_found("small", **none, reason="not even 1 fits", tries=TRIES[1:])
    write_found("broken", **none, reason="2 layers of one name", tries=TRIES[:1])
    write_found("damaged", **none, search="another")
    assert batch_searches.failed_searches(statuses, text) == chosen


@pytest.mark.parametrize(
    "change",
    [
        {"search": "another"}, {"batch_per_device": 0}, {"batch_per_device": "48"}, {"reason": ""},
        {"tries": None}, {"tries": [TRIES[0] | {"fits": "yes"}]},
        {"tries": [TRIES[0] | {"share_of_memory": [1]}]},
    ],
)  # fmt: skip
def test_a_file_that_does_not_say_what_was_found_counts_as_none(change):
    write_found("one")
    assert batch_searches.read_result("one") == SearchResult(48, "49 is too many")
    write_found("one", tries=TRIES)
    assert batch_searches.read_result("one").tries == tuple(TRIES)
    path = write_found("one", **change)
    assert batch_searches.read_result("one") is None
    path.write_text(json.dumps({})[:-1])
    assert batch_searches.read_result("one") is None


def test_what_cannot_be_searched_is_refused_before_anything_starts():
    elsewhere = {"strategy": "multiworker", "nodes": 2, "launcher": "kubernetes"}
    message = "max cannot be found: launcher kubernetes starts runs elsewhere"
    assert message in refused(WIDEST | elsewhere)
    message = "max cannot be found: mode input has no model, whose memory the batch would fill"
    assert message in refused(WIDEST | {"dataset": "digits", "mode": "input"})


def test_what_else_is_wrong_is_said_before_a_search_begins():
    entry = {"field": "precision", "base": "float16"}
    assert "no run has the precision" in refused(WIDEST, compare=[entry])
