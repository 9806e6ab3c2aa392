"""import_logs: the rows of files, and the messages for refused files."""

import gzip
import os
import random
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.files import files_below
from dlbench.imports import baseline_importers, import_logs, kinds, table_rows
from dlbench.imports.log_file import LogFile
from dlbench.tables import parquet_files, table_columns
from support.logs import log_samples
from support.logs.event_files import event, event_file, scalar
from support.logs.log_samples import KINDS, mxnet, tf_cnn_benchmarks
from support.machines.paths import REPOSITORY
from support.programs import in_process

LOG = tf_cnn_benchmarks(0.125, 20)


def write(path, content=LOG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def one(*paths, **options):
    (row,) = import_logs.import_paths(paths, **options).rows
    return row


@pytest.mark.parametrize("changed", [gzip.compress, lambda log: b"\xff\xfe\x80 caf\xe9\n" + log])
def test_a_log_is_read_however_it_was_stored(tmp_path, changed):
    row = one(write(tmp_path / "log", changed(LOG.encode())))
    assert (row["images_per_second"], row["step_time_mean_s"]) == (512, 0.125)
    assert (row["steps_measured"], row["model"]) == (20, "resnet50")


def test_a_log_by_another_name_or_packed_is_the_same_run(tmp_path):
    write(tmp_path / "a" / "log.txt")
    write(tmp_path / "b" / "other.gz", gzip.compress(LOG.encode()))
    made = import_logs.import_paths([tmp_path])
    assert len(made.rows) == 1
    assert made.left_out == [("b/other.gz", "the same log as a/log.txt")]
    again = one(tmp_path / "b" / "other.gz")
    assert again["run_id"] == made.rows[0]["run_id"]
    assert again["run_id"].endswith(f"-{made.rows[0]['log_sha256'][:10]}")


def test_a_log_whose_items_are_sequences_by_the_users_word_has_tokens_a_second(tmp_path):
    path = write(tmp_path / "log", KINDS["mxnet"](0.125, 20))
    row = one(path, fields={"item_shape": "128"})
    tokens = 128 * row["images_per_second"]
    assert (row["item"], row["tokens_per_second"]) == ("sequence", tokens)
    row = one(path, fields={"item_shape": "224x224x3"})
    assert (row["item"], row.get("tokens_per_second")) == ("image", None)
    assert "item" not in one(path)


def test_a_packed_log_that_was_cut_short_is_refused_with_the_reason(tmp_path):
    packed = gzip.compress(LOG.encode())
    path = write(tmp_path / "log.gz", packed[: len(packed) * 3 // 4])
    with pytest.raises(Error, match=r"log\.gz: (damaged gzip|empty, or damaged)"):
        import_logs.import_paths([path])
    made = import_logs.import_paths([tmp_path])
    assert made.rows == []
    assert made.left_out[0][0] == "log.gz"


def test_a_file_that_no_importer_knows_is_named_and_is_an_error_alone(tmp_path):
    write(tmp_path / "notes.txt", "hello\n")
    write(tmp_path / "empty", "")
    write(tmp_path / "log")
    made = import_logs.import_paths([tmp_path])
    empty = "empty, or damaged from its beginning"
    assert dict(made.left_out) == {"notes.txt": kinds.UNKNOWN, "empty": empty}
    assert made.summary().endswith("1 run of 3 files")
    with pytest.raises(Error, match=r"notes\.txt: no importer knows it"):
        import_logs.import_paths([tmp_path / "notes.txt"])
    with pytest.raises(Error, match="no such file"):
        import_logs.import_paths([tmp_path / "nothing"])


def test_hidden_files_are_skipped_and_links_in_circles_end(tmp_path):
    write(tmp_path / "logs" / "run" / "log")
    write(tmp_path / "logs" / ".hidden" / "log", tf_cnn_benchmarks(0.5, 5))
    write(tmp_path / "logs" / ".log", tf_cnn_benchmarks(0.5, 6))
    (tmp_path / "logs" / "run" / "circle").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "logs" / "pipe")
    made = import_logs.import_paths([tmp_path / "logs"])
    assert [row["source"] for row in made.rows] == [f"run/log:1-{LOG.count(chr(10))}"]
    assert sorted(name for name, _ in made.left_out) == ["gone", "pipe"]


def test_links_that_lead_out_of_a_folder_are_named_and_not_read_unless_they_are_given(tmp_path):
    logs, far = tmp_path / "logs", tmp_path / "far"
    write(logs / "run" / "log")
    write(far / "log", tf_cnn_benchmarks(0.5, 5))
    write(far / "more" / "log", tf_cnn_benchmarks(0.25, 5))
    (logs / "kmsg").symlink_to("/proc/kmsg")  # a plain file that never ends
    (logs / "run" / "beside").symlink_to(far / "log")
    (logs / "more").symlink_to(far / "more")
    (logs / "same").symlink_to(logs / "run")
    (tmp_path / "by_link").symlink_to(logs)
    for given in (logs, tmp_path / "by_link"):
        made = import_logs.import_paths([given])
        assert len(made.rows) == 1
        outside = {"kmsg": kinds.LEADS_OUT, "more": kinds.LEADS_OUT}
        assert dict(made.left_out) == outside | {"run/beside": kinds.LEADS_OUT}
    assert len(import_logs.import_paths([logs, logs / "more", logs / "run" / "beside"]).rows) == 3
    with pytest.raises(Error, match="nothing was imported: no log of"):
        baseline_importers.import_baselines([logs], tmp_path / "out", {"site": "far"})
    assert files_below(tmp_path / "by_link") == [tmp_path / "by_link/run/log"]


def test_several_logs_of_a_kind_in_one_folder_are_several_runs(tmp_path):
    write(tmp_path / "a.log", tf_cnn_benchmarks(0.3, 20))
    write(tmp_path / "b.log", tf_cnn_benchmarks(0.125, 5))
    write(tmp_path / "metric.log", log_samples.tf_cnn_metric_log(0.3, 20))
    made = import_logs.import_paths([tmp_path])
    assert len(made.rows) == 3
    assert all("which logs of its folder go with it is unknown" in r["notes"] for r in made.rows)
    # But two that are named beside one another are one run.
    both = one(tmp_path / "metric.log", tmp_path / "a.log")
    assert both["timing_source"] == "tf_cnn_metric_log"


def test_what_ran_beside_a_run_joins_it_and_no_other(tmp_path):
    gpus = KINDS["gpu_counters"](0.125, 20)
    folders = [tmp_path / name for name in ("one", "two", "none")]
    for folder in folders:
        write(folder / "gpus.csv", gpus)
    write(tmp_path / "one" / "log")
    write(tmp_path / "two" / "a.log", tf_cnn_benchmarks(0.5, 5))
    write(tmp_path / "two" / "b.log", tf_cnn_benchmarks(0.5, 6))
    outputs = {"samples": tmp_path / "samples.parquet"}
    made = import_logs.import_paths(folders, outputs=outputs)
    first = made.rows[0]
    assert "gpus.csv" in first["source"]
    assert first["log_sha256"] == one(tmp_path / "one" / "log")["log_sha256"]
    samples = pq.read_table(outputs["samples"])
    assert set(samples["run_id"].to_pylist()) == {first["run_id"]}
    assert [(name, why.rpartition("; ")[2]) for name, why in made.left_out] == [
        ("gpus.csv", "the folder has 2 runs"),
        ("gpus.csv", "the folder has no runs"),
    ]


def test_fields_say_what_the_log_does_not(tmp_path):
    row = one(write(tmp_path / "log"), fields={"site": "far", "repeat": 2, "runtime": "udocker"})
    assert (row["site"], row["repeat"], row["runtime"]) == ("far", 2, "udocker")
    assert row["run_id"].startswith("resnet50-synthetic-b64-parameter_server-x1-udocker-r2-")


def test_a_field_that_the_log_says_otherwise_is_refused_naming_both(tmp_path):
    path = write(tmp_path / "log")
    assert one(path, fields={"devices": 1, "model": "resnet50"})["devices"] == 1
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("runs", "steps")}
    with pytest.raises(Error, match=r"devices is 2 by --fields, 1 by the log \(log:1-"):
        import_logs.import_paths([path], {"devices": 2}, outputs=outputs)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]  # nothing was written


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modell": "x"}, "no column modell that could be given .did you mean 'model'"),
        ({"run_id": "x"}, "no column run_id"),
        ({"devices": "four"}, "devices: expected a value of type int32, found 'four'"),
        ({"devices": 1.5}, "devices: expected"),
        ({"site": 3}, "site: expected"),
        ([], "expected a JSON object"),
    ],
)
def test_fields_that_are_no_columns_or_values_are_refused(tmp_path, fields, message):
    with pytest.raises(Error, match=message):
        import_logs.import_paths([write(tmp_path / "log")], fields or [""])


def test_fields_are_taken_from_paths(tmp_path):
    write(tmp_path / "lsdf_udocker_x" / "synthetic_resnet50_1_gpu" / "3" / "log")
    pattern = "{site}_{runtime}_{_}/{dataset}_{model}_{devices}_gpu/{repeat}"
    row = one(tmp_path, path_fields=pattern)
    assert (row["site"], row["runtime"], row["repeat"]) == ("lsdf", "udocker", 3)
    again = write(tmp_path / "again" / "lenet5" / "log").parents[1]
    made = import_logs.import_paths([again], path_fields="{model}")
    assert made.rows == []
    assert "model is lenet5 by --path-fields, resnet50 by the log" in made.left_out[0][1]

    for pattern, message in (
        ("{modell}", "did you mean 'model'"),
        ("{model}/{model}", "model occurs twice"),
        ("{model", "a brace lacks its partner"),
    ):
        with pytest.raises(Error, match=message):
            import_logs.import_paths([again], path_fields=pattern)


@pytest.mark.parametrize(("at_once", "groups"), [(1000, [5, 20]), (8, [5, 8, 8, 4])])
def test_tables_have_a_row_group_for_each_run_or_piece_and_our_schemas(
    tmp_path, monkeypatch, at_once, groups
):
    monkeypatch.setattr(table_rows, "ROWS_AT_ONCE", at_once)
    write(tmp_path / "logs" / "a" / "log", tf_cnn_benchmarks(0.5, 5))
    write(tmp_path / "logs" / "b" / "log", tf_cnn_benchmarks(0.125, 20))
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("runs", "steps", "evals", "samples")}
    made = import_logs.import_paths([tmp_path / "logs"], name="far", outputs=outputs)
    ids = [row["run_id"] for row in made.rows]
    runs = parquet_files.read(outputs["runs"], table_columns.RUNS).to_pylist()
    assert [(row["run_id"], row["study"]) for row in runs] == [(ids[0], "far"), (ids[1], "far")]
    found = pq.read_metadata(outputs["steps"])
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == groups
    steps = parquet_files.read(outputs["steps"], table_columns.STEPS, ids[1])
    assert steps["step"].to_pylist() == list(range(1, 21))
    assert sum(steps["window_steps"].drop_null().to_pylist()) == 20
    assert len(parquet_files.read(outputs["samples"], table_columns.SAMPLES)) == 0


def test_a_table_of_ours_passes_through_and_its_runs_are_not_taken_twice(tmp_path):
    log = write(tmp_path / "logs" / "log")
    table = tmp_path / "tables" / "runs.parquet"
    (row,) = import_logs.import_paths([log], {"site": "far"}, outputs={"runs": table}).rows
    passed = one(table)
    assert passed["run_id"] == row["run_id"]
    assert passed["images_per_second"] == row["images_per_second"]
    made = import_logs.import_paths([table, log])
    assert len(made.rows) == 1
    assert "the same" in made.left_out[0][1]
    with pytest.raises(Error, match="site is near by --fields, far by the table"):
        import_logs.import_paths([table], {"site": "near"})


def test_one_run_of_a_folder_is_read_for_who_wants_no_tables(tmp_path):
    write(tmp_path / "printed.log")
    write(tmp_path / "gpus.csv", KINDS["gpu_counters"](0.125, 20))
    for kind in ("auto", "tf_cnn_benchmarks"):
        run = import_logs.read_run(tmp_path, kind)
        assert (run.kind, run.status) == ("tf_cnn_benchmarks", "ok")
        assert run.columns["images_per_second"] == 512
        assert run.steps.step_time_s[0] == 0.125
        assert run.samples
    with pytest.raises(Error, match="one run with a log of kind mlperf, found 0"):
        import_logs.read_run(tmp_path, "mlperf")
    write(tmp_path / "other.log", tf_cnn_benchmarks(0.5, 5))
    with pytest.raises(Error, match="expected one run, found 2"):
        import_logs.read_run(tmp_path)


def test_the_program_writes_tables_and_says_what_was_left_out(tmp_path):
    write(tmp_path / "logs" / "log")
    write(tmp_path / "logs" / "README", "hello\n")
    output = tmp_path / "runs.parquet"
    done = program(tmp_path / "logs", "--output", output, "--fields", '{"site": "far"}')
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"left out: README: {kinds.UNKNOWN}", "1 run of 2 files"]
    assert pq.read_table(output, columns=["site"]).to_pylist() == [{"site": "far"}]


def test_the_program_says_why_nothing_can_be_imported_and_writes_no_table(tmp_path):
    write(tmp_path / "logs" / "README", "hello\n")
    outputs = ["--output", tmp_path / "runs.parquet", "--steps", tmp_path / "steps.parquet"]
    done = program(tmp_path / "logs", *outputs)
    assert done.returncode == 2
    assert "error: nothing was imported" in done.stderr.splitlines()
    assert f"left out: README: {kinds.UNKNOWN}" in done.stderr.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    done = program(tmp_path / "logs", "--output", tmp_path / "runs.parquet", "--fields", "{")
    assert done.returncode == 2
    assert "not JSON" in done.stderr


def test_runs_and_baselines_are_not_imported_at_once(tmp_path):
    done = program(tmp_path, "--output", tmp_path / "a", "--baselines", tmp_path / "b")
    assert done.returncode == 2
    assert "expected --output or --baselines, not both" in done.stderr


def test_the_program_lists_every_kind_with_what_it_is():
    listed = [line.split() for line in program("--list").stdout.splitlines()]
    names = [*kinds.names(), *plugins.names("baseline_importers")]
    assert [words[0] for words in listed] == names
    assert all(len(words) > 2 for words in listed)


def test_an_import_is_called_by_its_name_or_its_folder(tmp_path):
    log, table = write(tmp_path / "kit" / "log.txt"), tmp_path / "runs.parquet"
    for arguments, name in (([log.parent], "kit"), ([log], "log"), ([log, "--name=far"], "far")):
        assert program(*arguments, "--output", table).returncode == 0
        runs = parquet_files.read(table, table_columns.RUNS)
        assert runs["study"].to_pylist() == [name]


def program(*arguments):
    return in_process.dlbench("import", *arguments)


def test_importing_a_log_as_a_program_loads_no_scipy_and_no_snakemake(tmp_path):
    program = REPOSITORY / "workflow_scripts/dlbench"
    code = (
        "import atexit, runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2];"
        "atexit.register(lambda: print(*sys.modules));"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, program.parent, program, "import"]
    command += [write(tmp_path / "log"), f"--output={tmp_path}/runs", f"--steps={tmp_path}/steps"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "pyarrow.parquet" in loaded
    assert not {"scipy", "snakemake", "jinja2"} & set(loaded)


# Logs that cannot be read, and kinds that are asked for

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
    candidate = kinds.Candidate(tmp_path / "log", "log", True)
    _, found, _ = kinds.choose_importer(candidate)
    printed = hasattr(kinds.load(kind), "LINE_MARKS")
    assert found == (kind if printed else None)
    (tmp_path / "log").write_bytes((before + content).encode("utf-16"))
    assert kinds.choose_importer(candidate)[1] == found


def test_a_log_is_looked_for_as_far_as_a_stated_limit_unless_its_kind_is_asked_for(
    logs, monkeypatch
):
    monkeypatch.setattr(kinds, "SEARCHED_BYTES", 2**20)
    for name, lines in (("near", 15_000), ("far", 40_000)):
        (logs / name).write_text(OUTPUT * lines + tf_cnn_benchmarks(0.125, 5))
    made = import_logs.import_paths([logs])
    assert len(made.rows) == 3
    assert ("far", f"{kinds.UNKNOWN} by its first 1 MiB") in made.left_out
    with pytest.raises(Error, match="no importer knows it by its first 1 MiB; for patterns of yo"):
        import_logs.import_paths([logs / "far"])
    (row,) = import_logs.import_paths([logs / "far"], kind="tf_cnn_benchmarks").rows
    assert row["images_per_second"] == 512
    (logs / "README").write_text("hello\n")
    made = import_logs.import_paths([logs], kind="tf_cnn_benchmarks")
    assert (len(made.rows), made.unread) == (4, ["m/log"])
    assert ("README", kinds.UNKNOWN) in made.left_out


def test_what_is_no_text_is_not_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(LogFile, "blocks", lambda log: pytest.fail("searched"))
    (tmp_path / "weights").write_bytes(random.Random(1).randbytes(2**20))
    candidate = kinds.Candidate(tmp_path / "weights", "weights", True)
    assert kinds.choose_importer(candidate)[1:] == (None, kinds.UNKNOWN)


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
    evals = parquet_files.read(tmp_path / "evals", table_columns.EVALS).to_pylist()
    assert [(e["epoch"], e["loss"]) for e in evals] == [(1, 2.5), (2, 1.5)]
    assert made.left_out == []
    # Other files in folders of these names are runs of their own.
    for folder, time_s in (("train", 0.5), ("validation", 0.25)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log").write_text(tf_cnn_benchmarks(time_s, 5))
    assert len(import_logs.import_paths([tmp_path / f for f in ("train", "validation")]).rows) == 2
