"""Runs that other programs train: swept, kept, read, compared and accounted for like ours."""

import hashlib
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from dlbench.common import tools
from support.campaigns.campaign import REPOSITORY, TRAINED
from support.studies.site_facts import CONFIG
from support.trainers.other_trainer import ESCAPES, SCRIPT, SIGNS_OF_LIFE

COMMAND = [sys.executable, "softmax.py", "{batch_per_device}", "{steps}"]
TRAINER = {"log": "tf_cnn_benchmarks", "files": ["softmax.py"]}
THEIRS = {
    "name": "theirs", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "steps": 40,
}  # fmt: skip
OURS = {
    "name": "ours", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 16,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip
SHOWN = """
print("was told", sys.argv[4:], os.environ.get("BLAS_THREADS"), "DLBENCH_SECRETS" in os.environ)
"""


@pytest.mark.ci
def test_another_programs_runs_are_swept_read_and_compared_and_no_file_has_their_secret(fresh):
    secret = "pl4nted-s3cret"
    (fresh.folder / "softmax.py").write_text(SCRIPT + SHOWN)
    (fresh.folder / "meter.sh").write_text(
        "echo $2 | sha256sum >told; while sleep 0.1; do echo 14; done"
    )

    def configure(word, depths=(2, 4)):
        command = [*COMMAND, "momentum", "--depth={depth}", "--token", word]
        axes = {
            "batch_per_device": "8 * {depth}",
            "parameters": {"depth": list(depths)},
            "variables": [{}, {"BLAS_THREADS": 1}],
        }
        fresh.configure(
            matrix=[THEIRS | axes],
            trainers={"softmax": TRAINER | {"command": command}},
            site=CONFIG["site"] | {"power_meter": f"sh meter.sh --password {word}"},
            figures=["loss"],
            compare=[{"field": "variables", "base": ""}],
        )

    configure(secret)
    fresh.succeed("-p")
    found = set()
    for row in fresh.rows():
        printed = fresh.folder / "results/runs" / row["run_id"] / "output/printed.log"
        *_, total, _, told = printed.read_text().splitlines()
        assert float(row["images_per_second"]) == pytest.approx(float(total.split()[-1]), rel=0.01)
        assert row["status"] in TRAINED and row["timing_source"] == "tf_cnn_benchmarks"
        assert (row["framework"], row["framework_version"]) == ("numpy", "9.9")
        assert float(row["final_loss"]) < 2.3  # it learned
        depth, threads = row["parameters.depth"], "1" if row["variables"] else None
        assert told == f"was told ['--depth={depth}', '--token', '{secret}'] {threads} False"
        assert row["batch_per_device"] == str(8 * int(depth))
        found.add((depth, row["variables"]))
    assert found == {(d, v) for d in ("2", "4") for v in ("", "BLAS_THREADS=1")}
    depths = {row["run_id"]: row["parameters.depth"] for row in fresh.rows()}
    compared = {depths[row["settings_of"]]: row for row in fresh.rows("comparisons")}
    assert compared.keys() == {"2", "4"} and all(float(r["ratio"]) > 0 for r in compared.values())
    assert "softmax" in (fresh.folder / "results/figures/loss.svg").read_text()

    fields = hashlib.sha256(f"{secret}\n".encode()).hexdigest()
    assert (fresh.folder / "told").read_text().startswith(fields)
    for path in fresh.folder.rglob("*"):
        kept = path.is_relative_to(fresh.folder / "results") or ".snakemake" in path.parts
        if kept and path.is_file() and path.name != "printed.log":
            assert secret.encode() not in path.read_bytes(), path
    metadata = [*(fresh.folder / ".snakemake/metadata").rglob("*")]
    assert any(b"(hidden-0)" in path.read_bytes() for path in metadata if path.is_file())
    configure("another")
    assert fresh.scheduled() == {}  # it is the same trainer

    configure("another", depths=(2, 4, 8))
    assert len(fresh.scheduled()["train"]) == 2  # the new depth, with and without the variable
    (fresh.folder / "softmax.py").write_text(SCRIPT + "# other\n")
    assert len(fresh.scheduled()["train"]) == 6


LOOP = """import sys, time
micro_batch, precision = int(sys.argv[1]), sys.argv[2]
for step in range(12):
    began = time.perf_counter()
    time.sleep(0.01 * micro_batch)
    spent_ms = 1000 * (time.perf_counter() - began)
    print(f"iter {step}: loss {3 / (1 + step):.3f}, time {spent_ms:.2f}ms, {precision}")
print("iter 11: validation loss 2.0794")
print(f"Avg bus bandwidth : {micro_batch * 2.5} GB/s")
if precision == "broken":
    print("NCCL error: peer is gone")
"""
READ_BY_PATTERNS = {
    "step": r"iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_time_ms>\S+)ms",
    "evaluation": r"iter (?P<step>\d+): validation loss (?P<loss>\S+)",
    "metrics": {"busbw_gb_per_s": r"Avg bus bandwidth\s*:\s*(\S+)"},
    "failed": "NCCL error",
}
FAULTS = {
    "exit": ("failed", "no such optimizer"),
    "memory": ("oom", "OOM when allocating tensor"),
    "silent": ("failed", "its log"),
    "batch": ("failed", "global_batch is 16 by the run, 32 by the log"),
}


def test_lines_are_read_by_patterns_and_what_goes_wrong_is_recorded_and_said(fresh):
    (fresh.folder / "loop.py").write_text(LOOP)
    (fresh.folder / "softmax.py").write_text(SCRIPT)
    loop = {
        "command": [sys.executable, "loop.py", "{micro_batch}", "{words}"],
        "log": READ_BY_PATTERNS,
        "files": ["loop.py"],
        "bytes_per_token": "3 * {micro_batch}",
    }
    block = {
        "name": "loop", "trainer": "loop", "framework": "numpy", "model": "loop",
        "dataset": "noise", "batch_per_device": 4, "steps": 12,
        "parameters": {"micro_batch": [1, 2], "words": ["well", "broken"]},
        "exclude": [{"parameters": {"micro_batch": 2, "words": "broken"}, "reason": "enough"}],
    }  # fmt: skip
    faults = THEIRS | {"batch_per_device": 16, "parameters": {"fault": list(FAULTS)}}
    softmax = TRAINER | {"command": [*COMMAND, "{fault}"]}
    study = {"matrix": [block, faults], "figures": []}
    fresh.configure(trainers={"loop": loop, "softmax": softmax}, **study)
    fresh.succeed()
    rows = fresh.rows()
    found = {(r["parameters.micro_batch"], r["parameters.words"]): r for r in rows}
    for micro_batch in ("1", "2"):
        row = found[micro_batch, "well"]
        assert row["status"] in TRAINED and row["timing_source"] == "patterns"
        assert float(row["step_time_mean_s"]) >= 0.01 * int(micro_batch)
        rate = 4 / float(row["step_time_mean_s"])
        assert float(row["images_per_second"]) == pytest.approx(rate, rel=0.001)
        assert row["steps_measured"] == "11" and not row["contradicts"]
        # The last loss is 3 bits a token.
        assert float(row["bits_per_byte"]) == pytest.approx(1 / int(micro_batch), rel=1e-4)
    broken = found["1", "broken"]
    assert broken["status"] == "failed" and "'NCCL error: peer is gone'" in broken["message"]
    metrics = {(row["run_id"], row["name"]): float(row["value"]) for row in fresh.rows("metrics")}
    assert metrics[found["2", "well"]["run_id"], "busbw_gb_per_s"] == 5.0
    ended = {row["parameters.fault"]: row for row in rows if row["trainer"] == "softmax"}
    for fault, (status, message) in FAULTS.items():
        assert ended[fault]["status"] == status and message in ended[fault]["message"]
    assert fresh.scheduled() == {}

    loop["log"] = READ_BY_PATTERNS | {"warm_up": 2}
    fresh.configure(trainers={"loop": loop, "softmax": softmax}, **study)
    assert len(fresh.scheduled()["train"]) == 3  # other patterns may change any number


def test_another_programs_runs_are_bound_sampled_packed_and_accounted_for(fresh):
    (fresh.folder / "softmax.py").write_text(ESCAPES + SCRIPT)
    flops = {"model_flops_per_item": "2e9 * {weight} / {devices}", "precision": {"": "float8"}}
    softmax = TRAINER | flops | {"command": [*COMMAND, "{pace}", "{weight}"]}
    # Large batches: the rate is printed with one digit, which must tell the time of each step.
    block = THEIRS | {"batch_per_device": 2560, "steps": 80, "copies_per_node": [1, 2]}
    block["parameters"] = {"pace": "slow", "weight": 4}
    site = CONFIG["site"] | {"device_peak_tflops": {"float8": 10_000.0}}
    fresh.configure(matrix=[block], trainers={"softmax": softmax}, site=site, figures=[])
    fresh.succeed()
    one, two = sorted(fresh.rows(), key=lambda row: row["copies_per_node"])
    records = fresh.records()
    for row in (one, two):
        assert row["status"] in TRAINED, row["message"]
        assert float(row["model_flops_per_item"]) == 8e9
        expected = 8e9 * float(row["images_per_second"]) / 1e16
        assert float(row["mfu"]) == pytest.approx(expected) and row["precision"] == "float8"
        assert float(row["cpu_time_s"]) > 0.5 and int(row["peak_memory_bytes"]) > 2**20
        assert "no GPUs" in records[row["run_id"]]["summary"]["energy_unknown"]
    folder = fresh.folder / "results/runs" / one["run_id"]
    samples = pq.read_table(folder / "samples.parquet").to_pylist()
    assert len(samples) > 2 and max(each["cpu_percent"] or 0 for each in samples) > 10
    assert all(0 <= each["node_cpu_percent"] <= 100 for each in samples[1:])
    cores = [*records[one["run_id"]]["provenance"]["cores"]]
    assert len(cores) == 1  # as a device of ours
    assert f"cores {cores} threads 1" in (folder / "output/printed.log").read_text()
    accounts = {(r["run_id"], r["part"]): float(r["spent_s"]) for r in fresh.rows("accounts")}
    for row in (one, two):
        assert all(accounts[row["run_id"], part] > 0 for part in ("steps", "other"))
    # Copies: each on a core of its own, with a log of its own, measured at the same time.
    folder = fresh.folder / "results/runs" / two["run_id"]
    printed = [(folder / name / "printed.log").read_text() for name in ("output", "output-1")]
    assert len({text.splitlines()[0] for text in printed}) == 2
    rates = records[two["run_id"]]["summary"]["copies_images_per_second"]
    assert float(two["images_per_second"]) == pytest.approx(sum(rates) / 2)
    assert 0 < float(two["overlap"]) <= 1
    # Each started a process in a session of its own, which would have outlived it.
    assert subprocess.run(["pgrep", "-f", "sleep 1000.25"], check=False).returncode == 1


def test_a_program_at_its_limits_is_told_and_ended_and_what_it_did_is_recorded(fresh):
    (fresh.folder / "lives.py").write_text(SIGNS_OF_LIFE)
    lives = {"command": [sys.executable, "lives.py", "{how}"], "log": "tf_cnn_benchmarks"}
    lives |= {"files": ["lives.py"], "stop_signal": "SIGUSR1", "stop_grace_s": 2}
    block = THEIRS | {"trainer": "lives", "batch_per_device": 1, "steps": 1}
    block["parameters"] = {"how": ["answers", "ignores", "silent"]}
    limits = {"time_limit_s": 12, "hang_limit_s": 3}  # what begins a log takes a while
    fresh.configure(matrix=[block], trainers={"lives": lives}, figures=[], **limits)
    fresh.succeed()
    ended = {row["parameters.how"]: (row["status"], row["message"]) for row in fresh.rows()}
    status, message = ended["answers"]
    assert status == "timeout" and "it ended within 2 s of SIGUSR1" in message
    assert message.endswith("| checkpoint written")
    status, message = ended["ignores"]
    assert status == "timeout" and "it did not end within 2 s of SIGUSR1" in message
    status, message = ended["silent"]
    assert status == "failed" and "hung: no output for 3 s" in message
    assert "it has printed nothing yet" in message


def test_mxnet_trains_in_an_environment_of_its_own(fresh):
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    made = subprocess.run(
        [tools.find_uv(), "sync", "--project", REPOSITORY / "envs/mxnet", "--frozen"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"MXNet cannot be installed here: {made.stderr[-300:]}")
    script = "studies/inovex_cpu/lenet5_mxnet.py"
    flags = ["--steps={steps}", "--batch-per-device={batch_per_device}", "--devices={devices}"]
    mxnet = {"command": ["{python}", script, *flags], "log": "mxnet", "files": [script]}
    block = {
        "name": "mxnet", "trainer": "mxnet", "framework": "mxnet", "environment": "mxnet",
        "model": "lenet5", "dataset": "synthetic", "batch_per_device": 32, "steps": 40,
    }  # fmt: skip
    fresh.configure(trainers={"mxnet": mxnet}, matrix=[block, OURS], figures=[])
    fresh.succeed()
    by_framework = {row["framework"]: row for row in fresh.rows()}
    row = by_framework["mxnet"]
    assert row["status"] in TRAINED and row["timing_source"] == "mxnet"
    assert float(row["images_per_second"]) > 0
    assert by_framework["tensorflow"]["timing_source"] == "dlbench"
