"""Campaigns read from folders of results and from tables of runs."""

import json

import pytest

from dlbench import Error
from dlbench.analysis import campaigns, compare_runs
from dlbench.log.event_fields import STATUSES
from dlbench.records import parse_run, run_record
from dlbench.results import export_runs
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns
from support.runs.made_runs import finish, write


def test_all_forms_of_a_campaign_are_the_same(study, tmp_path):
    for run in study.runs[:3]:
        finish(run, 60)
    write(study.runs[3])
    made = [f"runs.{suffix}" for suffix in ("csv", "parquet", "json")]
    for name in made:
        export_runs.export(study, name, STATUSES)
    folder = campaigns.read("results")
    assert folder.not_ended == 1
    for name in made:
        table = campaigns.read(name)
        found = compare_runs.compare(folder, table)
        assert all(pair.compared.ratio == pytest.approx(1) for pair in found.pairs), name
        assert (found.unmatched, found.not_joined) == ((), ()), name
        assert campaigns.read(name).runs[0].numbers["images_per_second"] > 0


def test_disturbed_runs_are_known_from_records_and_from_tables(here):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=100)
    finish(run, 10, made_from={"code": "0"})
    place = run_record.folder(run.id) / "run.json"
    content = json.loads(place.read_text())
    del content["record_sha256"]
    for reason in (None, "others used 0.98 of 2 cores"):
        content["summary"]["disturbed"] = reason
        place.write_text(json.dumps({**content, "record_sha256": run_record.digest(content)}))
        rows = [{"run_id": run.id, "status": "unstable", **run.values(), "disturbed": reason}]
        (here / "runs.json").write_text(json.dumps(rows))
        parquet_files.write(here / "runs.parquet", rows, table_columns.RUNS)
        for name in ("results", "runs.parquet", "runs.json"):
            (found,) = campaigns.read(here / name).runs
            assert found.disturbed == bool(reason), name


def test_the_throughput_of_texts_is_known_in_tokens_from_records_too(here):
    run = Run(model="lstm_ptb", dataset="synthetic", batch_per_device=8, steps=100)
    path = write(run, 60, made_from={"code": "0"})
    path.write_text(path.read_text().replace('"spec":', '"item_shape": [20], "spec":', 1))
    parse_run.parse(run, path, path.with_name("run.json"))
    (found,) = campaigns.read(here / "results").runs
    rate = found.numbers["images_per_second"]
    assert found.numbers["tokens_per_second"] == pytest.approx(20 * rate)


def test_a_run_that_contradicts_itself_has_not_finished_by_its_record_nor_by_a_table(here):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=100)
    finish(run, 10, made_from={"code": "0"})
    place = run_record.folder(run.id) / "run.json"
    content = json.loads(place.read_text())
    del content["record_sha256"]
    content["summary"]["images_per_second"] *= 8
    place.write_text(json.dumps({**content, "record_sha256": run_record.digest(content)}))
    row = {"run_id": run.id, "status": "ok", **run.values(), "global_batch": run.global_batch}
    row |= {n: content["summary"][n] for n in ("images_per_second", "step_time_mean_s")}
    (here / "runs.json").write_text(json.dumps([row]))
    for source in ("results", "runs.json"):
        campaign = campaigns.read(here / source)
        assert campaign.finished() == []
        assert campaign.runs[0].status == campaigns.CONTRADICTORY
        assert campaign.runs[0].numbers.get("images_per_second") is None
    with pytest.raises(Error, match="no run in common has the metric"):
        compare_runs.compare(campaign, campaign)
