"""Runs that other programs train: swept, kept, read and compared like ours."""

import csv
import hashlib
import os
import subprocess
import sys

import pytest
import yaml

from dlbench.common import tools
from support.campaigns.campaign import REPOSITORY
from support.trainers.other_trainer import SCRIPT

TRAINER = {
    "command": [sys.executable, "softmax.py", "{batch_per_device}", "{steps}", "{optimizer}"],
    "log": "tf_cnn_benchmarks",
    "files": ["softmax.py"],
}
TRAINED = ("ok", "unstable")  # on a busy machine steps stall
THEIRS = {
    "name": "theirs", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "batch_per_device": [16, 64], "steps": 40,
}  # fmt: skip
OURS = {
    "name": "ours", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 16,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip


@pytest.fixture
def campaign(fresh):
    (fresh.folder / "softmax.py").write_text(SCRIPT)
    return fresh


def rows(campaign, table="runs"):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.ci
def test_another_programs_runs_are_swept_read_and_compared_like_ours(campaign):
    matrix = [THEIRS | {"repeats": 2}, OURS]
    asked = {
        "trainers": {"softmax": TRAINER}, "figures": ["batch_size", "loss"],
        "compare": [{"field": "batch_per_device", "base": 16}],
    }  # fmt: skip
    campaign.configure(matrix=matrix, **asked)
    campaign.succeed()
    theirs = [row for row in rows(campaign) if row["trainer"] == "softmax"]
    assert len(theirs) == 4
    for row in theirs:
        log = campaign.folder / "results/runs" / row["run_id"] / "output/printed.log"
        (total,) = (line for line in log.read_text().splitlines() if line.startswith("total"))
        assert float(row["images_per_second"]) == pytest.approx(float(total.split()[-1]), rel=0.01)
        assert row["status"] in TRAINED and row["timing_source"] == "tf_cnn_benchmarks"
        assert (row["framework"], row["framework_version"]) == ("numpy", "9.9")
        assert float(row["final_loss"]) < 2.3  # it learned
    (compared,) = (row for row in rows(campaign, "comparisons") if row["model"] == "softmax")
    assert (compared["n_a"], compared["n_b"]) == ("2", "2") and float(compared["ratio"]) > 0
    for figure in ("batch_size", "loss"):
        assert "softmax" in (campaign.folder / f"results/figures/{figure}.svg").read_text()
    assert campaign.scheduled() == {}

    (campaign.folder / "softmax.py").write_text(SCRIPT + "# other\n")
    assert sorted(campaign.scheduled()["train"]) == sorted(row["run_id"] for row in theirs)


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


def test_a_program_whose_lines_are_read_by_patterns_is_a_run_like_any_other(fresh):
    (fresh.folder / "loop.py").write_text(LOOP)
    trainer = {
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
    fresh.configure(trainers={"loop": trainer}, matrix=[block], figures=[])
    fresh.succeed()
    found = {(r["parameters.micro_batch"], r["parameters.words"]): r for r in rows(fresh)}
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
    metrics = {(row["run_id"], row["name"]): float(row["value"]) for row in rows(fresh, "metrics")}
    assert metrics[found["2", "well"]["run_id"], "busbw_gb_per_s"] == 5.0
    assert fresh.scheduled() == {}

    other = READ_BY_PATTERNS | {"warm_up": 2}
    fresh.configure(trainers={"loop": trainer | {"log": other}}, matrix=[block], figures=[])
    assert len(fresh.scheduled()["train"]) == 3  # other patterns may change any number


@pytest.mark.ci
def test_a_secret_in_a_command_reaches_the_program_and_no_file_but_what_it_prints(campaign):
    secret = "pl4nted-s3cret"
    script = campaign.folder / "softmax.py"
    script.write_text(SCRIPT + "print('was told', sys.argv[4:], 'DLBENCH_SECRETS' in os.environ)\n")
    (campaign.folder / "meter.sh").write_text(
        "echo $2 | sha256sum >told; while sleep 0.1; do echo 14; done"
    )
    site = yaml.safe_load((REPOSITORY / "config.yaml").read_text())["site"]

    def configure(word):
        campaign.configure(
            matrix=[THEIRS | {"batch_per_device": 16}],
            trainers={"softmax": TRAINER | {"command": [*TRAINER["command"], "--token", word]}},
            site=site | {"power_meter": f"sh meter.sh --password {word}"},
        )

    configure(secret)
    campaign.succeed("-p")
    (record,) = (campaign.folder / "results/runs").glob("*/run.json")
    printed = (record.parent / "output/printed.log").read_text()
    assert f"was told ['--token', '{secret}'] False" in printed
    fields = hashlib.sha256(f"{secret}\n".encode()).hexdigest()
    assert (campaign.folder / "told").read_text().startswith(fields)
    for path in campaign.folder.rglob("*"):
        kept = path.is_relative_to(campaign.folder / "results") or ".snakemake" in path.parts
        if kept and path.is_file() and path.name != "printed.log":
            assert secret.encode() not in path.read_bytes(), path
    metadata = [*(campaign.folder / ".snakemake/metadata").rglob("*")]
    assert any(b"(hidden-0)" in path.read_bytes() for path in metadata if path.is_file())
    configure("another")
    assert campaign.scheduled() == {}  # it is the same trainer


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("exit", "failed", "no such optimizer"),
        ("memory", "oom", "OOM when allocating tensor"),
        ("silent", "failed", "its log"),
        ("batch", "failed", "global_batch is 16 by the run, 32 by the log"),
    ],
)
def test_what_goes_wrong_in_another_program_is_recorded_and_said(campaign, fault, status, message):
    command = [*TRAINER["command"][:-1], fault]
    block = THEIRS | {"batch_per_device": 16}
    trainers = {"softmax": TRAINER | {"command": command}}
    campaign.configure(matrix=[block], trainers=trainers, figures=[])
    campaign.succeed()
    (row,) = rows(campaign)
    assert row["status"] == status and message in row["message"]
    assert campaign.scheduled() == {}


@pytest.mark.slow
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
    fresh.configure(
        trainers={
            "mxnet": {
                "command": [
                    "{python}",
                    "studies/inovex_cpu/lenet5_mxnet.py",
                    "--steps={steps}",
                    "--batch-per-device={batch_per_device}",
                    "--devices={devices}",
                ],
                "log": "mxnet",
                "files": ["studies/inovex_cpu/lenet5_mxnet.py"],
            }
        },
        matrix=[
            {
                "name": "mxnet",
                "trainer": "mxnet",
                "framework": "mxnet",
                "environment": "mxnet",
                "model": "lenet5",
                "dataset": "synthetic",
                "batch_per_device": 32,
                "steps": 40,
            },
            OURS,
        ],
        figures=[],
    )
    fresh.succeed()
    by_framework = {row["framework"]: row for row in rows(fresh)}
    row = by_framework["mxnet"]
    assert row["status"] in TRAINED and row["timing_source"] == "mxnet"
    assert float(row["images_per_second"]) > 0
    assert by_framework["tensorflow"]["timing_source"] == "dlbench"
