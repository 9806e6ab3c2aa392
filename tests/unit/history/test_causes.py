"""What changed between two sessions."""

import json

from dlbench.history import causes
from dlbench.study.runs import Run
from support.history import made_campaigns

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=50)


def texts(*facts):
    return [json.dumps(one) for one in facts]


def test_facts_of_a_record_are_named_by_their_place_in_it():
    record = made_campaigns.record(RUN, 1.0, made_campaigns.FIRST, "s", gpus=4, kernel="6.1")
    facts = causes.facts([record])
    assert facts["gpus driver"] == "550.54" and facts["kernel"] == "6.1"
    assert facts["gpus kinds power_limit_w"] == "700.0" and facts["cpu microcode"] == "0x1000065"
    assert facts["tensorflow"] == "2.18.1" and facts["host"] == "n1"
    assert facts["variables OMP_NUM_THREADS"] == "1" and "gpus kinds name" not in facts


def test_versions_that_only_the_log_of_another_program_names_are_facts():
    record = made_campaigns.record(RUN, 1.0, made_campaigns.FIRST, "s")
    (software,) = record["provenance"]["software"].values()
    del software["tensorflow"]
    record["provenance"]["versions"] = {"pytorch": "2.15.0", "numpy": "1.0"}
    facts = causes.facts([record])
    assert facts["pytorch"] == "2.15.0" and "tensorflow" not in facts
    assert facts["numpy"] == "2.0.2"  # as the environment has it


def test_a_changed_program_is_no_change_of_dlbench():
    record = made_campaigns.record(RUN, 1.0, made_campaigns.FIRST, "s")
    digest = record["made_from"]["code"]
    assert causes.facts([record])["dlbench code"] == digest
    record["provenance"]["user_files"] = {"trainer": {"sha256": digest}}
    facts = causes.facts([record])
    assert facts["trainer program"] == digest and "dlbench code" not in facts


def test_the_likeliest_cause_is_first():
    sessions = texts(
        *[{"gpus driver": "1", "kernel": "1", "dlbench commit": "a"}] * 3,
        *[{"gpus driver": "2", "kernel": "2", "dlbench commit": "b"}] * 3,
    )
    ranked = causes.ranked(sessions, 3, 3, 3)
    assert [cause.text for cause in ranked] == [
        "gpus driver 1 -> 2",
        "kernel 1 -> 2",
        "dlbench commit a -> b",
    ]


def test_what_changed_elsewhere_without_effect_comes_later():
    sessions = [
        {"gpus driver": str(index // 3), "kernel": str(int(index >= 6))} for index in range(12)
    ]
    assert [cause.name for cause in causes.ranked(texts(*sessions), 6, 6, 6)] == [
        "kernel",
        "gpus driver",
    ]


def test_what_changed_near_the_date_is_named_as_such():
    sessions = texts(*[{"kernel": "1"}] * 4, *[{"kernel": "2"}] * 4)
    (cause,) = causes.ranked(sessions, 5, 3, 6)
    assert cause.text == "kernel 1 -> 2 (near it)"
    assert causes.ranked(sessions, 6, 6, 7) == []


def test_facts_that_another_version_records_are_no_change():
    assert causes.changed('{"kernel":"1"}', '{"kernel":"1","image":"x"}') == ()


def test_events_are_what_seldom_changes():
    sessions = [
        {"gpus driver": str(int(index >= 5)), "variables X": str(index), "host": str(index % 7)}
        for index in range(12)
    ]
    assert causes.events(texts(*sessions)) == [5]
