"""What planning costs, counted: no noise of the machine trips these, a dearer run does.

Each bound is what was counted when it was set, and 15 % more. Where a rise is meant, because
planning does more now, count again, set the bound to that, and say in the commit what it buys.
`tests/performance/planning.py` measures the same in seconds, with ten thousand runs.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import resource_use
from bare_workflow import BARE
from campaign import Campaign, environment

ROOM = 1.15
FEW, MANY = 100, 300  # runs; what a run costs is the difference between the two
RUNS_OF_MEMORY = 2000
# Of a dry run in which all is to be done, for each run.
CALLS_BESIDE_BARE = 1.78  # times the calls of Python functions in the bare workflow
STATS = 5.0
OPENED_AND_LISTED = 1.0
# Beside the bare workflow, all in all.
MEMORY_MB = 19

COUNTER = Path(__file__).parents[1] / "support/planning_counts.py"
RAISED = "a rise that is meant: see the top of this file"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Our workflow and the bare one."""
    ours = tmp_path_factory.mktemp("ours") / "project"
    Campaign.fresh(ours)
    return {"ours": ours, "bare": tmp_path_factory.mktemp("bare")}


@pytest.fixture(scope="module")
def of_each_run(folders):
    """What one more run costs: {workflow: {what: number}}."""
    counts = {}
    _write(folders, FEW)
    _counted(folders["ours"])  # compiles what is yet to be compiled
    for runs in (FEW, MANY):
        _write(folders, runs)
        counts |= {(name, runs): _counted(folder) for name, folder in folders.items()}
    return {
        name: {
            what: (many - counts[name, FEW][what]) / (MANY - FEW)
            for what, many in counts[name, MANY].items()
        }
        for name in folders
    }


def test_planning_a_run_takes_as_few_calls_of_functions_as_it_did(of_each_run):
    calls = of_each_run["ours"]["calls"] / of_each_run["bare"]["calls"]
    assert calls <= CALLS_BESIDE_BARE * ROOM, (
        f"planning a run takes {calls:.2f} times the calls of Python functions that it takes in "
        f"a bare workflow, expected {CALLS_BESIDE_BARE} and at most 15 % more; {RAISED}"
    )


def test_planning_a_run_looks_at_no_more_files_than_it_did(of_each_run):
    stats = of_each_run["ours"]["stats"]
    assert stats <= STATS * ROOM, (
        f"planning a run takes {stats:.1f} calls of stat, expected {STATS} and at most 15 % more; "
        f"{RAISED}"
    )


def test_planning_a_run_opens_no_more_files_than_it_did(of_each_run):
    opened = of_each_run["ours"]["opened"] + of_each_run["ours"]["listed"]
    assert opened <= OPENED_AND_LISTED * ROOM, (
        f"planning a run opens or lists {opened:.1f} files and folders, expected "
        f"{OPENED_AND_LISTED} and at most 15 % more; {RAISED}"
    )


def test_a_dry_run_of_two_thousand_runs_takes_no_more_memory_than_it_did(folders):
    _write(folders, RUNS_OF_MEMORY)
    peak_mb = {name: _peak_mb(folder) for name, folder in folders.items()}
    more_mb = peak_mb["ours"] - peak_mb["bare"]
    assert more_mb <= MEMORY_MB * ROOM, (
        f"a dry run of {RUNS_OF_MEMORY} runs takes {peak_mb['ours']:.0f} MB, {more_mb:.1f} more "
        f"than a bare workflow; expected {MEMORY_MB} and at most 15 % more; {RAISED}"
    )


def _write(folders, runs):
    block = {"name": "many", "model": "lenet5", "dataset": "synthetic", "steps": 2}
    block |= {"batch_per_device": list(range(1, runs + 1)), "warmup_steps": 0}
    Campaign(folders["ours"]).configure(matrix=[block], figures=["scaling"])
    (folders["bare"] / "Snakefile").write_text(BARE.format(combinations=runs))


def _counted(folder):
    path = folder / "counts.json"
    _dry_run([sys.executable, str(COUNTER), str(path)], folder)
    return json.loads(path.read_text())


def _peak_mb(folder):
    return _dry_run([sys.executable, "-m", "snakemake"], folder).peak_mb


def _dry_run(command, folder):
    words = [*command, "--cores", "1", "-n", "--quiet", "all"]
    try:
        return resource_use.run(words, cwd=folder, env=environment())
    except subprocess.CalledProcessError as error:
        pytest.fail(error.output)
