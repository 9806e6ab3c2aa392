"""own_code: which files a program executes, and the digests of these files."""

import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.common import own_code, plugins
from dlbench.records import judgement
from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.machines import pythons

REPOSITORY = Path(__file__).parents[3]
PROGRAMS = REPOSITORY / "workflow_scripts"
LENET = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
DIGESTS = """
import json
from dlbench.common import own_code
from dlbench.records import judgement
from dlbench.study.runs import Run
def run(model="lenet5", dataset="synthetic", **fields):
    return Run(model=model, dataset=dataset, batch_per_device=8, steps=5, **fields)

runs = {"lenet5": run(), "cnn12": run("cnn12"), "digits": run(dataset="digits"),
        "udocker": run(runtime="udocker", environment="own")}
digests = {name: own_code.digest(judgement.training_code(run)) for name, run in runs.items()}
for dataset in ("digits", "mnist", "ptb", "ramp_astro"):
    digests["data of " + dataset] = judgement.recipe(dataset)
print(json.dumps(digests))
"""
DIGEST_OF = "import sys; from dlbench.common import own_code; print(own_code.digest(sys.argv[1:]))"
OTHER_PYTHONS = [python for version in pythons.SUPPORTED if (python := pythons.find(version))]
# The files behind LENET: what can change its numbers.
BEHIND_LENET = {
    "train.py",
    "dlbench/__init__.py",
    "dlbench/common/assignments.py",
    "dlbench/common/files.py",
    "dlbench/common/options.py",
    "dlbench/common/orphans.py",
    "dlbench/common/plugins.py",
    "dlbench/images/runtimes/bare.py",
    "dlbench/starting/launchers/none.py",
    "dlbench/log/event_log.py",
    "dlbench/machine/binding.py",
    "dlbench/machine/gpus.py",
    "dlbench/trainer/checkpoints.py",
    "dlbench/trainer/copies.py",
    "dlbench/trainer/engine.py",
    "dlbench/trainer/flags.py",
    "dlbench/trainer/loop.py",
    "dlbench/trainer/sampling.py",
    "dlbench/trainer/schedule.py",
    "dlbench/trainer/strategy.py",
    "dlbench/trainer/updates.py",
    "dlbench/trainer/keras/building.py",
    "dlbench/trainer/reading/converted.py",
    "dlbench/trainer/reading/manifest.py",
    "dlbench/trainer/tensorflow/engine.py",
    "dlbench/trainer/keras/models/lenet5.py",
    "dlbench/trainer/tensorflow/pipelines.py",
    "dlbench/trainer/tensorflow/step.py",
    "dlbench/trainer/tensorflow/strategies/__init__.py",
    "dlbench/trainer/tensorflow/strategies/single.py",
    "dlbench/trainer/tasks.py",
    "dlbench/trainer/train.py",
}
DIGITS, MNIST = "dlbench/data/datasets/digits.py", "dlbench/data/datasets/mnist.py"
CODE = ("", "\nCHANGED = 1\n")  # after the end of a file
# (file, what is replaced, by what)
DESCRIBED = {
    "a title": (DIGITS, "Optical recognition", "Recognition"),
    "a citation of another length": (DIGITS, "Optical Recognition of Handwritten Digits. ", ""),
    "a licence": (DIGITS, "CC BY 4.0", "CC0"),
    "terms": (DIGITS, 'TERMS = ""', 'TERMS = "https://example.org/terms"'),
    "a file's address": (DIGITS, "package:sklearn", "https://example.org/sklearn"),
    "one more mirror": (MNIST, "MIRRORS = (\n", 'MIRRORS = (\n    "https://example.org/",\n'),
    "another mirror": ("dlbench/data/datasets/ptb.py", "githubusercontent", "example"),
    "the processor": ("dlbench/machine/hardware.py", *CODE),
    "where a run is": ("dlbench/trainer/containment.py", *CODE),
    "what a log says of the machine": ("dlbench/trainer/description.py", *CODE),
    "what is hidden": ("dlbench/machine/redaction.py", *CODE),
    "what a model computes": ("dlbench/trainer/model_flops.py", *CODE),
    "rules for layers": ("dlbench/trainer/keras/flops.py", *CODE),
    "calibrations": ("dlbench/trainer/calibration.py", *CODE),
    "profiles": ("dlbench/trainer/profiling.py", *CODE),
    "words of mistakes": ("dlbench/common/phrases.py", *CODE),
    "bounds of flags": ("dlbench/common/command_line.py", *CODE),
    "a field": ("dlbench/common/run_fields.py", *CODE),
    "checks of a log's fields": ("dlbench/log/event_fields.py", *CODE),
    "a room": ("dlbench/trainer/__init__.py", '"""', '"""Here: '),
    "image layouts": ("dlbench/images/oci.py", *CODE),
    "a figure": ("dlbench/drawing/figures/loss.py", *CODE),
    "a comment": ("dlbench/trainer/engine.py", "", "\n# changed\n"),
    "a comment in a line": ("dlbench/trainer/updates.py", "0.999)", "0.999)  # changed"),
    "a docstring of a module": ("dlbench/trainer/loop.py", '"""', '"""Changed. '),
    "a docstring of a function": ("dlbench/trainer/updates.py", '"""Whether', '"""If'),
    "the layout of lines": (
        "dlbench/trainer/updates.py",
        "(0.9, 0.999)",
        "(\n    0.9,\n    0.999,\n)",
    ),
}
ALL = {"lenet5", "cnn12", "digits", "udocker"}
# ... and whose digests change.
CHANGING = {
    "a number": ("dlbench/trainer/updates.py", "0.999", "0.99", ALL),
    "the model": ("dlbench/trainer/keras/models/classic_cnn.py", *CODE, {"cnn12"}),
    "the loop": ("dlbench/trainer/loop.py", *CODE, ALL),
    "the step": ("dlbench/trainer/tensorflow/step.py", *CODE, ALL),
    "the strategy": ("dlbench/trainer/tensorflow/strategies/single.py", *CODE, ALL),
    "what reads a log": ("dlbench/log/event_log.py", *CODE, ALL),
    "what GPUs do": ("dlbench/machine/gpus.py", *CODE, ALL),
    "the runtime": ("dlbench/images/runtimes/udocker.py", *CODE, {"udocker"}),
    "a reader": (DIGITS, '"first_label": 0', '"first_label": 1', {"data of digits"}),
    "what a file is": (DIGITS, "09f66e", "09f66f", {"data of digits"}),
    "an address that nothing vouches for": (
        "dlbench/data/datasets/ramp_astro.py",
        "storage.ramp",
        "example.ramp",
        {"data of ramp_astro"},
    ),
}


def short(files):
    return {file.removeprefix("workflow_scripts/") for file in files}


def test_the_files_behind_a_run_are_these():
    assert short(judgement.training_code(LENET)) == BEHIND_LENET


def test_what_drops_or_reads_files_before_a_run_is_behind_runs_that_ask_for_it():
    cold = short(judgement.training_code(dataclasses.replace(LENET, page_cache="cold")))
    assert cold - BEHIND_LENET == {"dlbench/trainer/reading/page_cache.py"}


def test_a_run_executes_its_own_plugins_and_no_others():
    files = short(judgement.training_code(LENET))
    for key, folder in judgement.EXECUTED.items():
        executed = {Path(file).stem for file in files if f"/{folder}/" in file}
        assert executed - {"__init__"} == {getattr(LENET, key)}, folder


def test_a_run_of_pytorch_executes_the_file_that_has_its_models_constants():
    run = dataclasses.replace(LENET, framework="pytorch", model="resnet20", dataset="synthetic")
    models = {file for file in short(judgement.training_code(run)) if "/models/" in file}
    assert models == {f"dlbench/trainer/{of}/models/resnet.py" for of in ("keras", "pytorch")}


def test_a_run_executes_the_code_of_its_framework_and_of_no_other():
    for framework, other in itertools.permutations(engine.names(), 2):
        files = short(judgement.training_code(dataclasses.replace(LENET, framework=framework)))
        assert f"dlbench/trainer/{framework}/engine.py" in files
        assert not [file for file in files if file.startswith(f"dlbench/trainer/{other}/")]


def test_imports_are_followed_into_functions_and_packages():
    files = short(own_code.executed_files("convert_dataset.py", plugins.path("datasets", "digits")))
    assert "dlbench/data/sources.py" in files  # imported in a function of digits
    assert "dlbench/__init__.py" in files
    assert "dlbench/common/tfrecord.py" in files  # imported by conversion, not by the program


@pytest.fixture
def copied(tmp_path):
    """Digests of the code of runs and of datasets, after files of a copy were changed."""
    folder = tmp_path / "workflow_scripts"
    # With what Python has compiled, or each process would do it again; others are being written.
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("*.pyc.*"))

    def digests(*edits):
        for name, before, after in edits:
            text = (folder / name).read_text()
            assert before in text
            edited = text.replace(before, after, 1) if before else text + after
            (folder / name).write_text(edited)
        answer = subprocess.run(
            [sys.executable, "-B", "-c", DIGESTS],
            cwd=folder,
            env={"PYTHONPATH": str(folder)},
            capture_output=True,
            check=True,
        )
        return json.loads(answer.stdout)

    return digests


def test_a_change_of_what_is_only_described_trains_nothing_again(copied):
    before = copied()
    assert len(set(before.values())) == len(before) - 1  # lenet5 on synthetic data and on digits
    # All at once, since each digest of all code takes seconds; if it fails, one by one shows which.
    assert copied(*DESCRIBED.values()) == before
    others = ("study/config.py", "tables/parquet_files.py", "data/convert_dataset.py")
    after = copied(*((f"dlbench/{other}", *CODE) for other in others), ("collect_runs.py", *CODE))
    assert {name: after[name] for name in ALL} == {name: before[name] for name in ALL}


@pytest.mark.ci
def test_a_changed_file_changes_what_executes_it_and_nothing_else(copied):
    before = copied()
    for what, (file, *edit, changed) in CHANGING.items():
        after = copied((file, *edit))
        assert {name for name in after if after[name] != before[name]} == changed, what
        before = after


def test_addresses_that_are_not_in_a_datasets_own_entries_are_beside_digests_of_their_files():
    for name in plugins.names("datasets"):
        dataset = plugins.load("datasets", name)
        if hasattr(dataset, "MIRRORS"):
            assert all(known["sha256"] for known in dataset.FILES.values()), name


def test_the_digest_does_not_depend_on_where_the_workflow_lies(copied):
    assert copied()["lenet5"] == own_code.digest(judgement.training_code(LENET))


SOURCE = """
def f(x, *, y=None):
    return f"{x:{y}} {x!r}" "", u"", "", 1, 1.0, True, None, "\\u0378", b"\\xff", {**x}, x[1:]
"""
# Each computes something else.
OTHERS = {
    "a number of another type": ("1.0", "1"),
    "a text": ('u""', 'u"0"'),
    "one text less": (', u""', ""),
    "a default": ("y=None", "y=0"),
    "one None less": (", None", ""),
    "an order": ("1, 1.0", "1.0, 1"),
    "an argument by its name": ("*, y", "y"),
    "a conversion": ("!r", "!s"),
}


def test_what_computes_something_else_has_another_digest(tmp_path):
    texts = [SOURCE, *(SOURCE.replace(before, after, 1) for before, after in OTHERS.values())]
    paths = [tmp_path / str(number) / "a.py" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir()
        path.write_text(text)
    assert len({own_code.digest([str(path)]) for path in paths}) == len(texts)


@pytest.mark.skipif(not OTHER_PYTHONS, reason="this machine has no other Python")
def test_the_digest_is_the_same_on_each_python(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    files = [str(tmp_path / "a.py"), *judgement.training_code(LENET)]
    for python in OTHER_PYTHONS:
        command = [python, "-B", "-c", DIGEST_OF, *files]
        answer = subprocess.run(command, cwd=PROGRAMS, capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == own_code.digest(files), python


def test_a_renamed_file_is_another_one(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("same")
    digests = [own_code.digest([str(tmp_path / name)]) for name in ("a.py", "b.py")]
    assert digests[0] != digests[1]


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match=r"no_such_program\.py"):
        own_code.executed_files("no_such_program.py")
