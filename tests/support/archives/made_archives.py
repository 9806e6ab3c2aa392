"""A finished study with synthetic logs, and its tables, figures, report and archive.

All that a config can name elsewhere lies elsewhere: a model, a trainer's script, references, a log
that is imported.
"""

import atexit
import dataclasses
import functools
import shutil
import tempfile
import zipfile
from contextlib import chdir
from pathlib import Path

import yaml

from dlbench.archive import crate, write_archive
from dlbench.common import plugins
from dlbench.study import config, other_trainers, trainer_environments
from dlbench.tables import cells
from support.logs import log_samples
from support.programs import in_process
from support.runs import made_runs

REPOSITORY = Path(__file__).parents[3]
FIGURES = ["scaling", "published"]
BLOCK = made_runs.SETTINGS["matrix"][0] | {"batch_per_device": [8]}
ARCHIVE = "results/archive.zip"


@functools.cache
def archived():
    """The folder of such a study, which tests must not change."""
    place = Path(tempfile.mkdtemp(prefix="dlbench-archive-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder = place / "project"
    folder.mkdir()
    finish(folder, settings(place / "elsewhere"))
    with chdir(folder):
        program("dlbench", "archive")
    forget()
    return folder


def forget():
    """Forget the models and trainers that a study registered."""
    plugins.add_user_folder("models")
    other_trainers.register({})


def settings(elsewhere):
    """Write the files that the config names into a folder outside the study. Returns the config."""
    elsewhere.mkdir()
    ours = REPOSITORY / "workflow_scripts/dlbench/trainer/keras/models/lenet5.py"
    (elsewhere / "models").mkdir()
    shutil.copy(ours, elsewhere / "models" / "mine.py")
    (elsewhere / "theirs.py").write_text("print('images/sec: 1')\n")
    (elsewhere / "log").write_text(log_samples.tf_cnn_benchmarks(0.125, 100))
    (elsewhere / "published").mkdir()
    shutil.copy(REPOSITORY / "studies/inovex_cpu/references.csv", elsewhere / "published")
    theirs = {"command": ["python3", "{folder}"], "log": "auto",
              "files": [str(elsewhere / "theirs.py")]}  # fmt: skip
    own = BLOCK | {"model": ["lenet5", "mine"], "dataset": ["synthetic", "digits"]}
    own |= {"exclude": [{"model": "mine", "dataset": "digits", "reason": "the same"}]}
    return made_runs.SETTINGS | {
        "matrix": [own, BLOCK | {"name": "others", "trainer": "theirs", "repeats": 1}],
        "site": made_runs.SETTINGS["site"] | {"device": "auto", "cores_per_node": "auto"},
        "model_folder": str(elsewhere / "models"),
        "trainers": {"theirs": theirs},
        "references": [{"path": str(elsewhere / "published" / "references.csv")}],
        "imports": [{"name": "others", "path": str(elsewhere / "log")}],
        "history": [{"path": str(elsewhere), "site": "theirs"}],
        "machines": {"theirs": ["0123456789ab"]},
        "tags": {"accepted": "20260302T080000Z-3f2a90"},
        "figures": FIGURES,
    }


def finish(folder, content):
    """Write all runs, tables, figures and the report of a study."""
    with chdir(folder):
        for name in write_archive.NAMES:
            Path(name).symlink_to(REPOSITORY / name)
        Path("config.yaml").write_text(yaml.safe_dump(content))
        Path("results/data/digits").mkdir(parents=True)
        Path("results/data/digits/manifest.json").write_text('{"dataset": "digits"}\n')
        Path("results/data/digits/train-00000-of-00001").write_bytes(b"licensed")
        for unchanged in ("results/packages/0123.txt", "results/code/4567.txt"):
            Path(unchanged).parent.mkdir()
            Path(unchanged).write_text("tensorflow 2.18.1\n")
        runs = config.study(content).runs
        trainer_environments.write_choices(runs)
        ours = min((run for run in runs if run.model == "lenet5"), key=lambda run: run.id)
        for number, run in enumerate([*runs, dataclasses.replace(ours, sentinel=1)]):
            failed = {"status": "failed", "message": "no <b>luck</b>"} if number == 1 else {}
            made_runs.finish(run, 60 + number, at=100 * number, **failed)
            place = Path("results/runs", run.id)
            (place / "checkpoint").write_bytes(b"weights")
            (place / "output").mkdir()
            (place / "output" / "printed.log").write_text("step 1\n")
            (place / "output" / "data").symlink_to(Path("results/data").absolute())
            log = Path("results/logs/train", f"{run.id}.log")
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("trained\n")
        derive(content)


def derive(content):
    """Write the tables, figures and report from the runs in this folder."""
    for entry in content["imports"]:
        into = f"results/imports/{entry['name']}"
        tables = (f"--{name}={into}/{name}.parquet" for name in cells.OF_IMPORT)
        output = f"--name={entry['name']}", f"--output={into}/runs.parquet"
        program("dlbench", "import", entry["path"], *output, *tables)
    program("collect_runs.py")
    for name in content["figures"]:
        program("draw_figure.py", name)
    program("dlbench", "report", "--figures", *content["figures"])


def finish_contained(image, entry):
    """Change the study in this folder to runs in an image. Returns its config."""
    block = BLOCK | {"runtime": "apptainer", "environment": image}
    content = made_runs.SETTINGS | {"matrix": [block], "images": {image: entry}}
    for run in config.study(content).runs:
        made_runs.finish(run, 60)
    Path("config.yaml").write_text(yaml.safe_dump(content))
    derive(content)
    return content


def program(name, *arguments, code=0):
    """Do what one of our programs does in this folder. Returns what it prints, errors first."""
    if name == "dlbench":
        finished = in_process.dlbench(*arguments)
    else:
        finished = in_process.program(name, *arguments)
    assert finished.returncode == code, finished.stderr
    return finished.stderr + finished.stdout


def changed(archive, output, changes):
    """Write a sound bag like another with changed files; None removes a file."""
    with zipfile.ZipFile(archive) as source:
        files = {
            name.removeprefix("archive/data/"): source.read(name)
            for name in source.namelist()
            if name.startswith("archive/data/")
        }
    files = {name: content for name, content in (files | changes).items() if content is not None}
    crate.write(output, files, [("Bagging-Date", "2026-01-01")])
    return output
