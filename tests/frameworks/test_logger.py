"""The logger's examples and callbacks (programs/logger), each with its own framework; energy."""

import json
import os
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.imports import import_logs, train_external
from dlbench.records import parse_run
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers.powercap_trees import two_sockets

LOGGER = REPOSITORY / "programs/logger"
LIGHTNING = """
import lightning, torch
from dlbench_lightning import DlbenchLog

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_acc", (self.layer(batch[0]).argmax(1) == batch[1]).float().mean())
        self.log("val/f1", 0.25)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

items = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
loader = torch.utils.data.DataLoader(items, batch_size=16)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, callbacks=[DlbenchLog(global_batch=16)],
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), loader, loader)
"""
HUGGING_FACE = """
import torch, transformers
from dlbench_huggingface import DlbenchLog

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, inputs, labels=None):
        scores = self.layer(inputs)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}

items = [{"inputs": torch.randn(8), "labels": torch.tensor(n % 2)} for n in range(64)]
args = transformers.TrainingArguments(
    "out", max_steps=8, per_device_train_batch_size=16, logging_steps=2, eval_strategy="steps",
    eval_steps=4, save_steps=4, report_to=[], use_cpu=True, disable_tqdm=True,
)
transformers.Trainer(
    Model(), args, train_dataset=items, eval_dataset=items[:16],
    callbacks=[DlbenchLog(global_batch=16)],
    compute_metrics=lambda found: {"accuracy": 0.5, "f1": 0.25},
).train()
"""
# By environment: the command after Python.
PROGRAMS = {
    "pytorch": [str(LOGGER / "pytorch_loop.py"), "--steps=8", "--batch=16"],
    "jax": [str(LOGGER / "jax_loop.py"), "--steps=8", "--batch=16"],
    "train": [str(LOGGER / "keras_fit.py"), "--steps=8", "--batch=16"],
    "lightning": ["-c", LIGHTNING],
    "huggingface": ["-c", HUGGING_FACE],
}
METRICS = {"lightning": "val_f1", "huggingface": "eval_f1"}
SCORED = ("pytorch", "train", "lightning", "huggingface")


@pytest.mark.parametrize(
    "environment",
    [pytest.param(name, marks=() if name in METRICS else pytest.mark.ci) for name in PROGRAMS],
)
def test_a_program_logs_each_step_its_loss_and_its_evaluation(environment, tmp_path):
    python = REPOSITORY / "envs" / environment / ".venv/bin/python"
    if not python.exists():
        pytest.skip(f"{python} is not there; dlbench environment makes it")
    log = tmp_path / "train.jsonl"
    variables = {"PYTHONPATH": str(LOGGER), "DLBENCH_LOG": str(log), "DLBENCH_WARMUP_STEPS": "2"}
    finished = subprocess.run(
        [python, *PROGRAMS[environment]],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "dlbench_log:" not in finished.stderr
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (row,) = import_logs.import_paths([log], {"global_batch": 16}).rows
    assert (row["steps_measured"], row["burn_in_steps"]) == (6, 2)
    assert row["images_per_second"] > 0 and row["final_loss"] > 0
    assert row["status"] in ("ok", "unstable"), row["message"]
    if environment in SCORED:
        assert 0 <= row["top1"] <= 1
    if environment in METRICS:
        named = {event["name"]: event["value"] for event in events if event["event"] == "metric"}
        assert named[METRICS[environment]] == 0.25
    if environment in ("pytorch", "lightning", "huggingface"):
        assert [event for event in events if event["event"] == "checkpoint"]


RANKS = """
import os, pathlib, sys, time
import dlbench_log

log = dlbench_log.Log()
counter = pathlib.Path(sys.argv[1])
for _ in range(3):
    with log.step():
        time.sleep(0.05)
        if log.rank == 0:  # the node spends 2 J a step
            counter.write_text(str(int(counter.read_text()) + 2_000_000))
log.close()
"""


def test_four_ranks_under_torchrun_count_the_energy_of_their_node_once(
    python, tmp_path, monkeypatch
):
    tree = two_sockets(tmp_path / "powercap")
    monkeypatch.setattr(plugins.load("energy_readers", "rapl"), "ROOT", tree.root)
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    fields = {"model": "m", "dataset": "d", "batch_per_device": 8, "steps": 3, "warmup_steps": 0}
    run = Run(**fields, trainer="theirs", framework="numpy", devices_per_node=4)
    command = [python("pytorch"), "-m", "torch.distributed.run", "--nproc-per-node=4", program]
    monkeypatch.setenv("PYTHONPATH", str(LOGGER))
    log = tmp_path / "run/train.jsonl"
    log.parent.mkdir()
    watching = train_external.Watching(sample_every_s=0.2)
    counter = str(tree.root / "intel-rapl:1/energy_uj")
    train_external.train(run, [*map(str, command), counter], "auto", log, watching=watching)
    logs = [path.read_text() for path in sorted(log.parent.rglob("*.jsonl"))]
    assert len(logs) == 8 and sum('"host_energy_j"' in text for text in logs) == 1
    summary = parse_run.content(run, parse_run.rank_logs(log))["summary"]
    assert summary["steps_measured"] == 3
    assert (summary["host_energy_j"], summary["host_energy_source"][:22]) == (
        6,
        "processors and memory:",
    )
