"""The trainer for real: one process, two devices, two Horovod processes."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from shards import dataset

from dlbench import attempts, eventlog, plugins
from dlbench.runs import Run

REPOSITORY = Path(__file__).parents[2]
TRAIN = REPOSITORY / "workflow_scripts" / "train.py"


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The converted digits, made in the workflow's environment."""
    folder = tmp_path_factory.mktemp("digits")
    python = REPOSITORY / ".venv" / "bin" / "python"
    for program, *flags in (
        ("fetch_dataset.py", "--folder", folder / "source"),
        ("convert_dataset.py", "--source", folder / "source", "--output", folder),
    ):
        script = REPOSITORY / "workflow_scripts" / program
        subprocess.run([python, script, "digits", *flags], check=True)
    return folder


def train(log, data=None, flags=(), **fields):
    """Train with the run's own launcher. Returns the finished process."""
    run = Run(**{"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, **fields})
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log), *flags]
    trainer += ["--data", str(data)] if data else []
    command = plugins.load("launchers", run.launcher).command(
        run, trainer, Path(sys.executable).parents[1]
    )
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def events(log, kind):
    return [event for event in eventlog.read(log) if event["event"] == kind]


LEARNING = {"dataset": "digits", "optimizer": "momentum", "learning_rate": 0.02, "epochs": 1}
TWO_DEVICES = [
    {"strategy": "mirrored"},
    {"strategy": "horovod", "launcher": "horovodrun"},
    {"strategy": "horovod", "launcher": "mpirun"},
    {"strategy": "multiworker", "launcher": "local"},
]
SERVERS = {"strategy": "parameter_server", "launcher": "local"}


@pytest.fixture(scope="session")
def one_process(digits, tmp_path_factory):
    log = tmp_path_factory.mktemp("single") / "train.jsonl"
    finished = train(log, digits, batch_per_device=64, **LEARNING)
    assert finished.returncode == 0, finished.stderr
    return log


@pytest.mark.parametrize(
    "how",
    [*TWO_DEVICES, SERVERS | {"strategy_options": "update=averaged,servers=2"}],
    ids=lambda how: "-".join(how.values()),
)
def test_two_devices_train_as_one_process_with_twice_the_batch(how, one_process, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, batch_per_device=32, devices_per_node=2, **how, **LEARNING)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = eventlog.rank_paths(log)
    digests = [d for path in logs for d in events(path, "run_end")[0]["weights_sha256"]]
    assert len(logs) == {"mirrored": 1, "parameter_server": 1}.get(how["strategy"], 2)
    assert len(digests) == (1 if how["strategy"] == "parameter_server" else 2)
    assert len(set(digests)) == 1
    losses = np.mean([[s["loss"] for s in events(path, "step")] for path in logs], axis=0)
    np.testing.assert_allclose(
        losses, [s["loss"] for s in events(one_process, "step")], rtol=2e-5, atol=2e-5
    )
    ours, theirs = events(log, "eval")[-1], events(one_process, "eval")[-1]
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    assert ours["top1"] == pytest.approx(theirs["top1"], abs=1 / 360)


@pytest.mark.parametrize("update", ["asynchronous", "barrier"])
def test_workers_with_a_parameter_server_learn_together(update, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = SERVERS | {"strategy_options": f"update={update}"}
    finished = train(log, digits, batch_per_device=32, devices_per_node=2, **how,
                     **LEARNING | {"epochs": 3})  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    steps, evaluations = events(log, "step"), events(log, "eval")
    assert [step["step"] for step in steps] == list(range(1, 69))
    assert [evaluation["step"] for evaluation in evaluations] == [0, 23, 45, 68]
    assert evaluations[-1]["top1"] > 0.85
    (start,) = events(log, "run_start")
    assert [device.partition("/device")[0] for device in start["devices"]] == [
        "/job:worker/replica:0/task:0",
        "/job:worker/replica:0/task:1",
    ]


@pytest.mark.parametrize("options", ["gradient_groups=3", "gradient_groups=0,cycle_time_ms=1.0"])
def test_horovods_settings_change_no_result(options, one_process, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "strategy_options": options}
    short = LEARNING | {"epochs": None, "steps": 5}
    finished = train(log, digits, batch_per_device=32, devices_per_node=2, **how, **short)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = eventlog.rank_paths(log)
    losses = np.mean([[s["loss"] for s in events(path, "step")] for path in logs], axis=0)
    wanted = [s["loss"] for s in events(one_process, "step")][: len(losses)]
    np.testing.assert_allclose(losses, wanted, rtol=2e-5, atol=2e-5)
    settings = events(log, "run_start")[0]["strategy_settings"]
    assert f"gradient_groups={settings['gradient_groups']}" in options


def test_compressed_gradients_give_all_ranks_the_same_weights_and_the_trace_is_kept(tmp_path):
    log = tmp_path / "run" / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    finished = train(log, **how, steps=4, strategy_options="compression=fp16,timeline=True")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    ends = [events(path, "run_end")[0] for path in eventlog.rank_paths(log)]
    assert len({tuple(end["weights_sha256"]) for end in ends}) == 1
    trace = (log.parent / "timeline.json").read_text()
    assert "ALLREDUCE" in trace
    assert "float16" in trace


@pytest.mark.parametrize("how", TWO_DEVICES[1:], ids=lambda how: "-".join(how.values()))
def test_embeddings_train_alike_on_all_ranks(how, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, model="lstm_ptb", batch_per_device=2, steps=2, warmup_steps=0,
                     devices_per_node=2, **how)  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    ends = [events(path, "run_end")[0] for path in eventlog.rank_paths(log)]
    assert len({tuple(end["weights_sha256"]) for end in ends}) == 1


@pytest.mark.parametrize("how", TWO_DEVICES[1:], ids=lambda how: "-".join(how.values()))
def test_ranks_that_were_started_for_different_runs_refuse_to_train(how, tmp_path):
    log = tmp_path / "train.jsonl"
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 2}
    run = Run(**fields, devices_per_node=2, **how)
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    # Slurm's, Horovod's and Open MPI's own variables, and TF_CONFIG, say which rank this is.
    script = (
        'case "$OMPI_COMM_WORLD_RANK$HOROVOD_RANK$TF_CONFIG" in 1|*\'"index": 1\'*) '
        f"set -- --seed 7;; esac; exec {shlex.join(trainer)} $@"
    )
    command = plugins.load("launchers", run.launcher).command(
        run, ["sh", "-c", script], Path(sys.executable).parents[1]
    )
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode != 0
    messages = [events(path, "run_end")[0]["message"] for path in eventlog.rank_paths(log)]
    assert any(
        message == "ranks 0 and 1 were not started for the same run on the same data: seed: 1 and 7"
        for message in messages
    ), messages


def test_horovod_ranks_see_different_data(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    assert train(log, digits, **how, **LEARNING).returncode == 0
    first, second = ([s["loss"] for s in events(p, "step")] for p in eventlog.rank_paths(log))
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 0.95 * len(first)


def test_the_same_seed_gives_the_same_run_and_another_repeat_another(digits, tmp_path):
    short = {"dataset": "digits", "steps": 8, "warmup_steps": 0}
    for name, repeat in (("a", 1), ("b", 1), ("c", 2)):
        assert train(tmp_path / name, digits, repeat=repeat, **short).returncode == 0
    a, b, c = ([s["loss"] for s in events(tmp_path / n, "step")] for n in "abc")
    assert a == b
    assert a != c


def test_tensorflows_own_reader_reads_our_shards(digits):
    import tensorflow as tf

    labels = []
    for shard in sorted(digits.glob("train-*")):
        for record in tf.data.TFRecordDataset(str(shard)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            assert len(features["image/encoded"].bytes_list.value[0]) == 32 * 32
            labels += features["image/class/label"].int64_list.value
    assert len(labels) == 1437
    assert set(labels) == set(range(10))


@pytest.mark.parametrize("mode", ["forward", "forward_backward"])
def test_modes_without_update_leave_the_loss_as_it_is(mode, tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, mode=mode, steps=4, warmup_steps=1).returncode == 0
    assert len({s["loss"] for s in events(log, "step")}) == 1
    assert [s["warm_up"] for s in events(log, "step")] == [True] + [False] * 4


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains(precision, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, precision=precision, steps=4, learning_rate=0.1)
    assert finished.returncode == 0, finished.stderr
    losses = [s["loss"] for s in events(log, "step")]
    assert losses[-1] < losses[0]


def test_tf32_is_refused_on_a_cpu(tmp_path):
    finished = train(tmp_path / "train.jsonl", precision="tf32", steps=1)
    assert finished.returncode == 1
    assert "precision tf32 is one of NVIDIA's GPUs; this device is a CPU" in finished.stderr


@pytest.mark.parametrize("strategy", ["single", "mirrored"])
def test_xla_computes_the_same_and_its_compiling_is_apart(strategy, tmp_path):
    how = {"model": "resnet20", "batch_per_device": 4, "steps": 3, "warmup_steps": 1,
           "strategy": strategy, "devices_per_node": 1 if strategy == "single" else 2}  # fmt: skip
    for xla in (False, True):
        assert train(tmp_path / str(xla), xla=xla, **how).returncode == 0
    plain, compiled = ([s["loss"] for s in events(tmp_path / x, "step")] for x in ("False", "True"))
    np.testing.assert_allclose(plain, compiled, rtol=1e-3)
    times = [step["step_time_s"] for step in events(tmp_path / "True", "step")]
    assert times[0] > 3 * max(times[1:])
    assert events(tmp_path / "True", "compile")[0]["trace_s"] > 0


def test_the_learning_rate_is_scaled_with_the_global_batch_after_a_warm_up(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, strategy="mirrored", devices_per_node=2, steps=3, warmup_steps=2,
                     learning_rate=0.1, learning_rate_scaling="linear", learning_rate_batch=8,
                     learning_rate_warmup_steps=4)  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    rates = [step["learning_rate"] for step in events(log, "step")]
    assert rates == pytest.approx([0.125, 0.15, 0.175, 0.2, 0.2])


def test_a_run_of_steps_is_evaluated_on_demand(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, dataset="digits", batch_per_device=256, steps=7, warmup_steps=0,
                     evaluate="yes")  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert [e["step"] for e in events(log, "eval")] == [0, 6, 7]


def test_a_model_of_the_users_own_is_one_file_in_a_folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    source = plugins.path("models", "lenet5").read_text()
    (folder / "mine.py").write_text(source.replace("16, 5", "4, 5"))
    log = tmp_path / "train.jsonl"
    finished = train(log, model="mine", steps=1, flags=["--model-folder", str(folder)])
    assert finished.returncode == 0, finished.stderr
    assert events(log, "run_start")[0]["parameters"] < 61_706
    finished = train(tmp_path / "other.jsonl", model="mine", steps=1)
    assert finished.returncode == 1
    assert "no file models/mine.py" in finished.stderr


def test_a_model_that_does_not_fit_the_items_is_named(digits, tmp_path):
    finished = train(tmp_path / "train.jsonl", digits, model="alexnet", dataset="digits", steps=1)
    assert finished.returncode == 1
    assert "model alexnet cannot be built for items of shape (32, 32, 1)" in finished.stderr
    assert "it was designed for (224, 224, 3)" in finished.stderr


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"strategy": "multiworker"}, "neither TF_CONFIG nor Slurm's variables are set"),
        ({"strategy": "horovod"}, "strategy horovod needs a launcher"),
        ({"strategy": "mirrored", "devices_per_node": 500}, "rank 0 needs 500 cores"),
        ({"strategy_options": "cycle=1"}, "strategy single has no option 'cycle'"),
    ],
)
def test_what_cannot_be_started_so_is_refused_with_the_reason(how, message, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, **{"devices_per_node": 2, "launcher": "none", "steps": 1, **how})
    assert finished.returncode == 1
    assert message in finished.stderr
    assert message in events(log, "run_end")[0]["message"]


def test_what_the_process_uses_is_sampled(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=300, flags=["--sample-every-s", "0.1"]).returncode == 0
    samples, (end,) = events(log, "sample"), events(log, "run_end")
    assert len(samples) > 5
    assert 20 < max(sample["cpu_percent"] for sample in samples[1:]) < 250
    assert samples[-1]["memory_bytes"] <= end["peak_memory_bytes"]
    assert 0 < end["cpu_time_s"] < 60
    assert train(tmp_path / "none", steps=1, flags=["--sample-every-s", "0"]).returncode == 0
    assert not events(tmp_path / "none", "sample")


def test_ranks_that_mpirun_started_but_that_do_not_find_one_another_are_explained(
    tmp_path, monkeypatch
):
    # As with an mpirun whose MPI is not that of the image: each rank is alone.
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OPAL_PREFIX", str(Path(sys.executable).parents[1]))
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=1, strategy="horovod",
              launcher="mpirun", devices_per_node=2)  # fmt: skip
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    finished = subprocess.run(trainer, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 1
    (end,) = events(log, "run_end")
    assert "expected 2 Horovod processes on this node, found 1 (rank 0 of 1)" in end["message"]
    assert "mpirun started 2, but the MPI library here does not find them" in end["message"]


def start_supervised(folder, *flags, **fields):
    """Start a run as the workflow does, of steps without end."""
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 10**6,
              **fields}  # fmt: skip
    run, log = Run(**fields), folder / "train.jsonl"
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    program = [sys.executable, str(TRAIN.with_name("start_run.py")), "--log", str(log)]
    program += ["--messages", str(folder / "messages"), f"--spec={json.dumps(run.values())}"]
    return subprocess.Popen([*program, *flags, "--", *trainer], stderr=subprocess.PIPE, text=True)


def pids_of_ranks(log, count):
    """The processes of all ranks, once each has taken a step."""
    deadline = time.monotonic() + 120
    while True:
        paths = [p for p in (eventlog.rank_path(log, r) for r in range(count)) if p.is_file()]
        if len(paths) == count and all('"event": "step"' in p.read_text() for p in paths):
            return [events(path, "run_start")[0]["pid"] for path in paths]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", TWO_DEVICES[1:], ids=lambda how: "-".join(how.values()))
def test_a_rank_that_dies_ends_the_run_and_leaves_nothing(how, tmp_path):
    process = start_supervised(tmp_path, **how, devices_per_node=2)
    pids = pids_of_ranks(tmp_path / "train.jsonl", 2)
    os.kill(pids[1], signal.SIGKILL)
    process.communicate(timeout=120)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["message"].startswith("rank 1 ended without a word after step ")
    assert not any(map(alive, pids))


def test_a_loss_that_is_not_a_number_ends_all_ranks_with_that_message(tmp_path):
    how = {"strategy": "multiworker", "launcher": "local", "devices_per_node": 2}
    process = start_supervised(tmp_path, **how, learning_rate=1e39)
    process.communicate(timeout=120)
    assert process.returncode == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["message"].endswith("the loss is not a number")


def test_a_worker_that_dies_ends_the_run_and_its_servers(tmp_path):
    process = start_supervised(tmp_path, **SERVERS, devices_per_node=2)
    pids_of_ranks(tmp_path / "train.jsonl", 1)
    pids = processes_with(str(tmp_path).encode(), "cmdline")
    (worker,) = set(pids) & set(processes_with(b'{"type": "worker", "index": 1}', "environ"))
    os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=120)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    # Who notices first says it: the launcher, or the chief that lost its worker.
    lost = "worker 1 failed (killed by SIGKILL); the others are ended", "UnavailableError"
    assert any(words in record["message"] for words in lost)
    assert not any(map(alive, pids))


def processes_with(words, file):
    """The processes whose command line or environment has some words."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):
            if words in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("how", "ranks"),
    [
        ({}, 1),
        ({"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}, 2),
        ({"strategy": "multiworker", "launcher": "local", "devices_per_node": 2}, 2),
    ],
    ids=["one process", "horovodrun", "local"],
)
def test_a_supervisor_that_is_killed_leaves_no_trainer_and_the_next_attempt_keeps_its_log(
    how, ranks, tmp_path
):
    process = start_supervised(tmp_path, **how)
    pids = pids_of_ranks(tmp_path / "train.jsonl", ranks)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 60
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (tmp_path / "train.jsonl").unlink()  # as Snakemake does before it tries again
    attempts.rescue(tmp_path / "train.jsonl")
    assert events(tmp_path / "train.attempt1.jsonl", "step")


def test_a_rank_that_hangs_ends_the_run_and_leaves_nothing(tmp_path):
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    process = start_supervised(tmp_path, "--hang-limit-s", "12", **how)
    pids = pids_of_ranks(tmp_path / "train.jsonl", 2)
    os.kill(pids[1], signal.SIGSTOP)
    process.communicate(timeout=120)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["message"].startswith("rank 0: hung: no step for 12 s; step ")
    assert not any(map(alive, pids))


def test_step_times_add_up_to_the_time_they_took(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=50, warmup_steps=0).returncode == 0
    steps = events(log, "step")
    total = sum(s["step_time_s"] for s in steps[1:])
    assert total == pytest.approx(steps[-1]["t_s"] - steps[0]["t_s"], abs=1e-5)


def test_a_loss_that_is_not_a_number_ends_the_run_as_failed(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, steps=200, learning_rate=1e39)  # infinite in float32
    assert finished.returncode != 0
    end = events(log, "run_end")[0]
    assert end["status"] == "failed"
    assert "not a number" in end["message"]
    assert len(events(log, "step")) < 210


def test_more_items_than_memory_holds_end_the_run_as_oom(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, batch_per_device=10**10, steps=1)
    assert finished.returncode != 0
    (end,) = events(log, "run_end")
    assert end["status"] == "oom"
    assert "out of memory" in end["message"]


def test_a_run_in_the_wrong_place_is_refused(tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, steps=1, dataset="digits", data=tmp_path / "nowhere")
    assert finished.returncode == 1
    end = events(log, "run_end")[0]
    assert end["status"] == "failed"
    assert "manifest.json cannot be read" in end["message"]


def test_a_log_that_holds_a_run_is_never_overwritten(tmp_path):
    log = tmp_path / "train.jsonl"
    assert train(log, steps=1).returncode == 0
    before = log.read_bytes()
    finished = train(log, steps=1)
    assert finished.returncode != 0
    assert "holds a run already" in finished.stderr
    assert log.read_bytes() == before


def test_the_log_is_json_line_by_line(one_process):
    for line in one_process.read_text().splitlines():
        json.loads(line)


def words(index):
    """Sentences in which each word is followed by the next number."""
    return {"tokens": [(index + place) % 50 for place in range(21)]}


def blobs(index):
    mask = np.zeros((32, 32, 1), np.uint8)
    mask[index % 16 : index % 16 + 12, 4:20] = 1
    image = mask + np.random.default_rng(index).normal(0, 0.1, mask.shape)
    return {"image/encoded": image.astype(np.float32).tobytes(), "image/mask": mask.tobytes()}


@pytest.mark.parametrize(
    ("model", "kind", "reader", "features", "score", "better"),
    [
        ("lstm_ptb", "text", {"encoding": "tokens", "shape": [20], "classes": 50}, words,
         "perplexity", lambda before, after: after < 0.5 * before),
        ("unet", "mask", {"encoding": "raw", "dtype": "float32", "shape": [32, 32, 1],
                          "mask": [32, 32, 1]}, blobs,
         "iou", lambda before, after: after > 0.8 > before),
    ],
)  # fmt: skip
def test_words_and_masks_are_learned(model, kind, reader, features, score, better, tmp_path):
    folder = dataset(tmp_path / "data", 64, 2, reader, features, kind)
    name = {"text": "ptb", "mask": "blends"}[kind]
    log = tmp_path / "train.jsonl"
    finished = train(log, folder, model=model, dataset=name, batch_per_device=8, epochs=6,
                     optimizer="adam", learning_rate=0.01, steps=None)  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    scores = [event[score] for event in events(log, "eval")]
    assert len(scores) == 7
    assert better(scores[0], scores[-1]), scores


def test_a_model_refuses_data_of_another_kind(digits, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(log, digits, model="unet", dataset="digits", steps=1)
    assert finished.returncode == 1
    assert "needs data of the kind mask; digits is of the kind image" in finished.stderr
