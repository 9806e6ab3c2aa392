"""forget_runs: which results are forgotten, and the commands that forget and try again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.records import run_record
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, finish
from support.studies.found_batches import TRIES, write_found

SNAKEFILE = REPOSITORY / "Snakefile"  # of dlbench, where a folder has none
# In the place of Snakemake: says what it was given.
SNAKEMAKE = "import sys\nprint('snakemake', *sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture
def failed(study):
    """One run each that is ok, out of memory twice and failed, with a study that has only two."""
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    part = SETTINGS["matrix"][0] | {"batch_per_device": 8}
    Path("part.yaml").write_text(json.dumps({"study": "part", "matrix": [part]}))
    Path("snakemake.py").write_text(SNAKEMAKE)
    runs = sorted(study.runs, key=lambda run: (run.batch_per_device, run.repeat))
    finish(runs[0], 60)
    finish(runs[1], 10, "oom", "GPU: no memory for 12 MB")
    finish(runs[2], 10, "oom", "host: no memory")
    finish(runs[3], 10, "failed", "hung")
    return runs


def forgotten(runs):
    """The indices of the runs whose record is gone."""
    there = [(run_record.folder(run.id) / "run.json").is_file() for run in runs]
    return [index for index, record in enumerate(there) if not record]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [1, 2, 3]),
        (["--status", "oom"], [1, 2]),
        (["--message", "gpu"], [1]),
        (["--status", "failed", "--message", "no memory"], []),
        (["--status", "ok"], [0]),
        (["--configfile", "part.yaml"], [1]),
        (["--status", "oom", "--dry-run"], []),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_results_are_forgotten_by_status_message_and_study(failed, arguments, expected):
    is_done = "--dry-run" not in arguments
    finished = dlbench("forget", *arguments, "--json")
    assert finished.returncode == 0, finished.stderr
    assert forgotten(failed) == expected
    said = json.loads(finished.stdout)
    assert (said["forgotten"], said["searches"]) == (is_done, [])
    named = sorted(failed[index].id for index in (expected if is_done else [1, 2]))
    assert sorted(said["runs"]) == named


def test_a_search_for_a_largest_batch_is_forgotten_by_its_name_or_because_it_failed(failed):
    def searched(name, **changes):
        path = write_found(name, **changes)
        (path.parent / "b1").mkdir()
        for file in ("run.json", "train.jsonl"):
            (path.parent / "b1" / file).write_text("{}")
        return path

    vain = {"batch_per_device": None, "reason": "not even 1 fits", "tries": TRIES[1:]}
    kept, lost = searched("max-kept"), searched("max-lost", **vain)
    finished = dlbench("forget", "--status", "oom", "--message", "not even")
    assert finished.stdout.splitlines() == [
        "max-lost",
        "forgot 0 runs and 1 search for a largest batch",
    ]
    assert (kept.is_file(), lost.is_file()) == (True, False)
    left = sorted(path.name for path in (lost.parent / "b1").iterdir())
    assert left == ["train.attempt1.jsonl"]
    assert dlbench("forget", "max-kept", failed[0].id).returncode == 0  # whatever its status
    assert (kept.is_file(), forgotten(failed)) == (False, [0])
    asked = dlbench("retry", "max-kept", "--configfile", "part.yaml")
    assert "no run 'max-kept' in the study 'part'" in asked.stderr


def test_trying_again_forgets_the_failures_of_the_study_and_starts_snakemake(failed):
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "retry"]
    command += ["--configfile", "part.yaml", "--", "--cores", "4"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 7, finished.stderr
    assert finished.stdout.splitlines() == [
        failed[1].id,
        "forgot 1 run",
        f"snakemake --snakefile {SNAKEFILE} --cores 4 --configfile part.yaml",
    ]
    assert forgotten(failed) == [1]


def test_the_study_that_snakemake_is_given_counts_and_a_dry_run_says_what_would_be_tried(failed):
    assert dlbench("retry", "--dry-run").stdout.endswith("\nwould forget 3 runs\n")
    finished = dlbench("retry", "--status", "timeout")
    assert (finished.returncode, finished.became) == (0, None)
    assert finished.stdout == "no run of the study 'test' to try again: nothing is started\n"
    assert forgotten(failed) == []
    words = ["figures", "--configfile", "part.yaml", "--cores", "4"]
    became = dlbench("retry", "--", *words).became
    assert became[2:] == ["snakemake", "--snakefile", str(SNAKEFILE), *words]
    assert forgotten(failed) == [1]


def test_a_mistake_is_named_before_anything_is_forgotten(failed):
    part = ["--configfile", "part.yaml"]
    for arguments, message in (
        (["--", "-n"], "expected --dry-run before --, which forgets nothing; found it after --"),
        ([*part, "--", *part], "expected once"),
        (["lenet5-no-such-run"], "no run 'lenet5-no-such-run' in the study 'test'"),
        ([failed[3].id, *part], "in the study 'part'"),
        ([failed[1].id, "--message", "x"], "expected either runs or --message"),
        (["--configfile", "absent.yaml"], "absent.yaml: there is no such file. All words after"),
    ):
        finished = dlbench("retry", *arguments)
        assert finished.returncode != 0 and finished.became is None
        assert message in finished.stderr
    assert forgotten(failed) == []


def test_nothing_is_forgotten_while_snakemake_is_at_work_or_has_locked_the_folder(failed):
    command = [sys.executable, "-c", "input()", "snakemake"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as at_work:
        finished = dlbench("retry")
        at_work.communicate("\n")
    assert finished.returncode == 2
    assert f"Snakemake is at work in this folder (process {at_work.pid})" in finished.stderr
    Path(".snakemake/locks").mkdir(parents=True)
    Path(".snakemake/locks/0.input.lock").touch()
    finished = dlbench("retry")
    assert finished.returncode == 2
    assert "this folder is locked, and no Snakemake is at work in it" in finished.stderr
    assert forgotten(failed) == []
