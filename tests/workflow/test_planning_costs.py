"""What planning costs, counted: no noise of the machine trips these, a dearer run does.

Each bound is what was counted when it was set, and 15 % more. Where a rise is meant, because
planning does more now, count again, set the bound to that, and say in the commit what it buys.
`benchmarks/planning.py` measures the same in seconds, with ten thousand runs.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.campaigns.campaign import Campaign, environment
from support.costs import finished_study
from support.costs.bare_workflow import BARE

ROOM = 1.15
FEW, MANY = 30, 80  # runs; what a run costs is the difference between the two
# Of a start, for each run: calls of Python functions, as a multiple of those in a bare workflow;
# files looked at; files opened and folders listed.
COUNTED = {
    "all is to be done": {"calls": 1.68, "stats": 4.0, "opened": 0.0},
    "nothing is to be done": {"calls": 0.29, "stats": 5.0, "opened": 1.0},
}

COUNTER = Path(__file__).parents[1] / "support/costs/planning_counts.py"
DRY_RUN = ("--cores", "1", "-n", "--quiet", "all")


@pytest.mark.parametrize("state", COUNTED)
def test_planning_a_run_takes_as_few_calls_of_functions_and_files_as_it_did(state, tmp_path):
    folders = {"ours": tmp_path / "project", "bare": tmp_path / "bare"}
    ours = Campaign.fresh(folders["ours"])
    folders["bare"].mkdir()
    counts = {}
    for runs in (FEW, MANY):
        block = {"name": "many", "model": "lenet5", "dataset": "synthetic", "steps": 2}
        block |= {"batch_per_device": list(range(1, runs + 1)), "warmup_steps": 0}
        ours.configure(matrix=[block], figures=[])
        (folders["bare"] / "Snakefile").write_text(BARE.format(combinations=runs))
        if state == "nothing is to be done":
            finished_study.finish(ours)
            finished_study.finish_bare(folders["bare"], runs)
            start(["-m", "snakemake", "--cores", "1"], folders["bare"])
        elif runs == FEW:
            count(ours.folder)  # compiles what is yet to be compiled
        counts |= {(name, runs): count(folder) for name, folder in folders.items()}
    of_each_run = {
        name: {
            what: (many - counts[name, FEW][what]) / (MANY - FEW)
            for what, many in counts[name, MANY].items()
        }
        for name in folders
    }
    found = of_each_run["ours"]
    took = {
        "calls": found["calls"] / of_each_run["bare"]["calls"],
        "stats": found["stats"],
        "opened": found["opened"] + found["listed"],
    }
    for what, bound in COUNTED[state].items():
        assert took[what] <= bound * ROOM, f"a rise that is meant: see the top of this file: {took}"


def count(folder):
    start([COUNTER, "counts.json", *DRY_RUN], folder)
    return json.loads((folder / "counts.json").read_text())


def start(arguments, folder):
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment(), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
