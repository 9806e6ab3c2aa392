"""import_logs: unreadable files are listed, all others are imported, and --kind chooses."""

import random

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.imports import finding, import_logs, kinds
from dlbench.imports.log_file import LogFile
from dlbench.tables import parquet_files, run_columns, table_columns
from support.logs.event_files import event, event_file, scalar
from support.logs.log_samples import KINDS, mxnet, tf_cnn_benchmarks
from support.programs import in_process

MIXED = mxnet(0.125, 20) + KINDS["mlperf"](0.25, 20)  # as MLPerf's submissions with MXNet print
OUTPUT = "x" * 60 + "\n"


@pytest.fixture
def logs(tmp_path):
    """A folder with a log that two importers know, between two that one knows."""
    both = (tf_cnn_benchmarks(time_s, 5) for time_s in (0.5, 0.25))
    for name, content in zip("azm", (*both, MIXED), strict=True):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "log").write_text(content)
    return tmp_path / "logs"


def kinds_of(made):
    return [row["timing_source"] for row in made.rows]


def test_a_log_that_several_importers_know_is_named_and_the_others_are_imported(logs):
    made = import_logs.import_paths([logs])
    assert kinds_of(made) == ["tf_cnn_benchmarks"] * 2
    assert made.unread == ["m/log"]
    (found,) = made.left_out
    assert found == ("m/log", "a log of several kinds: mlperf, mxnet; choose one with --kind")
    assert made.summary().endswith("2 runs of 3 files; 1 log could not be read")


@pytest.mark.parametrize(("kind", "rate"), [("mlperf", 256.0), ("mxnet", 512.0)])
def test_the_kind_that_is_asked_for_counts_where_several_match(logs, kind, rate):
    made = import_logs.import_paths([logs], kind=kind)
    assert kinds_of(made) == ["tf_cnn_benchmarks", kind, "tf_cnn_benchmarks"]
    assert made.rows[1]["images_per_second"] == pytest.approx(rate)
    assert made.left_out == []


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"tensorboard"}))
def test_a_log_that_begins_with_other_text_is_known_if_its_program_prints_it(tmp_path, kind):
    content = KINDS[kind](0.125, 12)
    before = OUTPUT * 20_000  # 1.2 MB
    (tmp_path / "log").write_text(before + content)
    candidate = finding.Candidate(tmp_path / "log", "log", True)
    _, found, _ = finding.choose_importer(candidate)
    printed = hasattr(kinds.load(kind), "LINE_MARKS")
    assert found == (kind if printed else None)
    (tmp_path / "log").write_bytes((before + content).encode("utf-16"))
    assert finding.choose_importer(candidate)[1] == found


def test_a_log_is_looked_for_as_far_as_a_stated_limit_unless_its_kind_is_asked_for(
    logs, monkeypatch
):
    monkeypatch.setattr(finding, "SEARCHED_BYTES", 2**20)
    for name, lines in (("near", 15_000), ("far", 40_000)):
        (logs / name).write_text(OUTPUT * lines + tf_cnn_benchmarks(0.125, 5))
    made = import_logs.import_paths([logs])
    assert len(made.rows) == 3 and ("far", finding.UNKNOWN) in made.left_out
    with pytest.raises(Error, match="by its first 64 MiB"):
        import_logs.import_paths([logs / "far"])
    (row,) = import_logs.import_paths([logs / "far"], kind="tf_cnn_benchmarks").rows
    assert row["images_per_second"] == 512
    (logs / "README").write_text("hello\n")
    made = import_logs.import_paths([logs], kind="tf_cnn_benchmarks")
    assert (len(made.rows), made.unread) == (4, ["m/log"])
    assert ("README", finding.UNKNOWN) in made.left_out


def test_what_is_no_text_is_not_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(LogFile, "blocks", lambda log: pytest.fail("searched"))
    (tmp_path / "weights").write_bytes(random.Random(1).randbytes(2**20))
    candidate = finding.Candidate(tmp_path / "weights", "weights", True)
    assert finding.choose_importer(candidate)[1:] == (None, finding.UNKNOWN)


def test_an_importer_that_fails_is_about_its_log_alone(logs, tmp_path):
    (tmp_path / "own").mkdir()
    code = "FAMILY = None\ndef recognise(log): return log.head.startswith(b'mine')\n"
    (tmp_path / "own" / "mine.py").write_text(f"{code}def read(log): yield {{}}['rate']\n")
    (logs / "a" / "mine").write_text("mine\n")
    plugins.add_user_folder("importers", tmp_path / "own")
    try:
        made = import_logs.import_paths([logs], kind="mxnet")
    finally:
        plugins.add_user_folder("importers")
    assert len(made.rows) == 3
    assert made.left_out == [("a/mine", "the importer mine failed: KeyError: 'rate'")]
    with pytest.raises(Error, match=r"no importer mlpref.*mlperf"):
        import_logs.import_paths([logs], kind="mlpref")


def test_a_run_that_is_not_as_was_said_is_named_and_the_others_are_imported(logs):
    made = import_logs.import_paths([logs], {"framework": "tensorflow"}, kind="mxnet")
    assert len(made.rows) == 2
    assert "framework is tensorflow by --fields, mxnet by the log" in dict(made.left_out)["m/log"]
    made = import_logs.import_paths([logs], path_fields="a/{repeat}", kind="mxnet")
    assert made.rows == [] and len(made.unread) == 3


def test_the_exit_code_says_that_a_log_could_not_be_read(logs, tmp_path):
    table = tmp_path / "runs.parquet"
    done = program(logs, "--output", table)
    assert done.returncode == 3
    assert "left out: m/log: a log of several kinds" in done.stderr
    assert len(parquet_files.read(table, table_columns.RUNS)) == 2
    assert program(logs, "--output", table, "--kind", "mxnet").returncode == 0
    # Also of files that were given one by one.
    done = program(logs / "a/log", logs / "m/log", "--output", table)
    assert (done.returncode, len(parquet_files.read(table, table_columns.RUNS))) == (3, 1)


def test_what_keras_writes_into_train_and_validation_is_one_run(tmp_path):
    for folder, losses in (("train", (2.0, 1.0)), ("validation", (2.5, 1.5))):
        place = tmp_path / "logs" / "fit" / folder
        place.mkdir(parents=True)
        events = (event(5.0 + n, n, scalar("epoch_loss", x)) for n, x in enumerate(losses))
        (place / "events.out.tfevents.1.host.v2").write_bytes(event_file(*events))
    made = import_logs.import_paths([tmp_path / "logs"], outputs={"evals": tmp_path / "evals"})
    (row,) = made.rows
    assert row["final_loss"] == 1.0
    assert "train/events" in row["source"] and "validation/events" in row["source"]
    assert "is taken" not in row["notes"]
    evals = parquet_files.read(tmp_path / "evals", run_columns.EVALS).to_pylist()
    assert [(e["epoch"], e["loss"]) for e in evals] == [(1, 2.5), (2, 1.5)]
    assert made.left_out == []
    # Other files in folders of these names are runs of their own.
    for folder, time_s in (("train", 0.5), ("validation", 0.25)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log").write_text(tf_cnn_benchmarks(time_s, 5))
    assert len(import_logs.import_paths([tmp_path / f for f in ("train", "validation")]).rows) == 2


def program(*arguments):
    return in_process.dlbench("import", *arguments)
