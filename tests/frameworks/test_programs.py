"""The programs of others that programs/ has, each trained for real, or else parsed."""

import csv
import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image

from dlbench.study import config, other_trainers, trainer_environments
from environments import clone, python_with
from support.campaigns.campaign import Campaign
from support.machines.paths import REPOSITORY

LENGTH = 16
STEPS, WARMUP_STEPS, BATCH = 8, 3, 4
SHAPE = {"layers": 1, "width": 32, "heads": 2}
SHAPE |= {"tokens": STEPS * BATCH * LENGTH, "last_iteration": STEPS - 1, "workers": 1}
SMALL = {
    "steps": STEPS,
    "warmup_steps": WARMUP_STEPS,
    "sequence_length": LENGTH,
    "precision": "float32",
    "batch_per_device": BATCH,
    "devices_per_node": 1,
}
# Of each: the kind of its log, its steps without warm-up, and between what its loss is; that of
# random tokens is about log 256.
TOKENS = (5.1, 6.1)
LIVE = {
    "huggingface": ("dlbench", STEPS - WARMUP_STEPS, TOKENS),
    "lightning": ("dlbench", STEPS - WARMUP_STEPS, TOKENS),
    "litgpt": ("lightning_csv", STEPS - 1, TOKENS),
    "deepspeed": ("dlbench", STEPS - WARMUP_STEPS, TOKENS),
    "maxtext": ("maxtext", STEPS - 5, TOKENS),
    "nanogpt": ("nanogpt", STEPS - 1, TOKENS),
    "imagenet": ("pytorch_imagenet", STEPS - 1, (0, 9)),
    "tf_cnn_benchmarks": ("tf_cnn_benchmarks", STEPS, (0, 9)),
}


def python_of(environment):
    if not trainer_environments.is_installed(environment):
        make = f"dlbench environment envs/{environment}"
        pytest.skip(f"envs/{environment} is not installed: {make} makes it")
    return REPOSITORY / trainer_environments.trainer_python(environment)


def small(name, folder):
    """The trainers of a program's config and a block with one small run, as its users edit them."""
    text = (REPOSITORY / f"programs/{name}/config.yaml").read_text()
    for old, new in EDITS[name](folder).items() if name in EDITS else ():
        assert old in text
        text = text.replace(old, str(new))
    study = yaml.safe_load(text)
    block = study["matrix"][0]
    if "environment" in block:
        python_of(block["environment"])
    steps, own = block.get("steps"), block["parameters"]
    block |= {key: value for key, value in SMALL.items() if key in block}
    own |= {key: value for key, value in SHAPE.items() if key in own}
    block |= {"steps": steps} if isinstance(steps, str) else {}  # a formula of parameters
    for values in (own, block):
        values |= {key: value[0] for key, value in values.items() if isinstance(value, list)}
    return study["trainers"], block


def nanogpt(folder):
    program = folder / "nanoGPT"
    shutil.copytree(clone("karpathy/nanoGPT"), program)
    data, rng = program / "data" / "shakespeare_char", np.random.default_rng(1)
    for name in ("train", "val"):
        rng.integers(256, size=10_000, dtype=np.uint16).tofile(data / f"{name}.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))
    return {
        "/opt/nanoGPT": program,
        "python3": python_of("pytorch"),
        "accelerator: cuda": "accelerator: cpu",
        '["True", "False"]': '"False"',
        "[bfloat16, float32]": "float32",
    }


def imagenet(folder):
    rng = np.random.default_rng(1)
    for part, count in (("train", STEPS * BATCH), ("val", BATCH)):
        for number in range(count):
            path = folder / part / f"class{number % 2}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(path)
    return {
        "/opt/examples": clone("pytorch/examples"),
        "python3": python_with("imagenet"),
        "--gpu=0": "--no-accel",
        "--dummy": folder,
        "--print-freq=10": '--print-freq=1", "--lr=0.001',
    }


def tf_cnn_benchmarks(_):
    further = ("--device=cpu", "--local_parameter_device=cpu", "--data_format=NHWC")
    further += ("--init_learning_rate=0.0001",)  # else the loss is infinite
    return {
        "/opt/benchmarks": clone("tensorflow/benchmarks"),
        "python3": python_with("tf_cnn_benchmarks"),
        '"--tf_random_seed': f'{", ".join(further)}, "--tf_random_seed',
        "--display_every=10": "--display_every=1",
        "[true, false]": "false",
        "resnet50": "googlenet",
    }


def deepspeed(_):
    variables = "    variables: {DS_ACCELERATOR: cpu}\n    steps: 100"
    return {"python3": python_with("deepspeed"), "    steps: 100": variables}


def maxtext(_):
    python = python_with("maxtext")
    settings = next(python.parents[1].glob("lib/python*/site-packages/maxtext/configs/base.yml"))
    tiny = "base_emb_dim=32, base_num_query_heads=2, base_num_kv_heads=2, base_mlp_dim=64"
    tiny += ", base_num_decoder_layers=1, head_dim=16, vocab_size=256, attention=dot_product"
    alone = "JAX_PLATFORMS: cpu, JAX_COORDINATOR_ADDRESS: localhost, JAX_PROCESS_COUNT: 1"
    alone += ", PROCESSES_IN_JOB: 1, JOB_INDEX: 0, JOB_COMPLETION_INDEX: 0"
    return {
        "python3": python,
        "/opt/maxtext/src/maxtext/configs/base.yml": settings,
        "hardware=gpu": f"hardware=cpu, {tiny}",
        "name: llama3-8b": "name: default",
        "    steps: 50": f"    variables: {{{alone}}}\n    steps: 50",
    }


EDITS = {edit.__name__: edit for edit in (nanogpt, imagenet, tf_cnn_benchmarks, deepspeed, maxtext)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Rows of the runs table of one run by each program, why others have none, and the campaign."""
    trainers, matrix, missing, folder = {}, [], {}, tmp_path_factory.mktemp("programs")
    for name in LIVE:
        try:
            trainer, block = small(name, tmp_path_factory.mktemp(name))
        except pytest.skip.Exception as reason:
            missing[name] = str(reason)
        else:
            trainers |= trainer
            matrix.append(block)
    campaign = Campaign.fresh(folder)
    campaign.configure(trainers=trainers, matrix=matrix, figures=["coverage"])
    campaign.succeed()
    with open(campaign.folder / "results/tables/runs.csv", newline="") as file:
        found = {row["trainer"]: row for row in csv.DictReader(file)}
    return campaign, found, missing


@pytest.mark.parametrize("name", LIVE)
def test_a_program_trains_and_its_numbers_are_read(runs, name):
    _, found, missing = runs
    if name in missing:
        pytest.skip(missing[name])
    row = found[name]
    kind, measured, (least, most) = LIVE[name]
    assert row["status"] in ("ok", "unstable"), row["message"]
    assert row["timing_source"] == kind
    assert int(row["steps"] or STEPS) == STEPS and int(row["batch_per_device"]) == BATCH
    rate, step_time_s = float(row["images_per_second"]), float(row["step_time_mean_s"])
    printing = 0.1 if name == "tf_cnn_benchmarks" else 0.0  # is part of its total
    assert rate * step_time_s == pytest.approx(BATCH, rel=0.02 + printing)
    assert least < float(row["final_loss"]) < most
    assert int(row["steps_measured"]) == measured
    if row["sequence_length"]:
        assert row["item_shape"] == str(LENGTH)
        assert float(row["tokens_per_second"]) == pytest.approx(LENGTH * rate)


def test_all_programs_are_in_one_figure_and_nothing_is_left_to_do(runs):
    campaign, found, _ = runs
    picture = (campaign.folder / "results/figures/coverage.svg").read_text()
    assert all(f"{row['model']}, {row['dataset']}" in picture for row in found.values())
    assert campaign.scheduled() == {}


# Of programs for GPUs alone: lines that have their own parser read the arguments `words`.
PARSERS = {
    "megatron": "from megatron.training.arguments import parse_args as parse\n",
    "torchtitan": "from torchtitan.components.quantization import mx\n"
    "mx.has_cuda_capability = lambda *_: True\n"
    "from torchtitan.config import ConfigManager\n"
    "def parse(): ConfigManager().parse_args(sys.argv[1:])\n",
}
EACH = "for words in json.load(open(sys.argv[1])): sys.argv = words; parse()\nprint('all read')"


@pytest.mark.parametrize("name", PARSERS)
def test_commands_for_gpus_are_those_that_the_program_s_own_parser_takes(
    name, tmp_path, monkeypatch
):
    if name == "megatron":
        python, path = python_with(name), str(clone("NVIDIA/Megatron-LM"))
    else:
        python, path = python_of(name), ""
    monkeypatch.chdir(REPOSITORY)
    study = config.study(config.read("config.yaml", f"programs/{name}/config.yaml"))
    (tmp_path / "print.py").write_text("import json, sys; print(json.dumps(sys.argv))")
    printing = {"/opt/Megatron-LM/pretrain_gpt.py": str(tmp_path / "print.py")}
    printing |= {"python3": sys.executable}
    commands = []
    for run in study.runs:
        words = other_trainers.command(run, "PYTHON", "", "FOLDER")
        if name == "megatron":  # a shell makes its arguments
            words = [printing.get(word, word) for word in words]
            words = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        else:
            words = words[2:]
        commands.append(words)
    (tmp_path / "commands.json").write_text(json.dumps(commands))
    start = (python, "-c", f"import json, sys\n{PARSERS[name]}{EACH}", tmp_path / "commands.json")
    environment = os.environ | {"PYTHONPATH": path, "WORLD_SIZE": "8"}
    read = subprocess.run(start, capture_output=True, text=True, env=environment, check=False)
    assert read.stdout.endswith("all read\n"), read.stderr[-2000:]
    # A flag that it does not have is noticed.
    (tmp_path / "commands.json").write_text(json.dumps([[*commands[0], "--no-such-flag=1"]]))
    assert subprocess.run(start, capture_output=True, env=environment, check=False).returncode
