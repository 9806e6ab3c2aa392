"""A config whose every text is an attack on shells, and files that a group shares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.campaigns.campaign import TRAINED
from support.logs import log_samples
from support.studies.site_facts import CONFIG
from support.trainers.other_trainer import SCRIPT

CANARY = "canary"
# Whichever way a shell would get it: in no quotes, in single ones, in double ones, as a new line.
EVIL = (
    f"a b $(touch {CANARY}1) `touch {CANARY}2` ; touch {CANARY}3 & '; touch {CANARY}4; ' "
    f'"; touch {CANARY}5; " | touch {CANARY}6 \n touch {CANARY}7 \n'
    f" {{wildcards.run_id}} {{{{x}}}} %s \\ * ~ $HOME ü\u202e漢 --output=/nowhere #"
)
FOLDER = EVIL.replace("/", "").replace("\n", "")[:180]
OURS = {
    "name": EVIL, "model": "mine", "dataset": "digits", "batch_per_device": 4,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip
THEIRS = {
    "name": "theirs", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "batch_per_device": 16, "steps": 3,
}  # fmt: skip


def canaries(folder):
    return sorted(path for path in folder.rglob(f"*{CANARY}[0-9]*") if path.stat().st_size == 0)


def doubled(text):
    """Braces as a command has them that are no name of a field."""
    return text.replace("{", "{{").replace("}", "}}")


@pytest.mark.ci
def test_no_text_of_a_config_reaches_a_shell(fresh):
    (fresh.folder / f"{FOLDER}.py").write_text(SCRIPT)
    models = fresh.folder / FOLDER
    models.mkdir()
    source = fresh.folder / "workflow_scripts/dlbench/trainer/keras/models/lenet5.py"
    (models / "mine.py").write_text(source.read_text())
    (fresh.folder / "logs" / FOLDER).mkdir(parents=True)
    (fresh.folder / "logs" / FOLDER / "x.log").write_text(log_samples.tf_cnn_benchmarks(0.5, 20))
    (models / "store").mkdir()
    command = [sys.executable, doubled(f"{FOLDER}.py"), "{batch_per_device}", "{steps}",
               "{optimizer}", doubled(EVIL)]  # fmt: skip
    reason = {"batch_per_device": 8, "exclude": [{"model": "mine", "reason": EVIL}]}
    fresh.configure(
        study=EVIL.replace("/", ""),
        site=CONFIG["site"] | {"name": EVIL, "interconnect": EVIL, "storage": EVIL},
        data=CONFIG["data"] | {"manual_dir": FOLDER, "store": f"{FOLDER}/store"},
        model_folder=FOLDER,
        images={"unused": {"source": EVIL, "binds": [EVIL], "build_binds": [EVIL]}},
        trainers={"softmax": {"command": command, "log": "auto", "files": [f"{FOLDER}.py"]}},
        imports=[{"name": "others", "path": f"logs/{FOLDER}", "fields": {"site": EVIL}}],
        matrix=[OURS, THEIRS, OURS | reason | {"name": "left out"}],
        figures=["scaling"],
    )
    fresh.succeed("all", "report", "tensorboard")
    assert canaries(fresh.folder) == []
    records = fresh.records().values()
    assert {record["spec"]["model"] for record in records} == {"mine", "softmax"}
    for record in records:
        assert record["status"] in TRAINED, record["message"]
        assert record["provenance"]["site"]["name"] == EVIL
    assert fresh.scheduled() == {}


def test_a_name_that_becomes_a_path_must_be_one(fresh):
    for key, message in (
        ({"trainers": {"x; touch canary1": {"command": ["true"], "log": "auto"}}}, "x; touch"),
        ({"imports": [{"name": "$(touch canary1)", "path": "x"}]}, "imports[0]"),
        ({"matrix": [OURS | {"environment": "$(touch canary1)"}]}, "environment"),
        ({"matrix": [OURS | {"model": "$(touch canary1)"}]}, "model"),
        ({"figures": ["../x; touch canary1"]}, "figures"),
        (
            {
                "matrix": [THEIRS | {"model": "A b$(touch canary1)"}],
                "trainers": {"softmax": {"command": ["true"], "log": "auto"}},
            },
            "model",
        ),
    ):
        fresh.configure(**key)
        finished = fresh.snakemake("-n")
        assert finished.returncode != 0, key
        assert message in finished.stdout and "Traceback" not in finished.stdout
        assert canaries(fresh.folder) == []


@pytest.mark.parametrize(("umask", "least"), [(0o002, 0o660), (0o027, 0o640)])
def test_what_is_written_has_the_permissions_of_the_umask(fresh, umask, least):
    fresh.matrix(model="lenet5", dataset=["digits"], exclude=[])
    (fresh.folder / "results").mkdir(mode=0o777 & ~umask)
    (fresh.folder / "results").chmod(0o777 & ~umask)
    finished = subprocess.run(
        fresh.command("all", "report", "tensorboard"),
        cwd=fresh.folder,
        env=fresh.environment(),
        umask=umask,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert finished.returncode == 0, finished.stdout
    wrong = []
    for path in (fresh.folder / "results").rglob("*"):
        mode = path.stat().st_mode & 0o777
        wanted = 0o777 & ~umask if path.is_dir() else least | (0o666 & ~umask)
        if mode != wanted:
            wrong.append(f"{path.relative_to(fresh.folder)} {mode:o}, expected {wanted:o}")
    assert wrong == []
    suffixes = {path.suffix for path in (fresh.folder / "results").rglob("*") if path.is_file()}
    assert {".json", ".jsonl", ".parquet", ".csv", ".svg", ".png", ".pdf", ".html"} <= suffixes


def test_the_paths_of_a_project_may_be_hostile_too(trained, tmp_path):
    # Snakemake itself takes braces in its paths for wildcards.
    place = tmp_path / FOLDER.replace("{", "").replace("}", "")
    campaign = trained.copy(place)
    os.unlink(campaign.record("cnn12-"))
    campaign.succeed()
    assert canaries(tmp_path) == [] and canaries(Path.cwd()) == []
    assert campaign.scheduled() == {}
