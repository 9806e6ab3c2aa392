"""Each program of benchmarks runs, with its smallest arguments, and hands over sane figures."""

import json
import math
import os
import subprocess
import sys

import pytest

from benchmarks import REPOSITORY
from benchmarks import __main__ as benchmarks
from benchmarks.measuring import python_of
from support.results import chromium

pytestmark = pytest.mark.slow

# By program, and by framework where that decides: parts of names of figures, which must be there.
FIGURES = {
    "planning": ("dry run of one, CPU time", "nothing to do, memory", "scheduled beyond its own"),
    "training_step": {
        "tensorflow": ("the bare step", "Keras' fit", "Horovod's synthetic benchmark"),
        "pytorch": ("the bare step", "the bare step, compiled"),
        "jax": ("the bare step",),
    },
    "two_processes": {
        "tensorflow": ("single", "mirrored", "multiworker", "horovod, efficiency from one to two"),
        "pytorch": ("ddp, over the bare program",),
        "jax": ("a process for each node", "a process for each device, over the bare program"),
    },
    "reading": ("read and cropped", "whole decodes by TensorFlow", "whole decodes by simplejpeg"),
    "sampling": ("back to back", "over psutil's", "in the thread", "at 1 Hz"),
    "aggregation": ("CPU time", "memory", "over a bare loop's", "dlbench export"),
    "report": ("making", "size", "opening it", "sorting its table"),
    "import_logs": ("program, CPU time over", "importer, memory over the naive loop's"),
    "drift": ("cells beyond their bounds", "least share of 95 % intervals", "false verdict"),
    "history": ("histories with a false finding", "sessions without a change that fail"),
}
MAY_BE_ZERO = ("beyond", "false", "that fail")  # parts of names of counts and rates
CASES = [
    pytest.param(name, framework, id=f"{name} {framework}".strip())
    for name in FIGURES
    for framework in benchmarks.PROGRAMS[name].frameworks or ("",)
]
# Loops that PyTorch compiles for one number at a time: to see which vectors there are is slow.
SCALAR = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}


@pytest.mark.parametrize(("name", "framework"), CASES)
def test_a_program_hands_over_its_figures(name, framework, tmp_path):
    program, file = benchmarks.PROGRAMS[name], tmp_path / "figures"
    if not python_of(framework).is_file():
        pytest.skip(f"there is no environment of {framework}: dlbench environment makes it")
    if program.needs == "Chromium" and not chromium.installed():
        pytest.skip("there is no Chromium here")
    command = benchmarks.command(name, framework, [*program.smallest.split(), "--json", file])
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | SCALAR, capture_output=True, text=True
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
    found = {}
    for line in file.read_text().splitlines():
        figure = json.loads(line)
        assert figure["name"] not in found
        found[figure["name"]] = figure["values"]
    parts = FIGURES[name][framework] if isinstance(FIGURES[name], dict) else FIGURES[name]
    assert [part for part in parts if not any(part in one for one in found)] == []
    for name, values in found.items():
        assert values and all(math.isfinite(value) for value in values), name
        assert min(values) > 0 or any(part in name for part in MAY_BE_ZERO), name


def test_a_program_that_is_run_by_hand_says_how_it_is_used():
    (by_hand,) = benchmarks.PROGRAMS.keys() - FIGURES.keys()
    command = [sys.executable, "-m", f"benchmarks.{by_hand}", "--help"]
    assert "usage" in subprocess.check_output(command, cwd=REPOSITORY, text=True)


def test_results_are_written_also_if_a_program_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path / "benchmarks.json")
    for words, code in (("--studies", "2"), False), (("--stories",), True):
        monkeypatch.setattr(sys, "argv", ["benchmarks", "drift", "--", *words])
        with pytest.raises(SystemExit) as ended:
            benchmarks.main()
        assert ended.value.code is code
        results = json.loads((tmp_path / "benchmarks.json").read_text())
        assert results["session"].keys() >= {"commit", "machine", "workflow"}
        assert "snakemake 9." in results["session"]["workflow"]
        one = results["programs"]["drift"]
        assert ("unrecognized arguments: --stories" in one["error"]) == code
        assert len(one["figures"]) == (0 if code else 4)
        page = (tmp_path / "benchmarks.md").read_text()
        assert ("**failed**" in page) == code and page in capsys.readouterr().out


def test_a_program_that_there_is_not_is_refused_before_any_other_is_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "drift", "drfit"])
    with pytest.raises(SystemExit):
        benchmarks.main()
    said = capsys.readouterr()
    assert "no program drfit" in said.err and not said.out
