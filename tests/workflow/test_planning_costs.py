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
from support.costs import finished_study, resource_use
from support.costs.bare_workflow import BARE

ROOM = 1.15
FEW, MANY = 30, 80  # runs; what a run costs is the difference between the two
RUNS_OF_MEMORY = 2000
# Of a start, for each run: calls of Python functions, as a multiple of those in a bare workflow;
# files looked at; files opened and folders listed.
COUNTED = {
    "all is to be done": {"calls": 1.68, "stats": 4.0, "opened": 0.0},
    "nothing is to be done": {"calls": 0.29, "stats": 4.0, "opened": 1.0},
}
# Beside the bare workflow, all in all: 12.5 to 17.2 of one commit, as pages happen to be freed.
MEMORY_MB = 17

COUNTER = Path(__file__).parents[1] / "support/costs/planning_counts.py"
DRY_RUN = ("--cores", "1", "-n", "--quiet", "all")
RAISED = "a rise that is meant: see the top of this file"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Our workflow and the bare one."""
    ours = tmp_path_factory.mktemp("ours") / "project"
    Campaign.fresh(ours)
    return {"ours": ours, "bare": tmp_path_factory.mktemp("bare")}


@pytest.fixture(scope="module", params=COUNTED)
def costs(request, folders):
    """(state of the study, what one more run costs: {workflow: {what: number}})."""
    done = request.param == "nothing is to be done"
    counts = {}
    for runs in (FEW, MANY):
        _write(folders, runs)
        if done:
            finished_study.finish(Campaign(folders["ours"]))
            finished_study.finish_bare(folders["bare"], runs)
            _run([sys.executable, "-m", "snakemake", "--cores", "1"], folders["bare"])
        elif runs == FEW:
            _count(folders["ours"])  # compiles what is yet to be compiled
        counts |= {(name, runs): _count(folder) for name, folder in folders.items()}
    return request.param, {
        name: {
            what: (many - counts[name, FEW][what]) / (MANY - FEW)
            for what, many in counts[name, MANY].items()
        }
        for name in folders
    }


@pytest.mark.ci
def test_planning_a_run_takes_as_few_calls_of_functions_as_it_did(costs):
    state, of_each_run = costs
    calls = of_each_run["ours"]["calls"] / of_each_run["bare"]["calls"]
    bound = COUNTED[state]["calls"]
    assert calls <= bound * ROOM, (
        f"planning a run takes {calls:.2f} times the calls of Python functions that it takes in "
        f"a bare workflow where {state}, expected {bound} and at most 15 % more; {RAISED}"
    )


def test_planning_a_run_looks_at_no_more_files_than_it_did(costs):
    state, of_each_run = costs
    stats, bound = of_each_run["ours"]["stats"], COUNTED[state]["stats"]
    assert stats <= bound * ROOM, (
        f"planning a run takes {stats:.1f} calls of stat where {state}, expected {bound} and at "
        f"most 15 % more; {RAISED}"
    )


def test_planning_a_run_opens_no_more_files_than_it_did(costs):
    state, of_each_run = costs
    opened = of_each_run["ours"]["opened"] + of_each_run["ours"]["listed"]
    bound = COUNTED[state]["opened"]
    assert opened <= bound * ROOM, (
        f"planning a run opens or lists {opened:.1f} files and folders where {state}, expected "
        f"{bound} and at most 15 % more; {RAISED}"
    )


def test_a_dry_run_of_two_thousand_runs_takes_no_more_memory_than_it_did(folders):
    _write(folders, RUNS_OF_MEMORY)
    command = [sys.executable, "-m", "snakemake", *DRY_RUN]
    peak_mb = {name: _run(command, folder).peak_mb for name, folder in folders.items()}
    more_mb = peak_mb["ours"] - peak_mb["bare"]
    assert more_mb <= MEMORY_MB * ROOM, (
        f"a dry run of {RUNS_OF_MEMORY} runs takes {peak_mb['ours']:.0f} MB, {more_mb:.1f} more "
        f"than a bare workflow; expected {MEMORY_MB} and at most 15 % more; {RAISED}"
    )


def _write(folders, runs):
    block = {"name": "many", "model": "lenet5", "dataset": "synthetic", "steps": 2}
    block |= {"batch_per_device": list(range(1, runs + 1)), "warmup_steps": 0}
    Campaign(folders["ours"]).configure(matrix=[block], figures=[])
    (folders["bare"] / "Snakefile").write_text(BARE.format(combinations=runs))


def _count(folder):
    path = folder / "counts.json"
    _run([sys.executable, COUNTER, path, *DRY_RUN], folder)
    return json.loads(path.read_text())


def _run(command, folder):
    """What a command uses."""
    try:
        return resource_use.run(command, cwd=folder, env=environment())
    except subprocess.CalledProcessError as error:
        pytest.fail(error.output)
