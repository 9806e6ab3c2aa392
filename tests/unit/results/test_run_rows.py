"""run_rows: the row of a run in the table of runs is what its record says."""

from types import SimpleNamespace

import pytest

from dlbench.analysis import run_tables
from dlbench.common.run_fields import FIELDS
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import run_record
from dlbench.results import run_rows
from dlbench.study import other_trainers
from dlbench.tables import table_columns
from support.runs import parsed_runs

STUDY = SimpleNamespace(name="s", site={"name": "here"}, must_reach={}, with_found_batch=None)


def record_of(folder, **fields):
    folder.mkdir()
    parsed_runs.write(folder, [0.5] * 4)
    record = parsed_runs.parsed(folder)
    return record | {"spec": record["spec"] | fields}


def test_settings_of_a_row_are_those_of_the_record(tmp_path):
    row = run_rows.row(record_of(tmp_path / "run"), STUDY, "cpu", tmp_path)
    known = [name for name in FIELDS if name in table_columns.RUNS.names]
    assert len(known) > 40
    assert [row[name] for name in known] == [getattr(parsed_runs.RUN, name) for name in known]
    assert (row["run_id"], row["devices"], row["global_batch"]) == (parsed_runs.RUN.id, 1, 32)
    assert (row["study"], row["site"], row["device_kind"]) == ("s", "here", "cpu")
    # What other settings make of a run follows from its record.
    row = run_rows.row(record_of(tmp_path / "2", devices_per_node=2, seed=7), STUDY, "", tmp_path)
    assert (row["devices"], row["global_batch"], row["seed"]) == (2, 64, 7)
    assert row["run_id"] != parsed_runs.RUN.id
    with pytest.raises(TypeError, match="colour"):
        run_rows.row(record_of(tmp_path / "no", colour="red"), STUDY, "cpu", tmp_path)


def test_errors_of_gpus_that_the_kernel_logged_are_counted_and_noted(tmp_path):
    lost = {"gpu": "0000:3b:00", "xid": 79, "message": "GPU has fallen off the bus."}
    for rank, xids in enumerate(([], [lost, lost, {**lost, "xid": 31, "message": ""}])):
        parsed_runs.write(tmp_path, [0.5] * 3, rank)
        log = EventLog(event_log.rank_path(tmp_path / "train.jsonl", rank))
        log.write("sample", t_s=1.0, **({"xids": xids} if xids else {}))
        log.close()
    record = parsed_runs.parsed(tmp_path, parsed_runs.TWO)
    run_record.check(record)
    assert run_rows.row(record, STUDY, "gpu", tmp_path)["notes"] == (
        "the kernel logged errors of its GPUs: 2 x Xid 79 of GPU 0000:3b:00 on its node (GPU has "
        "fallen off the bus.), 1 x Xid 31 of GPU 0000:3b:00 on its node"
    )
    assert [*run_tables.sample_rows({"event": "sample", "t_s": 1.0, "xids": xids})] == [
        {"t_s": 1.0}
    ]


@pytest.mark.parametrize(("status", "judged"), [("failed", True), ("skipped", False)])
def test_a_run_that_was_skipped_misses_no_learning_gate(tmp_path, status, judged):
    record = record_of(tmp_path / "run") | {"status": status}
    study = SimpleNamespace(**vars(STUDY) | {"must_reach": {record["run_id"]: {"top1": 0.9}}})
    row = run_rows.row(record, study, "cpu", tmp_path)
    expected = "missed: top1 not evaluated, expected at least 0.9" if judged else None
    assert row["learning_gate"] == expected


@pytest.mark.parametrize(
    ("model", "dataset", "expected"),
    [
        ("gpt_tiny", "bytes", 3.0),
        ("gpt_tiny", "text_books", 3.0),
        ("lstm_ptb", "ptb", 3 / 5.42),
        ("bert_base", "bytes", None),  # of masked tokens alone
        ("gone", "bytes", None),
        ("gpt_tiny", "gone", None),
    ],
)
def test_bits_per_byte_are_known_where_the_bytes_of_a_token_are(tmp_path, model, dataset, expected):
    record = record_of(tmp_path / "run", model=model, dataset=dataset)
    record["summary"]["perplexity"] = 8.0
    found = run_rows.row(record, STUDY, "cpu", tmp_path)["bits_per_byte"]
    assert found == (expected and pytest.approx(expected))


@pytest.mark.parametrize(
    ("token_bytes", "perplexity", "expected"),
    [(4, 16.0, 1.0), ("{width} / 2", 16.0, 0.5), (None, 16.0, None), (None, 0.0, None)],
)
def test_the_bytes_of_another_programs_tokens_are_those_that_the_config_says(
    tmp_path, token_bytes, perplexity, expected
):
    theirs = {"command": ["true"], "log": "auto", "bytes_per_token": token_bytes}
    other_trainers.register({"theirs": theirs}, ["width"])
    record = record_of(tmp_path / "run", trainer="theirs", trainer_parameters="width=16")
    record["summary"]["perplexity"] = perplexity
    assert run_rows.row(record, STUDY, "cpu", tmp_path)["bits_per_byte"] == expected
    other_trainers.register({})
