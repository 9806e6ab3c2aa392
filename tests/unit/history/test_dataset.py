"""Sources of others with values that cannot be: each is refused by name, and the rest goes on."""

import json
import math
import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench.analysis import campaigns
from dlbench.history import add_campaign, dataset, sources
from dlbench.log.event_fields import MOST
from dlbench.records.run_record import RecordError
from dlbench.study.runs import Run
from dlbench.tables.parquet_files import TableError
from dlbench.tables.table_columns import SESSIONS
from support.history import made_campaigns, made_histories
from support.programs.in_process import dlbench

NO_OBJECTS = ("no json", "[1]", "null", "5", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}',
              "[" * 30_000)  # fmt: skip
NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1e308)
HALF = b"\xed\xa0\x80"  # of a character
HOSTILE = {
    **dict.fromkeys(("facts", "machine_facts", "fields", "meaning"), NO_OBJECTS),
    **dict.fromkeys(("mean_log", "mean", "scatter", "mean_ci95_low", "mean_ci95_high"), NUMBERS),
    **dict.fromkeys(("n", "failed", "disturbed", "missed"), (-1, 2**62)),
    **dict.fromkeys(("session", "condition", "machine", "hosts", "driver", "study"), (HALF,)),
    "started_at": (None, datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 1, 1)),
}
MORE = [
    *((name, None) for name in ("session", "machine_key", "machine_facts", "facts", "mean", "n")),
    ("mean", 0.0),
    ("facts", '{"GPU driver": null}'),
    ("facts", '{"GPU driver": ["x"]}'),
    ("machine_facts", "{}"),
    ("machine_facts", '{"nodes": [1], "gpus": [], "gpus_per_node": 0}'),
    ("machine_facts", '{"device_model": "x"}'),
]
CASES = [*((name, value) for name, values in HOSTILE.items() for value in values), *MORE]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "history"
    rates = {made_histories.fields(): [100.0, 101.0, 102.0]}
    for week in range(9):
        made_histories.add(folder, week, rates)
    return folder


@pytest.fixture
def history(sound, here):
    Path("config.yaml").write_text("{}")
    return Path(shutil.copytree(sound, "history"))


def last_file(history):
    return next(history.glob("*/*/s8-*.parquet"))


def with_value(path, column, value):
    """Write a file of a history again, without a digest, with a value in all rows of a column."""
    table = pq.read_table(path)
    kind = SESSIONS.field(column).type
    values = pa.array([value] * len(table), pa.binary() if value == HALF else None)
    if value == HALF:
        values = pa.Array.from_buffers(pa.string(), len(values), values.buffers())
    elif value is None or isinstance(value, datetime):
        values = values.cast(kind)
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, values), path)


@pytest.mark.parametrize("column", dict(CASES))
def test_a_file_with_a_value_that_cannot_be_is_refused_with_its_column(history, column):
    path = last_file(history)
    content = path.read_bytes()
    for value in (value for name, value in CASES if name == column):
        path.write_bytes(content)
        with_value(path, column, value)
        table, damaged = dataset.read(history, dataset.standings(history), SESSIONS.names)
        assert len(table) == 8, value
        (refused,) = damaged
        assert "expected" in refused.reason and str(path) in refused.reason, value
        assert value == HALF or column in refused.reason


@pytest.mark.parametrize("hostile", ["number", "pipe", "folder", "name"])
def test_commands_name_a_hostile_file_and_go_on(history, hostile):
    path = last_file(history)
    if hostile == "number":
        with_value(path, "mean_log", math.nan)
    elif hostile == "name":
        path.rename(os.fsdecode(os.fsencode(path.parent) + b"/\xff\x1b-0.parquet"))
    else:
        path.unlink()
        os.mkfifo(path) if hostile == "pipe" else path.mkdir()
    for finished in (
        dlbench("analyse-history"),
        dlbench("gate", "--allow", "missing"),
        dlbench("site"),
    ):
        text = finished.stdout + finished.stderr
        assert finished.returncode == 0 and "\x1b" not in text, text
        assert "expected" in text and (
            "\\udcff\\x1b" in text if hostile == "name" else path.name in text
        )


def test_control_characters_of_others_do_not_reach_the_terminal(history):
    facts = json.dumps({"GPU driver": "\x1b[31mred\x07"})
    for name, value in (("condition", "\x1b]0;title\x07 a"), ("facts", facts)):
        with_value(last_file(history), name, value)
    for kind in ("text", "markdown", "html", "json"):
        text = dlbench("gate", "--format", kind).stdout
        assert not set(text) & {"\x1b", "\x07"} and "a" in text
    assert "\x1b" not in dlbench("analyse-history").stderr


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("spec", {"model": {}}),
        ("spec", {"unknown": 1}),
        ("made_from", {"code": 1}),
        *(("summary", {"images_per_second": value}) for value in (*NUMBERS, "x", [])),
        *(("summary", {"started_at": value}) for value in (5, "yesterday", {})),
        *(("summary", {"metrics": value}) for value in ({}, [None], [{"name": "a"}],
          [{"name": "a", "value": 10 * MOST}], [{"name": "a", "value": 1, "unit": 5}])),
        *(("provenance", {name: value}) for name, value in (
            ("site", "x"), ("site", {"name": 5}), ("session", ["x"]), ("session", {"id": {}}),
            ("hosts", "x"), ("hosts", [None]), ("versions", {"python": []}), ("hardware", [1]),
            ("hardware", {"a": None, "b": 1}), ("hardware", {"a": {"gpus": {"kinds": [1]}}}),
            ("present", {"gpu_links": [[1]]}), ("modules", 5), ("device_model", "\ud800"),
            ("user_files", {"model": "x"}), ("container", 1), ("variables", [])))
    ],
)  # fmt: skip
def test_a_record_with_a_value_that_cannot_be_is_refused(part, value):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=3)
    sound = {
        **made_campaigns.record(run, 100.0, made_campaigns.date(1), "s"),
        "spec": run.values(),
    }
    assert campaigns.from_record(sound).numbers["images_per_second"] == 100
    with pytest.raises(RecordError, match=f"^{run.id}: .*(expected|no field of a run)"):
        campaigns.from_record(sound | {part: sound[part] | value})


def test_the_other_runs_of_a_source_enter_and_a_pipe_is_not_opened(here):
    made_campaigns.add_session("a", 1, {8: [1.0, 1.0]}, metrics=[{"name": "x", "value": "fast"}])
    made_campaigns.add_session("a", 1, {16: [2.0, 2.0, 2.0]})
    os.mkfifo(made_campaigns.archive("a", "a.zip").replace("a.zip", "b.zip"))
    for source in ("a", "a.zip"):
        receipt = add_campaign.add(sources.Source(source), sources.HISTORY)
        assert len(receipt["files"]) == 1 and len(receipt["notes"]) == 2
        assert "expected summary.metrics[0] to be" in receipt["notes"][0]
    pipe = next(Path("a/runs").glob("*/run.json"))
    pipe.unlink()
    os.mkfifo(pipe)
    assert str(pipe) in str(add_campaign.add(sources.Source("a"), Path("other"))["notes"])
    assert "expected a plain file" in dlbench("verify", "b.zip").stderr


def test_rows_that_would_be_refused_are_not_written(tmp_path):
    with pytest.raises(TableError, match="mean_log, row 1: expected"):
        made_histories.add(tmp_path, 1, {made_histories.fields(): [1e300]})
