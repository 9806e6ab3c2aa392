"""Runs in TensorBoard: it reads back the values of the logs."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util import tensor_util

from dlbench import Error
from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog
from dlbench.records import parse_run
from dlbench.results import export_tensorboard
from dlbench.study.runs import Run

REPOSITORY = Path(__file__).parents[2]
RUN = Run(model="lenet5", dataset="digits", batch_per_device=8, warmup_steps=1, steps=2)
TWO = Run(**RUN.values() | {"devices_per_node": 2, "strategy": "horovod"})
START_S = 1_800_000_000.25  # since 1970
GPU = {"gpu": 0, "utilisation_percent": 50, "power_w": 251.5, "throttle_reasons": ["sw_power_cap"]}


def write(folder, run=RUN, rank=0, times=(0.5, 0.25, 0.25), losses=(2.5, 2.0, 1.5), samples=(),
          evals=(), status="ok", begun_s=START_S, started=True):  # fmt: skip
    """A log with a step after each of `times`; those of the events are seconds since the start."""
    log = EventLog(event_log.rank_path(folder / "train.jsonl", rank))
    log.write("launch", t_utc=date(begun_s - 5), command=[])
    if started:
        what = {"devices": ["CPU:0"], "host": "node1", "versions": {"tensorflow": "2.18.1"}}
        spec, steps = run.values(), len(times)
        log.write("run_start", t_utc=date(begun_s), spec=spec, total_steps=steps, **what)
    for event in samples:
        log.write("sample", **event)
    for event in evals:
        log.write("eval", split="validation", **event)
    t_s = 0.0
    for index, (time, loss) in enumerate(zip(times, losses, strict=True), start=1):
        t_s += time
        log.step(index, t_s, time, loss, 0.01 * index, index <= 1, 1)
    if status:
        end = {"t_s": t_s, "status": status, "weights_sha256": ["0"]}
        log.write(
            "run_end", t_utc=date(begun_s + t_s), message="no | luck" * (status != "ok"), **end
        )
    log.close()
    return folder


def date(seconds):
    when = np.datetime64(round(seconds * 1e6), "us")
    return f"{when}Z" if "." in str(when) else f"{when}.000000Z"


def exported(folder, output):
    export_tensorboard.export([folder], output)
    return read(output / folder.name)


def read(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return accumulator.Reload()


def scalars(board, tag):
    """(step, seconds since the start, value) of each."""
    return [(e.step, round(e.wall_time - START_S, 6), e.value) for e in board.Scalars(tag)]


def text(board):
    (event,) = board.Tensors("run")
    return tensor_util.make_ndarray(event.tensor_proto).item().decode()


@pytest.mark.ci
def test_a_run_has_the_numbers_and_dates_of_its_log_its_fields_and_its_throughput(tmp_path):
    parse_run.parse(RUN, write(tmp_path / "run") / "train.jsonl", tmp_path / "run/run.json")
    board = exported(tmp_path / "run", tmp_path / "board")
    assert scalars(board, "train/loss") == [(1, 0.5, 2.5), (2, 0.75, 2.0), (3, 1.0, 1.5)]
    assert scalars(board, "train/step_time_s") == [(1, 0.5, 0.5), (2, 0.75, 0.25), (3, 1.0, 0.25)]
    assert [value for _, _, value in scalars(board, "train/items_per_second")] == [16, 32, 32]
    rates = [value for _, _, value in scalars(board, "train/learning_rate")]
    assert rates == pytest.approx([0.01, 0.02, 0.03])
    assert scalars(board, "summary/images_per_second") == [(3, 1.0, 32.0)]
    content = board.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
    session = HParamsPluginData.FromString(content).session_start_info
    assert session.hparams["model"].string_value == "lenet5"
    assert session.hparams["global_batch"].number_value == 8
    assert (session.group_name, session.start_time_secs) == ("run", START_S)


def test_over_two_ranks_the_loss_is_the_mean_and_the_times_are_those_of_the_slowest(tmp_path):
    write(tmp_path / "run", TWO)
    # What one rank alone has finished is left out.
    write(tmp_path / "run", TWO, 1, times=(0.25, 0.75), losses=(1.5, 1.0), status=None)
    board = exported(tmp_path / "run", tmp_path / "board")
    assert scalars(board, "train/loss") == [(1, 0.5, 2.0), (2, 0.75, 1.5)]
    assert [value for _, _, value in scalars(board, "train/step_time_s")] == [0.25, 0.75]
    rates = [value for _, _, value in scalars(board, "train/items_per_second")]
    assert rates == pytest.approx([64, 16 / 0.75])


def test_every_number_of_an_evaluation_is_there_infinite_ones_too(tmp_path):
    evals = [
        {"epoch": 0, "step": 0, "t_s": 0.125, "loss": 3.0, "top1": 0.125, "examples": 360},
        {"epoch": 1, "step": 2, "t_s": 0.875, "loss": math.nan, "perplexity": math.inf},
    ]
    board = exported(write(tmp_path / "run", evals=evals), tmp_path / "board")
    (begin, end) = scalars(board, "validation/loss")
    assert begin == (0, 0.125, 3.0)
    assert end[:2] == (2, 0.875) and math.isnan(end[2])
    assert scalars(board, "validation/top1") == [(0, 0.125, 0.125)]
    assert scalars(board, "validation/examples") == [(0, 0.125, 360)]
    assert scalars(board, "validation/perplexity") == [(2, 0.875, math.inf)]


def test_samples_are_at_the_last_step_before_them_and_apart_by_rank_and_gpu(tmp_path):
    usage = {"cpu_percent": None, "memory_bytes": 2**30, "node_cpu_percent": 12.5}
    samples = [
        {"t_s": 0.25, **usage, "gpus": [GPU, GPU | {"gpu": "GPU-8932f937", "power_w": None}]},
        {"t_s": 0.875, **usage, "cpu_percent": 150.0},
    ]
    write(tmp_path / "run", TWO, samples=samples)
    late = START_S + 0.5  # rank 1 has a clock of its own
    others = [{"t_s": 0.25, "cpu_percent": 75.0}]
    write(tmp_path / "run", TWO, rank=1, samples=others, begun_s=late)
    board = exported(tmp_path / "run", tmp_path / "board")
    assert scalars(board, "usage/cpu_percent") == [(2, 0.875, 150.0)]
    assert scalars(board, "usage/memory_bytes") == [(0, 0.25, 2**30), (2, 0.875, 2**30)]
    assert scalars(board, "usage/gpu0/power_w") == [(0, 0.25, 251.5)]
    assert scalars(board, "usage/GPU-8932f937/utilisation_percent") == [(0, 0.25, 50)]
    assert scalars(board, "usage/rank1/cpu_percent") == [(0, 0.75, 75.0)]
    usage_tags = [tag for tag in board.Tags()["scalars"] if tag.startswith("usage/")]
    assert "usage/GPU-8932f937/power_w" not in usage_tags
    assert not any("throttle_reasons" in tag or tag.endswith("/gpu") for tag in usage_tags)


def test_the_steps_after_a_resumption_have_the_dates_of_the_second_start(tmp_path):
    write(tmp_path / "run", times=(0.5, 0.25), losses=(2.5, 2.0), status=None)
    log = EventLog(tmp_path / "run/train.jsonl")
    log.write("resume", step=2, t_s=0.75, t_utc=date(START_S + 100), host="node2", devices=[])
    log.step(3, 1.0, 0.25, 1.5, 0.01, False, 1)
    log.close()
    board = exported(tmp_path / "run", tmp_path / "board")
    assert scalars(board, "train/loss") == [(1, 0.5, 2.5), (2, 0.75, 2.0), (3, 100.25, 1.5)]
    assert "| status | unfinished: the log has no end |" in text(board)


def test_a_record_of_another_log_is_named_and_left_out(tmp_path, capsys):
    parse_run.parse(RUN, write(tmp_path / "run") / "train.jsonl", tmp_path / "run/run.json")
    with open(tmp_path / "run/train.jsonl", "a") as log:
        log.write('{"event": "sample", "t_s": 2.0}\n')
    board = exported(tmp_path / "run", tmp_path / "board")
    assert "summary/images_per_second" not in board.Tags()["scalars"]
    assert "exported without its throughput" in capsys.readouterr().err


def test_the_text_has_the_values_and_the_status_of_the_run(tmp_path):
    folder = write(tmp_path / "run", times=(), losses=(), status="failed")
    board = exported(folder, tmp_path / "board")
    assert board.Tags()["scalars"] == []
    for line in ("| run | run |", "| status | failed: no \\| luck |", "| batch_per_device | 8 |"):
        assert line in text(board).splitlines()


def test_a_run_that_did_not_start_is_left_out_and_named(tmp_path, capsys):
    skipped = write(tmp_path / "skipped", times=(), losses=(), status="skipped", started=False)
    killed = write(tmp_path / "killed", times=(), losses=(), status=None, started=False)
    export_tensorboard.export([skipped, killed, write(tmp_path / "run")], tmp_path / "board")
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["run"]
    assert "skipped: left out, it did not start (skipped: no | luck)" in capsys.readouterr().err


def test_exporting_again_replaces_the_export_and_one_that_fails_leaves_it(tmp_path, monkeypatch):
    folder = write(tmp_path / "run", samples=[{"t_s": 0.25, "cpu_percent": 50.0}])
    boards = [exported(folder, tmp_path / "board") for _ in range(2)]
    tags = boards[0].Tags()["scalars"]
    assert len(tags) == 5
    for tag in tags:
        assert boards[0].Scalars(tag) == boards[1].Scalars(tag)
    assert len(list((tmp_path / "board/run").iterdir())) == 1

    def broken(*_):
        yield export_tensorboard._scalars(START_S, 1, {"train/loss": 9.0})
        raise OSError("no space left on device")

    monkeypatch.setattr(export_tensorboard, "_events", broken)
    with pytest.raises(OSError, match="no space left"):
        export_tensorboard.export([folder], tmp_path / "board")
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["run"]
    losses = read(tmp_path / "board/run").Scalars("train/loss")
    assert losses == boards[0].Scalars("train/loss")


def test_two_runs_of_one_name_a_damaged_log_and_one_of_no_run_are_refused(tmp_path):
    folders = [write(tmp_path / study / "run") for study in ("a", "b")]
    with pytest.raises(Error, match="two runs of one name"):
        export_tensorboard.export(folders, tmp_path / "board")
    with open(folders[0] / "train.jsonl", "a") as log:
        log.write("{}\n")
    with pytest.raises(LogError, match=r"run/train\.jsonl, line 7: not an event"):
        export_tensorboard.export(folders[:1], tmp_path / "board")
    log = EventLog(tmp_path / "run/train.jsonl")
    log.write("run_start", t_utc=date(START_S), spec={"model": "lenet5"})
    log.close()
    with pytest.raises(LogError, match="run_start names no run"):
        export_tensorboard.export([tmp_path / "run"], tmp_path / "board")


def program(folder, *arguments):
    command = [sys.executable, REPOSITORY / "workflow_scripts/export_tensorboard.py", *arguments]
    how = {"cwd": folder, "capture_output": True, "text": True}
    return subprocess.run([*command, "--output", "board"], **how)


@pytest.mark.ci
def test_of_a_table_the_runs_that_were_trained_here_are_exported(tmp_path):
    write(tmp_path / "results/runs/lenet5-r1")
    ids = [
        "lenet5-r1", "imported-r1", "x --output /elsewhere", "../../other", '$(touch "bad")', "..",
    ]  # fmt: skip
    quoted = ['"' + name.replace('"', '""') + '"' for name in ids]
    (tmp_path / "runs.csv").write_text("\n".join(["run_id,study", *(f"{q},s" for q in quoted)]))
    finished = program(tmp_path, "--table", "runs.csv")
    assert finished.returncode == 0, finished.stderr
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["lenet5-r1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "results", "runs.csv"]


def test_of_another_program_what_it_printed_is_exported(tmp_path):
    log = EventLog(tmp_path / "run/train.jsonl")
    log.write("run_start", t_utc=date(START_S), spec=RUN.values() | {"trainer": "theirs"})
    for step in (1, 2):
        log.write("step", step=step, step_time_s=0.5, rank=0, warm_up=step == 1, window_steps=10)
    log.write("imported", kind="tf_cnn_benchmarks", notes=[], numbers={})
    log.write("run_end", t_utc=date(START_S + 10), t_s=10.0, status="ok", message="")
    log.close()
    export_tensorboard.export([tmp_path / "run"], tmp_path / "board")
    board = read(tmp_path / "board/run")
    (first, second) = board.Scalars("train/items_per_second")
    assert first.value == RUN.global_batch / 0.5
    assert second.wall_time - first.wall_time == pytest.approx(5.0)
    assert "train/learning_rate" not in board.Tags()["scalars"]
