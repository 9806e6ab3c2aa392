"""What is around the runs of other programs: samples, binding, copies, limits, and their end."""

import csv
import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import yaml

from support.campaigns.campaign import REPOSITORY
from support.trainers.other_trainer import ESCAPES, SCRIPT, SIGNS_OF_LIFE

TRAINED = ("ok", "unstable")  # on a busy machine steps stall


def rows(campaign, table="runs"):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


def record(campaign, row):
    path = campaign.folder / "results/runs" / row["run_id"] / "run.json"
    return json.loads(path.read_text())


def trainer(script, *words, **changes):
    command = [sys.executable, script, *words]
    return {"command": command, "log": "tf_cnn_benchmarks", "files": [script], **changes}


def test_another_programs_runs_are_bound_sampled_packed_and_accounted_for(fresh):
    (fresh.folder / "softmax.py").write_text(ESCAPES + SCRIPT)
    softmax = trainer(
        "softmax.py", "{batch_per_device}", "{steps}", "{pace}",
        model_flops_per_item="2e9 * {weight} / {devices}",
    )  # fmt: skip
    softmax["command"].append("{weight}")
    block = {
        "name": "theirs", "trainer": "softmax", "framework": "numpy", "model": "softmax",
        # Large batches: the rate is printed with one digit, which must tell the time of each step.
        "dataset": "noise", "batch_per_device": 2560, "steps": 80,
        "parameters": {"pace": "slow", "weight": 4}, "copies_per_node": [1, 2],
    }  # fmt: skip
    site = yaml.safe_load((REPOSITORY / "config.yaml").read_text())["site"]
    site |= {"device_peak_tflops": {"float32": 10.0}}
    fresh.configure(matrix=[block], trainers={"softmax": softmax}, site=site, figures=[])
    fresh.succeed()
    one, two = sorted(rows(fresh), key=lambda row: row["copies_per_node"])
    for row in (one, two):
        assert row["status"] in TRAINED, row["message"]
        assert float(row["model_flops_per_item"]) == 8e9
        expected = 8e9 * float(row["images_per_second"]) / 1e13
        assert float(row["mfu"]) == pytest.approx(expected)
        assert float(row["cpu_time_s"]) > 0.5 and int(row["peak_memory_bytes"]) > 2**20
        assert "no GPUs" in record(fresh, row)["summary"]["energy_unknown"]
    folder = fresh.folder / "results/runs" / one["run_id"]
    samples = pq.read_table(folder / "samples.parquet").to_pylist()
    assert len(samples) > 2 and max(each["cpu_percent"] or 0 for each in samples) > 10
    assert all(0 <= each["node_cpu_percent"] <= 100 for each in samples[1:])
    (cores,) = ([*record(fresh, one)["provenance"]["cores"]],)
    assert len(cores) == 1  # as a device of ours
    assert f"cores {cores} threads 1" in (folder / "output/printed.log").read_text()
    accounts = {(r["run_id"], r["part"]): float(r["spent_s"]) for r in rows(fresh, "accounts")}
    for row in (one, two):
        assert all(accounts[row["run_id"], part] > 0 for part in ("steps", "other"))
    # Copies: each on a core of its own, with a log of its own, measured at the same time.
    folder = fresh.folder / "results/runs" / two["run_id"]
    printed = [(folder / name / "printed.log").read_text() for name in ("output", "output-1")]
    assert len({text.splitlines()[0] for text in printed}) == 2
    rates = record(fresh, two)["summary"]["copies_images_per_second"]
    assert float(two["images_per_second"]) == pytest.approx(sum(rates) / 2)
    assert 0 < float(two["overlap"]) <= 1
    # Each started a process in a session of its own, which would have outlived it.
    assert subprocess.run(["pgrep", "-f", "sleep 1000.25"], check=False).returncode == 1


def test_a_program_at_its_limits_is_told_and_ended_and_what_it_did_is_recorded(fresh):
    (fresh.folder / "lives.py").write_text(SIGNS_OF_LIFE)
    lives = trainer("lives.py", "{how}", stop_signal="SIGUSR1", stop_grace_s=2)
    block = {
        "name": "theirs", "trainer": "lives", "framework": "none", "model": "none",
        "dataset": "none", "batch_per_device": 1, "steps": 1,
        "parameters": {"how": ["answers", "ignores", "silent"]},
    }  # fmt: skip
    limits = {"time_limit_s": 12, "hang_limit_s": 3}  # what begins a log takes a while
    fresh.configure(matrix=[block], trainers={"lives": lives}, figures=[], **limits)
    fresh.succeed()
    ended = {row["parameters.how"]: (row["status"], row["message"]) for row in rows(fresh)}
    status, message = ended["answers"]
    assert status == "timeout" and "it ended within 2 s of SIGUSR1" in message
    assert message.endswith("| checkpoint written")
    status, message = ended["ignores"]
    assert status == "timeout" and "it did not end within 2 s of SIGUSR1" in message
    status, message = ended["silent"]
    assert status == "failed" and "hung: no output for 3 s" in message
    assert "it has printed nothing yet" in message
