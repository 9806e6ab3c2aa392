"""Histories as a whole: from records to findings, and queries of the dataset."""

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dlbench.history import add_campaign, analyse_history, dataset
from dlbench.history.sources import Source
from support.history import made_campaigns as made

HISTORY = Path("history")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def add(weeks, loss_from=99, site="here", history=HISTORY, rates=1000, **facts):
    """Add a campaign a week; from one on, all conditions lose 5 % and have another driver."""
    chance = np.random.default_rng(len(site))
    for week in weeks:
        level = rates * (0.95 if week >= loss_from else 1)
        drawn = {b: (b * level * np.exp(chance.normal(0, 0.005, 3))).tolist() for b in (8, 16, 32)}
        driver = "560.35" if week >= loss_from else "550.54"
        made.add_session(f"{site}{week}", week, drawn, site=site, **({"driver": driver} | facts))
        receipt = add_campaign.add(Source(f"{site}{week}"), history)
        assert not receipt["refused"]


def analyse(**machines):
    return analyse_history.analyse(HISTORY, machines)


def test_a_loss_with_a_new_driver_is_one_finding_with_its_cause():
    add(range(14), loss_from=8, gpus=4)
    history = analyse()
    (row,) = history.findings
    assert (row["direction"], row["conditions"], row["conditions_in_all"]) == ("loss", 3, 3)
    assert row["ratio_ci95_low"] < 0.95 < row["ratio_ci95_high"]
    assert f"{row['changed_before']:%Y-%m-%d}" == "2026-03-02"
    assert "likeliest first: gpus driver 550.54 -> 560.35" in row["text"]
    assert len(history.changes) == 3
    assert history.remarks == []


def test_what_conditions_share_is_of_one_metric(tmp_path):
    chance = np.random.default_rng(5)
    for week in range(14):
        latency_us = (7.35 if week >= 8 else 7) * np.exp(chance.normal(0, 0.002))
        metrics = [{"name": "latency_us", "value": latency_us, "unit": "us", "better": "lower"}]
        add([week], loss_from=8, metrics=metrics)
    rates, latencies = sorted(analyse().findings, key=lambda row: row["ratio"])
    assert [row["direction"] for row in (rates, latencies)] == ["loss", "loss"]
    assert rates["ratio_ci95_low"] < 0.95 < rates["ratio_ci95_high"]
    assert latencies["ratio"] == pytest.approx(1.05, abs=0.005)
    for row, metric in ((rates, "images_per_second"), (latencies, "latency_us")):
        assert (row["conditions"], row["conditions_in_all"]) == (3, 3)
        assert f"in 3 of 3 conditions, {metric}, between" in row["text"]


@pytest.mark.ci
def test_of_two_sites_with_the_same_machine_the_one_with_the_new_driver_is_named():
    add(range(12), loss_from=6, site="north")
    add(range(12), site="south", history=Path("theirs"))
    shutil.copytree("theirs", HISTORY, dirs_exist_ok=True)  # as sites merge their histories
    history = analyse()
    assert [row["site"] for row in history.findings] == ["north"]
    assert {row["site"] for row in history.campaigns} == {"north", "south"}


def test_a_change_of_nothing_that_is_recorded_says_so():
    add(range(6))
    add(range(6, 12), rates=1100, driver="550.54")
    (row,) = analyse().findings
    assert row["text"].startswith("gain of +10.0 % (+")
    assert "nothing that is recorded changed then" in row["text"]


def test_what_changed_in_the_newest_session_is_named_before_its_effect_can_be_known():
    add(range(5))
    add([5], driver="560.35")
    history = analyse()
    assert history.findings == []
    assert [line.partition(". ")[0] for line in history.news] == [
        f"2026-02-09, {made.session_id(5)}: changed: gpus driver 550.54 -> 560.35"
    ]
    assert history.news[0].endswith("can be confirmed from 3 sessions on (1 now)")
    assert history.lines()[1:] == history.news


def test_keys_that_the_config_calls_one_machine_are_one_series():
    add(range(6), gpus=8)
    add(range(6, 12), gpus=4, rates=900)
    history = analyse()
    assert history.findings == []
    keys = sorted({row["machine_id"] for row in history.campaigns})
    history = analyse(**{"big node": keys})
    assert len(history.findings) == 1
    assert history.findings[0]["machine_id"] == "big node"


def test_conditions_of_one_name_with_other_data_are_kept_apart():
    add(range(5), data="a" * 64)
    add(range(5, 10), data="b" * 64, rates=700)
    history = analyse()
    assert history.findings == []
    assert "one name and several meanings, which are kept apart" in history.remarks[0]


def test_early_records_that_do_not_say_what_data_they_had_stay_in_the_series():
    add(range(5))
    add(range(5, 10), data="b" * 64, rates=700)
    history = analyse()
    assert history.remarks == [] and len(history.findings) == 1


def test_withdrawn_and_damaged_sessions_do_not_count_and_are_listed():
    add(range(4))
    files = [one.file for one in dataset.standings(HISTORY)]
    (HISTORY / files[0]).with_suffix(".withdrawn").write_text("wrong BIOS")
    content = bytearray((HISTORY / files[1]).read_bytes())
    content[200] ^= 1
    (HISTORY / files[1]).write_bytes(content)
    history = analyse()
    assert [row["standing"] for row in history.campaigns] == [
        "withdrawn",
        "damaged",
        *["current"] * 2,
    ]
    assert len(history.remarks) == 1 and "damaged" in history.remarks[0]


def test_an_empty_history_has_empty_tables():
    analyse_history.write(analyse(), Path("out"))
    assert analyse().lines() == ["0 sessions of the history count; 0 findings"]
    assert Path("out/findings.csv").read_text().startswith('"finding"')


def test_the_queries_of_the_page_run_in_duckdb(monkeypatch):
    add(range(10), loss_from=5)
    analyse_history.write(analyse(), Path("results/history"))
    page = (Path(__file__).parents[3] / "docs" / "history.md").read_text()
    queries = [part.partition("```")[0] for part in page.split("```sql\n")[1:]]
    assert len(queries) >= 2
    for query in queries:
        assert duckdb.sql(f"select count(*) from ({query})").fetchall()[0][0]
