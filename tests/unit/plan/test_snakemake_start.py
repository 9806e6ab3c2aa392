"""snakemake_start: what is read of Snakemake, and what comes of it where a version lacks it."""

import re
import subprocess
import sys
import types

import pytest

from dlbench.plan.snakemake_start import NEEDED, OF_LOGGING, OF_RULES, READ, SnakemakeStart
from support.machines.paths import REPOSITORY

# Reads each attribute as late as functions of rules do, and names those that are not there.
SNAKEFILE = """
import functools

def missing(wildcards):
    for name in {names}:
        try:
            functools.reduce(getattr, name.split("."), workflow)
        except AttributeError as error:
            print("missing:", error)
    for name in {of_rules}:
        functools.reduce(getattr, name.split("."), rules.a)
    print("looked")
    return []

rule a:
    input: missing
    output: "x"
    resources: bench=1
    shell: "touch x"
"""


@pytest.mark.ci
def test_the_installed_snakemake_has_every_attribute_that_is_read(tmp_path):
    text = SNAKEFILE.format(names=sorted(READ), of_rules=sorted(OF_RULES))
    (tmp_path / "Snakefile").write_text(text)
    finished = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", "--resources", "bench=1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert "looked" in finished.stdout and "missing:" not in finished.stdout


INTERRUPTED = """
import os, signal, subprocess, sys
from dlbench.plan import snakemake_start

snakemake_start.pass_on_interrupts()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print(child.wait(10))
"""


def test_jobs_are_interrupted_with_snakemake():
    command = [sys.executable, "-c", INTERRUPTED]
    finished = subprocess.run(
        command, capture_output=True, cwd=REPOSITORY / "workflow_scripts", check=True
    )
    assert finished.stdout == b"-2\n"


def test_rules_read_nothing_else_of_it():
    files = [REPOSITORY / "Snakefile", *sorted((REPOSITORY / "rules").glob("*.smk"))]
    text = "\n".join(path.read_text() for path in files)
    found = set(re.findall(r"\bworkflow\.[a-z_]+(?!\S*py)", text)) - {"workflow.yaml"}
    assert found <= NEEDED.keys(), found
    modules = set(re.findall(r"^(?:from|import) (snakemake[\w.]*)", text, re.MULTILINE))
    assert modules == {"snakemake.utils", "snakemake.exceptions", "snakemake.sourcecache"}
    assert not re.findall(r"\brules\.\w+\.rule\b", text)
    library = REPOSITORY / "workflow_scripts"
    imports = re.compile(r"^\s*(?:from|import) snakemake\b", re.MULTILINE)
    plugin = library / "snakemake_logger_plugin_dlbench/__init__.py"
    assert [path for path in library.rglob("*.py") if imports.search(path.read_text())] == [plugin]
    imported = re.findall(r"\bsnakemake import .*", plugin.read_text())
    assert imported == ["snakemake import logging as own"]
    assert set(re.findall(r"\bown\.(\w+)", plugin.read_text())) == OF_LOGGING.keys()


def test_where_a_version_lacks_one_a_line_says_what_is_lost(capsys):
    for name, attribute in READ.items():
        start = SnakemakeStart(types.SimpleNamespace())
        assert start._read(name) == attribute.default
        assert attribute.lost in capsys.readouterr().err


def test_a_start_of_a_version_that_lacks_all_of_them_is_one_that_runs_here(capsys):
    start = SnakemakeStart(types.SimpleNamespace())
    assert start.is_main and not start.is_dry_run and not start.is_module and start.limits_bench
    assert start.executor is None and not start.submits and not start.forces_all
    assert start.forced == frozenset() and not start.uses_conda and start.configfiles == []
    assert start.resource(types.SimpleNamespace(), "slurm_partition") is None
    assert not start.moves_results()
    assert len(capsys.readouterr().err.splitlines()) >= 8


def test_what_is_forced_is_known_by_rules_and_files():
    settings = types.SimpleNamespace(
        forceall=False, forcerun={"train"}, forcetargets=True, targets={"x"}
    )
    mode = types.SimpleNamespace(name="DEFAULT")
    start = SnakemakeStart(types.SimpleNamespace(exec_mode=mode, dag_settings=settings))
    assert start.forced == {"train", "x"} and not start.forces_all
    rule = types.SimpleNamespace(rule=types.SimpleNamespace(name="train"))
    assert start.forces_rule(rule) and not start.forces_rule(types.SimpleNamespace())
    mode.name = "SUBPROCESS"  # of a job, which makes what the main process told it to
    job = SnakemakeStart(types.SimpleNamespace(exec_mode=mode, dag_settings=settings))
    assert job.forced == frozenset() and not job.forces_rule(rule)


@pytest.mark.parametrize(
    ("results", "prefix", "moves"),
    [("results", "", False), ("/scratch/mine", "", True), ("results", "bench/", True)],
)
def test_pathvars_and_a_prefix_move_results(results, prefix, moves):
    pathvars = types.SimpleNamespace(apply=lambda path: path.replace("<results>", results))
    modifier = types.SimpleNamespace(replace_prefix=lambda path: prefix + path)
    workflow = types.SimpleNamespace(
        pathvars=pathvars, modifier=types.SimpleNamespace(path_modifier=modifier)
    )
    assert SnakemakeStart(workflow).moves_results() == moves


@pytest.mark.parametrize(
    ("given", "is_main_snakefile", "targets"),
    [
        ((), True, {"all"}),
        (("results/runs/a/run.json",), True, {"results/runs/a/run.json"}),
        ((), False, set()),  # the default is a rule of the other workflow
    ],
)
def test_the_target_is_all_by_default_but_not_of_a_module(given, is_main_snakefile, targets):
    workflow = types.SimpleNamespace(
        dag_settings=types.SimpleNamespace(targets=frozenset(given)),
        modifier=types.SimpleNamespace(is_main_snakefile=lambda: is_main_snakefile),
    )
    assert SnakemakeStart(workflow).targets == targets


def test_rules_have_the_same_strings_as_resources_whatever_their_numbers_and_functions():
    def rule(**resources):
        raw = {name: types.SimpleNamespace(raw=value) for name, value in resources.items()}
        return types.SimpleNamespace(rule=types.SimpleNamespace(resources=raw))

    plain = rule(slurm_partition="gpu", mem_mb=4000, extra=lambda wildcards: "")
    assert SnakemakeStart.same_strings(plain, rule(slurm_partition="gpu", mem_mb=1000, attempt=1))
    assert not SnakemakeStart.same_strings(plain, rule(slurm_partition="cpu"))
    assert not SnakemakeStart.same_strings(plain, rule())
