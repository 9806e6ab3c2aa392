"""A campaign each night, as docs/history.md has it: a disturbed one, and one after an upgrade."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dlbench.common import tools
from dlbench.history import add_campaign, analyse_history, gate
from dlbench.history.sources import HISTORY, Source
from support.campaigns.campaign import REPOSITORY, Campaign, environment
from support.history import made_campaigns
from support.studies.site_facts import UNDISTURBED

# Two releases of TensorFlow, each with its NumPy: what a site that keeps its link up to date gives.
OLDER, NEWER = (REPOSITORY / "envs" / name for name in ("train", "train-latest"))
PROGRAM = """import time
import tensorflow as tf
import dlbench_log
log = dlbench_log.Log()
values = tf.ones((64, 64))
for step in range(8):
    with log.step():
        values = tf.nn.softmax(values @ values)
        time.sleep(0.04)
"""


@pytest.fixture
def nights(tmp_path, monkeypatch):
    """A clone, and beside it the folder of all nights with a study that only sleeps."""
    clone = Campaign.fresh(tmp_path / "dlbench")
    clone.configure()
    (tmp_path / "program.py").write_text(PROGRAM)
    shutil.copy(clone.folder / "programs/logger/dlbench_log.py", tmp_path)
    program = str(tmp_path / "program.py")
    python = str(tmp_path / "environment/bin/python")
    trainer = {"command": [python, program], "log": "dlbench", "files": [program]}
    block = {
        "name": "all", "trainer": "sleeper", "framework": "tensorflow", "model": "none",
        "dataset": "none", "batch_per_device": 4, "warmup_steps": 2, "steps": 8,
    }  # fmt: skip
    study = UNDISTURBED | {"study": "nightly", "trainers": {"sleeper": trainer}, "matrix": [block]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study | {"figures": []}))
    (tmp_path / "nights/archives").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "nights")
    return clone


def release(environment):
    text = (environment / "pyproject.toml").read_text()
    return re.search(r"tensorflow-cpu==([\d.]+)", text)[1]


def install(clone, environment):
    """Have the link by which the study finds its Python point to an environment."""
    link = clone.folder.parent / "environment"
    link.unlink(missing_ok=True)
    link.symlink_to(environment / ".venv")


def measure(clone, number, *settings):
    """A night as nightly.sh has it, without tables and report: trained, archived and added."""
    folder = clone.folder.parent / "nights" / f"night{number}"
    folder.mkdir()
    night = Campaign(folder)
    night.succeed(
        *("--snakefile", str(clone.folder / "Snakefile")),
        *("--workflow-profile", str(clone.folder / "profiles/default"), "runs"),
        *("--configfile", str(clone.folder.parent / "study.yaml"), "--config", *settings),
    )
    archive = folder.parent / "archives" / f"night{number}.zip"
    made_campaigns.archive(folder / "results", archive, "nightly")
    assert not add_campaign.add(Source(f"archives/{archive.name}"), HISTORY)["refused"]
    shutil.rmtree(folder)


def test_of_five_nights_the_gate_names_the_disturbed_one_and_the_history_the_upgrade(nights):
    install(nights, OLDER)
    for number in (1, 2, 3):
        measure(nights, number, "study=nightly")

    neighbour = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        measure(nights, 4, "others_share=0.05")
    finally:
        neighbour.kill()
        neighbour.wait()
    judged = gate.judge(HISTORY, {})
    (one,) = judged.failures
    assert one.verdict == gate.DISTURBED and not judged.passed
    assert one.reason == "other programs disturbed all of its runs"

    install(nights, NEWER)
    path = os.pathsep.join([str(Path(tools.find_uv()).parent), os.environ["PATH"]])
    variables = {"PATH": path, "UV_PROJECT_ENVIRONMENT": sys.prefix, "UV_NO_SYNC": "1"}
    finished = subprocess.run(
        [nights.folder / "studies/nightly/nightly.sh", ".", "../study.yaml"],
        env=environment() | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = finished.stdout + finished.stderr
    assert finished.returncode == 0, printed  # too little data fails nothing
    assert "5 sessions of the history count; 0 findings" in printed
    (news,) = analyse_history.analyse(HISTORY, {}).news
    before = f"tensorflow {release(OLDER)}"
    assert f"changed: {before} -> {release(NEWER)}" in news
    verdict = Path("gate.md").read_text()
    assert "too little data: 3 of 8 sessions" in verdict
    assert before in verdict.partition("changed since then")[2]
    assert len(os.listdir("archives")) == 5
    assert os.path.isfile("results/site/index.html")
