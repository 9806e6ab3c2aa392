"""The programs of others that programs/ has, each trained for real, in its own environment."""

import csv

import pytest
import yaml

from dlbench.study import trainer_environments
from support.campaigns.campaign import Campaign
from support.machines.paths import REPOSITORY

SHAPE = {"layers": 1, "width": 32, "heads": 2}
LENGTH = 16
LIVE = ("huggingface", "lightning", "litgpt")
STEPS, WARMUP_STEPS, BATCH = 8, 3, 4
TOKENS = STEPS * BATCH * LENGTH
TIMES = {"huggingface": "dlbench", "lightning": "dlbench", "litgpt": "lightning_csv"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Rows of the runs table of one run by each program, and the folder of the campaign."""
    trainers, matrix = {}, []
    for name in LIVE:
        study = yaml.safe_load((REPOSITORY / f"programs/{name}/config.yaml").read_text())
        (block,) = study["matrix"]
        if not trainer_environments.is_installed(block["environment"]):
            make = f"dlbench environment envs/{block['environment']}"
            pytest.skip(f"envs/{block['environment']} is not installed: {make} makes it")
        parameters = block["parameters"] | SHAPE
        if "tokens" in parameters:
            parameters["tokens"] = TOKENS
        else:
            block |= {"steps": STEPS, "warmup_steps": WARMUP_STEPS}
        block |= {"sequence_length": LENGTH, "batch_per_device": BATCH}
        matrix.append(block | {"parameters": parameters})
        trainers |= study["trainers"]
    campaign = Campaign.fresh(tmp_path_factory.mktemp("programs"))
    campaign.configure(trainers=trainers, matrix=matrix, figures=["loss"])
    campaign.succeed()
    with open(campaign.folder / "results/tables/runs.csv", newline="") as file:
        found = {row["trainer"]: row for row in csv.DictReader(file)}
    return campaign, found


@pytest.mark.parametrize("name", LIVE)
def test_a_program_trains_and_its_numbers_are_read(runs, name):
    _, found = runs
    row = found[name]
    assert row["status"] in ("ok", "unstable"), row["message"]
    assert row["timing_source"] == TIMES[name]
    assert int(row["steps"]) == STEPS and int(row["batch_per_device"]) == BATCH
    assert row["item_shape"] == str(LENGTH)
    rate, step_time_s = float(row["images_per_second"]), float(row["step_time_mean_s"])
    assert float(row["tokens_per_second"]) == pytest.approx(LENGTH * rate)
    assert rate * step_time_s == pytest.approx(BATCH, rel=0.02)
    assert float(row["final_loss"]) == pytest.approx(5.6, abs=0.5)  # log 256: tokens are random
    assert row["parameters.layers"] == "1"
    if TIMES[name] == "dlbench":  # each step has its time
        assert int(row["steps_measured"]) == STEPS - WARMUP_STEPS


def test_all_programs_are_in_one_figure_and_nothing_is_left_to_do(runs):
    campaign, _ = runs
    picture = (campaign.folder / "results/figures/loss.svg").read_text()
    assert all(f"{model} · synthetic" in picture for model in ("gpt", "gpt2", "transformer"))
    assert campaign.scheduled() == {}
