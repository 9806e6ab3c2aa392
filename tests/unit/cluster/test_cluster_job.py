"""Jobs that are submitted and watched for cluster-generic, against a scheduler of a few lines."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.cluster import cluster_job
from dlbench.common import plugins
from dlbench.records import run_record
from dlbench.schedulers import watched_runs
from dlbench.starting import fates
from support.machines.paths import REPOSITORY

RESOURCES = {
    "nodes": 2, "tasks": 4, "cpus_per_task": 3, "mem_mb": 2000, "runtime": 90, "gpus_per_node": 0,
    "gpu_request": "gpu", "exclusive": 1, "extra": "-m 'fast nodes'",
}  # fmt: skip
ALIVE = (
    "<job_info><queue_info><job_list><JB_job_number>7</JB_job_number><state>r</state>"
    "</job_list></queue_info></job_info>"
)
NONE = "<job_info/>"
DOWN = "#!/bin/sh\necho unable to contact qmaster >&2\nexit 1\n"


@pytest.fixture
def folder(here, monkeypatch, program):
    """A campaign's folder, on a Grid Engine that answers and has no jobs."""
    cluster_job.FOLDER.mkdir(parents=True)
    monkeypatch.setattr(cluster_job, "CACHE_S", 0)
    program("qstat", NONE)
    program("qhost", "<qhost/>")
    program("qacct", script="#!/bin/sh\nexit 1\n")
    program("qdel", script='#!/bin/sh\necho "$*" >>deleted\n')
    return here


def job_script(folder, properties):
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\n")
    return script


def ended(job_id, code):
    (cluster_job.FOLDER / f"{job_id}.end").write_text(f"{code}\n")


def test_what_a_job_asks_for_is_read_from_its_script(folder):
    script = job_script(folder, {"rule": "train", "threads": 1, "resources": RESOURCES})
    found = cluster_job.read_request(script)
    assert (found.name, found.nodes, found.tasks_per_node, found.cores_per_node) == (
        "dlbench.train", 2, 2, 6,
    )  # fmt: skip
    assert found.exclusive and found.options == ["-m", "fast nodes"]
    group = job_script(folder, {"groupid": "b", "threads": 8, "resources": RESOURCES})
    request = cluster_job.read_request(group)
    assert (request.name, request.cores_per_node) == ("dlbench.b", 8)


def test_a_script_that_lacks_something_is_refused_with_what_is_missing(folder):
    resources = {k: v for k, v in RESOURCES.items() if k != "mem_mb"}
    script = job_script(folder, {"rule": "train", "threads": 1, "resources": resources})
    with pytest.raises(Error, match=r"no resource 'mem_mb' in the job.*default-resources"):
        cluster_job.read_request(script)
    script.write_text("#!/bin/sh\n")
    with pytest.raises(Error, match="expected a line '# properties = '"):
        cluster_job.read_request(script)


def test_a_submitted_job_is_watched_until_it_says_how_it_ended(folder, program):
    program("qsub", script='#!/bin/sh\necho "$*" >asked\necho 7\n')
    resources = RESOURCES | {"pe": "smp"}
    script = job_script(folder, {"rule": "train", "threads": 1, "resources": resources})
    assert cluster_job.submit("sge", script) == "7"
    assert Path("asked").read_text().endswith(f"-pe smp 12 -l h_rt=5400 -m fast nodes {script}\n")
    assert Path("results/logs/cluster").is_dir() and [*watched_runs(Path())] == ["7"]
    program("qstat", ALIVE)
    assert cluster_job.status("sge", "7") == "running"
    ended("7", 0)
    assert cluster_job.status("sge", "7") == "success"
    assert [*watched_runs(Path())] == [] and not Path("deleted").exists()


def test_a_job_that_ends_badly_has_failed_whatever_the_scheduler_says(folder, program):
    program("qstat", ALIVE)
    ended("7", 1)
    assert cluster_job.status("sge", "7") == "failed"


def test_a_job_that_was_killed_has_failed_and_one_in_an_error_state_is_removed(folder, program):
    program("qacct", "failed       100 : assumedly after job\nexit_status  137\nru_wallclock 5s")
    assert cluster_job.status("sge", "7") == "failed"
    program("qstat", ALIVE.replace("<state>r<", "<state>Eqw<"))
    assert cluster_job.status("sge", "7") == "failed"
    assert Path("deleted").read_text().splitlines()[-1] == "7"


def test_a_job_is_cancelled_by_the_program_of_its_scheduler(folder, program, monkeypatch):
    monkeypatch.setattr(plugins.load("schedulers", "sge"), "CANCEL", "cancel")
    program("cancel", script='#!/bin/sh\necho "$*" >cancelled\n')
    program("qstat", ALIVE.replace("<state>r<", "<state>Eqw<"))
    assert cluster_job.status("sge", "7") == "failed"
    assert Path("cancelled").read_text() == "7\n" and not Path("deleted").exists()


def test_a_job_that_nobody_knows_is_lost_after_a_while(folder, monkeypatch):
    assert cluster_job.status("sge", "7") == "running"
    monkeypatch.setattr(cluster_job, "LOST_S", 0.05)
    time.sleep(0.1)
    assert cluster_job.status("sge", "7") == "failed"


def test_no_job_is_lost_while_the_scheduler_does_not_answer_nor_right_after(
    folder, program, monkeypatch
):
    monkeypatch.setattr(cluster_job, "LOST_S", 0.3)
    for name in ("qstat", "qhost"):
        program(name, script=DOWN)
    assert cluster_job.status("sge", "7") == "running"
    time.sleep(0.4)
    assert cluster_job.status("sge", "7") == "running"
    program("qstat", NONE)
    program("qhost", "<qhost/>")
    assert cluster_job.status("sge", "7") == "running"


def test_the_scheduler_is_asked_once_for_all_jobs(folder, program, monkeypatch):
    monkeypatch.setattr(cluster_job, "CACHE_S", 60)
    program("qstat", script=f"#!/bin/sh\necho asked >>count\ncat <<'END'\n{ALIVE}\nEND\n")
    for job_id in ("7", "8"):
        (cluster_job.FOLDER / job_id).touch()
    for job_id in ("7", "8", "7"):
        assert cluster_job.status("sge", job_id) == "running"
    assert Path("count").read_text() == "asked\n"


def test_the_status_program_never_fails_and_prints_one_word(folder, program):
    program("qstat", script="#!/bin/sh\necho '<job_info><job_list/></job_info>'\n")  # no state
    answer = start("status", "sge", "7", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = answer.communicate(timeout=20)
    assert (answer.returncode, out) == (0, "running\n") and "status of job 7" in err


def test_the_status_program_imports_nothing_slow(folder):
    program = "import sys, cluster_job; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=REPOSITORY / "workflow_scripts",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"numpy", "pandas", "yaml", "snakemake", "dlbench.study.config"} & set(loaded)


def test_a_job_asks_for_little_where_its_rule_says_nothing(folder):
    resources = {"mem_mb": 500, "runtime": 0.5}
    found = cluster_job.read_request(
        job_script(folder, {"rule": "theirs", "threads": 3, "resources": resources})
    )
    assert (found.nodes, found.tasks_per_node, found.cores_per_node) == (1, 1, 3)
    assert (found.time_min, found.gpus_per_node, found.exclusive) == (1, 0, False)


def test_the_job_of_a_run_bears_its_name_and_what_is_of_the_job_around_is_no_option(
    folder, program, monkeypatch
):
    program("sbatch", script='#!/bin/sh\necho "$*" >asked\nenv >variables\necho "7;here"\n')
    monkeypatch.setenv("SLURM_JOB_ID", "3")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    wildcards = {"run_id": "lenet5-b4"}
    properties = {"rule": "train", "wildcards": wildcards, "threads": 1, "resources": RESOURCES}
    assert cluster_job.submit("slurm", job_script(folder, properties)) == "7"
    assert "--job-name=lenet5-b4 " in Path("asked").read_text()
    variables = Path("variables").read_text()
    assert "SLURM_CONF=" in variables and "SLURM_MEM" not in variables
    assert "SLURM_JOB_ID" not in variables


def test_a_refusal_is_kept_for_all_runs_that_share_the_job(folder, program, capsys):
    program("sbatch", script="#!/bin/sh\necho Invalid qos >&2\nexit 1\n")
    script = job_script(folder, {"type": "group", "threads": 1, "resources": RESOURCES})
    with open(script, "a", encoding="utf-8") as file:
        file.write("python -m snakemake 'train:run_id=a-1' 'train:run_id=b-2'\n")
    with pytest.raises(Error, match="Invalid qos"):
        cluster_job.submit("slurm", script)
    assert capsys.readouterr().err.count("Slurm refused its job: sbatch failed") == 2
    assert all(fates.describe_refusal(run_record.folder(run)) for run in ("a-1", "b-2"))


def test_a_job_waits_to_be_submitted_while_there_are_as_many_as_there_may_be(
    folder, program, capsys, monkeypatch
):
    monkeypatch.setattr(cluster_job, "FULL_S", 0)
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    program(
        "sbatch",
        script=f"#!/bin/sh\necho >>asked\n[ $(($(wc -l <asked) % 4)) = 0 ] && echo 7 && exit\n"
        f"echo '{limit}' >&2\nexit 1\n",
    )
    for run_id in ("a-1", "b-2"):
        script = job_script(folder, {"rule": "train", "threads": 1, "resources": RESOURCES})
        script.write_text(f"{script.read_text()}python 'train:run_id={run_id}'\n")
        assert cluster_job.submit("slurm", script) == "7"
        refusal = fates.take_refusal(run_record.folder(run_id))
        assert refusal["times"] == 1 and limit in refusal["message"]
    printed = capsys.readouterr().err  # once, for all that follow
    assert printed.count("Slurm refused its job") == printed.count("wait until there may be") == 1


def test_of_the_jobs_of_an_earlier_start_those_that_have_not_ended_are_cancelled(folder):
    for job_id in ("4", "5", "6"):
        (cluster_job.FOLDER / job_id).touch()
    ended("4", 0)
    assert cluster_job.cancel_jobs("sge", ["5", "4"]) == ["5"]
    assert Path("deleted").read_text() == "5\n" and [*watched_runs(Path())] == ["6"]
    assert cluster_job.cancel_jobs("sge", []) == []


def test_a_cancelled_job_that_does_not_end_is_named(folder, program):
    (cluster_job.FOLDER / "7").touch()
    program("qstat", ALIVE)
    with pytest.raises(Error, match="were cancelled and do not end: 7"):
        cluster_job.cancel_jobs("sge", ["7"], timeout_s=0)


@pytest.mark.parametrize("name", plugins.names("schedulers"))
def test_the_profiles_name_programs_that_are_there(name):
    text = (REPOSITORY / f"profiles/{name}/profile.yaml").read_text()
    program = f'"$DLBENCH_HOME/workflow_scripts/cluster_job.py" {{}} {name}\n'
    assert program.format("submit") in text and program.format("status") in text
    module = plugins.load("schedulers", name)
    assert f"cluster-generic-cancel-cmd: {module.CANCEL}\n" in text
    script = (REPOSITORY / f"profiles/{name}/jobscript.sh").read_text()
    assert f"cluster_jobs/${module.JOB_ID}.end" in script


def command(*arguments):
    return [sys.executable, "-S", str(REPOSITORY / "workflow_scripts/cluster_job.py"), *arguments]


def start(*arguments, **options):
    return subprocess.Popen(command(*arguments), text=True, **options)
