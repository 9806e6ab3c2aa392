"""code: which files a program executes, and digests that follow their content."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.common import own_code, plugins
from dlbench.records import staleness
from dlbench.study.runs import PLUGIN_FOLDERS, Run

REPOSITORY = Path(__file__).parents[3]
PROGRAMS = REPOSITORY / "workflow_scripts"
LENET = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
IN_AN_IMAGE = {"dlbench", "horovod", "keras", "numpy", "tensorflow"}
DIGESTS = """
import json
from dlbench.common import own_code
from dlbench.records import staleness
from dlbench.study.runs import Run
runs = {
    model: Run(model=model, dataset="synthetic", batch_per_device=8, steps=5)
    for model in ("lenet5", "cnn12")
}
code = {model: staleness.training_code(run) for model, run in runs.items()}
print(json.dumps({model: own_code.digest(files) for model, files in code.items()}))
"""


def short(files):
    return {file.removeprefix("workflow_scripts/") for file in files}


def test_a_run_executes_its_own_plugins_and_no_others():
    files = short(staleness.training_code(LENET))
    for key, folder in PLUGIN_FOLDERS.items():
        executed = {Path(file).stem for file in files if Path(file).parent.name == folder}
        assert executed - {"__init__"} == {getattr(LENET, key)}, folder
    assert "dlbench/trainer/tensorflow/tasks/classification.py" in files
    assert "dlbench/trainer/tensorflow/tasks/segmentation.py" not in files


def test_what_only_the_workflow_executes_is_no_part_of_training():
    files = short(staleness.training_code(LENET))
    others = ("archive", "analysis", "images/trainer_image", "plan", "records", "results", "tables")
    assert not [file for file in files if file.startswith(tuple(f"dlbench/{o}" for o in others))]
    assert not files & {"dlbench/study/config.py", "dlbench/data/convert_dataset.py"}


def test_imports_are_followed_into_functions_and_packages():
    files = short(own_code.executed_files("convert_dataset.py", plugins.path("datasets", "digits")))
    assert "dlbench/data/arrays.py" in files  # imported in a function of digits
    assert "dlbench/__init__.py" in files
    assert "dlbench/data/tfrecord.py" in files  # imported by conversion, not by the program


def test_the_files_are_named_as_the_workflow_sees_them_and_exist():
    files = own_code.executed_files("train.py")
    assert files == sorted(set(files))
    for file in files:
        assert (REPOSITORY / file).is_file(), file


def at_import(tree):
    """The packages that a file imports as soon as it is imported itself."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_what_enters_an_image_imports_the_framework_and_the_standard_library_only():
    # Launchers run outside; only the workflow loads them.
    kinds = ("models", "datasets", "strategies", "runtimes", "tasks")
    named = [plugins.path(kind, name) for kind in kinds for name in plugins.names(kind)]
    for file in own_code.executed_files("train.py", *named):
        if file.endswith("dlbench/data/archives.py"):
            continue  # of the workflow's side of datasets
        found = set(at_import(ast.parse((REPOSITORY / file).read_bytes())))
        assert found <= IN_AN_IMAGE | sys.stdlib_module_names, file


def test_no_file_of_the_library_imports_snakemake():
    for file in PROGRAMS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            names.append(getattr(node, "module", None) or "")
            assert not any(name.split(".")[0] == "snakemake" for name in names), file


@pytest.fixture
def copied(tmp_path):
    """Digests of the training code of two models, after some files of a copy were changed."""
    folder = tmp_path / "workflow_scripts"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def digests(*changed):
        for name in changed:
            with open(folder / name, "a") as file:
                file.write("\n# changed\n")
        answer = subprocess.run(
            [sys.executable, "-B", "-c", DIGESTS],
            cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, check=True,
        )  # fmt: skip
        return json.loads(answer.stdout)

    return digests


def test_a_changed_file_changes_what_executes_it_and_nothing_else(copied):
    before = copied()
    assert before["lenet5"] != before["cnn12"]
    others = (
        "dlbench/figures/loss.py",
        "dlbench/study/config.py",
        "dlbench/tables/parquet_files.py",
        "parse_run.py",
    )
    assert copied(*others) == before
    model = copied("dlbench/trainer/tensorflow/models/cnn12.py")
    assert model["lenet5"] == before["lenet5"]
    assert model["cnn12"] != before["cnn12"]
    shared = copied("dlbench/log/event_log.py")
    assert shared["lenet5"] != model["lenet5"]
    assert shared["cnn12"] != model["cnn12"]


def test_the_digest_does_not_depend_on_where_the_workflow_lies(copied):
    assert copied()["lenet5"] == own_code.digest(staleness.training_code(LENET))


def test_a_renamed_file_is_another_one(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("same")
    digests = [own_code.digest([str(tmp_path / name)]) for name in ("a.py", "b.py")]
    assert digests[0] != digests[1]


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match=r"no_such_program\.py"):
        own_code.executed_files("no_such_program.py")
