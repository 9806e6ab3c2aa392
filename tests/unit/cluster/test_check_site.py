"""What is found out about a site before a campaign, with programs in the place of a scheduler."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from dlbench.cluster import check_site, profiles
from dlbench.cluster.check_site import Remark
from dlbench.common import tools
from dlbench.study import config, trainer_environments
from support.machines.paths import REPOSITORY, without_a_space
from support.programs import in_process
from support.runs.ended_runs import finish
from support.studies.site_facts import CONFIG

BLOCK = {"name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
         "steps": 10}  # fmt: skip
TWO_NODES = BLOCK | {"nodes": 2, "strategy": "multiworker", "launcher": "srun"}
FACTS = {"name": "here", "device": "cpu", "cores_per_node": 1, "devices_per_node": 1,
         "memory_mb_per_node": 8000, "interconnect": "none", "storage": "a disk"}  # fmt: skip
SETTINGS = ["slurm_partition=cpu", "slurm_account=mine", "mem_mb=600"]
PROFILE = {
    "executor": "cluster-generic",
    "cluster-generic-submit-cmd": "run slurm",
    "cluster-generic-status-cmd": "look slurm",
    "default-resources": SETTINGS,
    "latency-wait": 60,
}
SINFO = "cpu*|up|1:00:00|3|8|8000|(null)|idle\ngpu|up|1:00:00|3|8|8000|gpu:4|mixed"
# As sbatch --wait: the job's number first, then the job, here on this machine.
SBATCH = """#!/bin/sh
echo 17
for script; do case $script in --output=*) out=${script#--output=} ;; esac; done
sh "$script" >"$out" 2>&1
"""
BY_SRUN = BLOCK | {"strategy": "multiworker", "launcher": "srun", "devices_per_node": 1}
ACCOUNTS = """#!/bin/sh
case "$*" in
    *qos*) printf 'normal|||%s\\nshort|00:05:00|cpu=4,node=1|\\nnight|00:01:00||2\\n' "$JOBS" ;;
    *MaxWall*)
        printf 'mine||normal|%s||\\n' "$MOST"
        printf 'mine|night|night|00:01:00||\\nother||night|00:01:00||\\n' ;;
    *) echo mine ;;
esac
"""
SRUN = """#!/bin/sh
echo "$@" >srun.words
echo 'srun: error: task 0 launch failed: Unspecified' >&2
exit 1
"""
TRUE = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def place(tmp_path, monkeypatch, program):
    """A workflow's folder on a machine with a Slurm whose jobs run here; all is in order."""
    for name in ("envs", "workflow_scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    without_a_space(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLURM_MPI_TYPE", raising=False)
    write("config.yaml", CONFIG | {"matrix": [BLOCK], "figures": [], "repeats": 2})
    write("site.yaml", {"site": FACTS})
    write("home/snakemake/slurm/profile.yaml", PROFILE)
    program("sinfo", SINFO)
    program("sbatch", script=SBATCH)
    program("sacctmgr", "mine\nother")
    for name in ("squeue", "scancel", "sacct"):
        program(name, script=TRUE)
    return tmp_path


def write(path, content):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(yaml.safe_dump(content))


def findings(profile="slurm", with_job=False, timeout_s=20):
    return list(check_site.remarks(profile, [], with_job, timeout_s))


def texts(mark, **how):
    return [finding.text for finding in findings(**how) if finding.mark == mark]


def only_fix(**how):
    found = texts("fix", **how)
    assert len(found) == 1, found
    return found[0]


def facts(**changed):
    write("site.yaml", {"site": FACTS | changed})


def profile(**changed):
    write("home/snakemake/slurm/profile.yaml", PROFILE | changed)


def test_programs_get_all_remarks_as_json(place, capsys):
    facts(storage=None)
    assert check_site.print_remarks("slurm", [], False, 20, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["to_fix"] == 0
    assert {"mark": "note", "text": "site.storage: null; readers of the results need it"} in said[
        "remarks"
    ]
    assert not check_site.print_remarks("slrm", [], False, 20, as_json=True)
    assert json.loads(capsys.readouterr().out)["to_fix"] == 1


def test_the_command_needs_a_profile(place):
    finished = in_process.dlbench("check-site")
    assert finished.returncode == 2
    assert "the following arguments are required: --profile" in finished.stderr


def test_a_site_that_is_in_order_has_nothing_to_fix(place, capsys):
    assert check_site.print_remarks("slurm", [], True, 20), capsys.readouterr().out
    printed = capsys.readouterr().out
    assert "fix" not in printed.replace("nothing to fix", "")
    for said in (
        "executor cluster-generic",
        "slurm answers, and has cpu, gpu",
        "ok    queue cpu has 3 nodes of 8 cores, 8000 MiB, 0 GPUs; 60 min at most",
        "2 runs to train, of at most 16 min",
        "account mine",
        "a job ran on",
        "seen there and back within",
        "its clock is",
        "with snakemake",
        "cores may be used",
        "MiB are free for temporary files",
    ):
        assert said in printed, printed
    assert not list((place / "results" / "site_check").iterdir())


def test_without_a_job_only_this_machine_is_looked_at(place):
    assert texts("fix") == []
    assert texts("note") == ["compute nodes: not looked at (--no-job)"]


def test_searches_for_largest_batches_are_named_and_their_jobs_looked_at(place):
    widest = CONFIG | {"matrix": [BLOCK | {"batch_per_device": "max"}], "figures": []}
    write("config.yaml", widest)
    (named,) = [text for text in texts("note") if "to search first" in text]
    assert "its runs are not known yet: largest batch of lenet5" in named
    write("config.yaml", widest | {"time_limit_s": 9000})
    assert "largest batch of lenet5" in only_fix()


def test_a_profile_that_is_not_there_is_told_from_those_that_are(place):
    write("profiles/slurm/profile.yaml", PROFILE)
    assert "no profile 'slrm' (did you mean 'slurm'?)" in only_fix(profile="slrm")


def test_a_profile_that_snakemake_finds_by_its_folder_only_is_said_how_to_link(place):
    write("profiles/ours/profile.yaml", PROFILE)
    said = 'ln -sfn "$PWD/profiles/ours" ~/.config/snakemake/ours'
    assert any(said in text for text in texts("note", profile="ours"))
    assert not any(said in text for text in texts("note", profile="profiles/ours"))


def test_of_several_files_of_a_profile_the_newest_that_fits_is_read(place):
    for name in ("config.v8+.yaml", "config.v9+.yaml", "config.v99+.yaml"):
        write(f"many/{name}", PROFILE)
    assert profiles.read("many").file == Path("many/config.v9+.yaml")


def test_resources_of_a_profile_are_read_in_all_their_forms(place):
    write(
        "one.yaml", {"default-resources": {"a": 1, "b": "x"}, "set-resources": {"train": {"a": 2}}}
    )
    write("two.yaml", {"default-resources": ["a=1", "b='x'"], "set-resources": ["train:a=2"]})
    for name in ("one.yaml", "two.yaml"):
        found = profiles.read(name)
        assert (found.value("train", "a"), found.value("other", "a")) == (2, 1)
        assert (found.value("train", "b"), found.value("train", "c")) == ("x", None)


@pytest.mark.parametrize(
    "executor, command, installs",
    [
        ("cluster-generic", "run pbs", "sync"),
        ("slurm", None, "sync --extra slurm"),
        ("htcondor", None, "pip install snakemake-executor-plugin-htcondor"),
    ],
)
def test_a_plugin_that_is_missing_is_named_with_its_installation(
    executor, command, installs, place, monkeypatch
):
    monkeypatch.setattr(profiles.importlib.util, "find_spec", lambda name: None)
    profile(executor=executor, **({"cluster-generic-submit-cmd": command} if command else {}))
    found = [text for text in texts("fix") if "is not installed" in text]
    assert len(found) == 1 and found[0].endswith(f"install it with: {tools.uv_command(installs)}")


def test_a_config_that_cannot_be_used_is_said(place):
    write("site.yaml", {"site": {"cores": 3}})
    assert "unknown key 'cores'" in only_fix()


def test_a_missing_site_file_is_to_be_written(place):
    (place / "site.yaml").unlink()
    found = texts("fix")
    assert "no site.yaml in" in found[0]
    assert "site.device, site.devices_per_node, site.cores_per_node: auto counts" in found[1]


def test_what_a_reader_of_the_results_would_miss_is_only_noted(place):
    facts(name="this machine", interconnect=None)
    assert texts("fix") == []
    assert any("site.name is 'this machine'" in text for text in texts("note"))
    assert "site.interconnect: null; readers of the results need it" in texts("note")


def test_a_scheduler_without_its_programs_is_named(place, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "sbatch is not on the path of this machine" in only_fix()


def test_a_clone_in_a_path_with_a_space_is_to_be_moved(place, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/a clone/.venv/bin/python")
    assert "/a clone/.venv/bin/python has a space, so that no job would start" in only_fix()


def test_a_scheduler_that_does_not_answer_is_quoted(place, program):
    program("sinfo", script="#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    assert "slurm does not answer: sinfo failed (exit code 1): Unable to contact" in only_fix(
        with_job=True
    )


def test_an_unknown_partition_is_told_with_the_nearest_name(place):
    profile(**{"default-resources": ["slurm_partition=cpuu"]})
    assert "no partition or queue 'cpuu' (did you mean 'cpu'?)" in only_fix(with_job=True)


def test_a_partition_of_one_rule_is_looked_at(place):
    profile(**{"set-resources": {"train": {"slurm_partition": "gpuu"}}})
    assert "no partition or queue 'gpuu' (did you mean 'gpu'?)" in only_fix()


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"device": "gpu", "devices_per_node": 8}, "asks for 8 GPUs per node, and gpu has 4"),
        ({"cores_per_node": 16}, "asks for 16 cores per node, and gpu has 8"),
        ({"memory_mb_per_node": 9000}, "asks for 9000 MiB of memory per node, and gpu"),
        ({"nodes": 4}, "asks for 4 nodes, and gpu has 3"),
    ],
)
def test_a_site_that_promises_more_than_the_partition_has_is_to_be_corrected(changed, said, place):
    profile(**{"default-resources": ["slurm_partition=gpu"]})
    facts(**changed)
    (found,) = [text for text in texts("fix") if text.endswith("1 job, as site.yaml promises")]
    assert found.startswith(said)


def test_runs_that_ask_for_more_than_the_partition_gives_are_to_be_changed(place):
    write("config.yaml", CONFIG | {"matrix": [BLOCK], "figures": [], "time_limit_s": 7200})
    assert "asks for 126 minutes, and cpu has 60 (lower time_limit_s" in only_fix()
    facts(memory_mb_per_node=None)
    assert any("MiB of memory per node, and cpu has 8000" in text for text in texts("fix"))


def test_conversion_is_to_fit_the_queue_too(place, program):
    program("sinfo", SINFO.replace("1:00:00|3|8|8000|(null)", "20:00|3|8|8000|(null)"))
    profile(**{"default-resources": ["slurm_partition=cpu", "mem_mb=600", "runtime=60"]})
    assert texts("fix") == []  # there are no data to convert
    write("config.yaml", CONFIG | {"matrix": [BLOCK | {"dataset": "digits"}], "figures": []})
    found = only_fix()
    assert "asks for 60 minutes, and cpu has 20" in found and "as conversion of data" in found
    gpus = {"convert_dataset": {"slurm_partition": "gpu"}}
    write("home/snakemake/slurm/profile.yaml", PROFILE | {"set-resources": gpus})
    assert texts("fix") == []


@pytest.mark.parametrize(
    ("accounting", "age_s", "noted"),
    [("(null)", 2, True), ("(null)", 300, False), ("accounting_storage/slurmdbd", 2, False)],
)
def test_a_slurm_that_forgets_jobs_at_once_is_noted(place, program, accounting, age_s, noted):
    program("scontrol", f"AccountingStorageType   = {accounting}\nMinJobAge  = {age_s} sec")
    assert any("forgets jobs 2 s after their end" in text for text in texts("note")) == noted


def test_a_slurm_on_which_the_executor_slurm_would_hang_is_to_be_fixed(place, program):
    program("scontrol", "AccountingStorageType   = (null)\nMinJobAge  = 300 sec")
    own = {"executor": "slurm", "default-resources": ["slurm_partition=cpu", "mem_mb=600"]}
    write("own/profile.yaml", own)
    assert texts("fix", profile="own")[-1].endswith("add --slurm-status-command squeue")
    write("own/profile.yaml", own | {"slurm-status-command": "squeue"})
    (missing,) = texts("fix", profile="own")  # its plugin
    assert missing.startswith("snakemake-executor-plugin-slurm is not installed")


def test_a_profile_with_half_of_our_lines_is_to_be_completed(place):
    write("own/profile.yaml", {k: v for k, v in PROFILE.items() if "status" not in k})
    assert "has no cluster-generic-status-cmd" in only_fix(profile="own")


def test_nodes_that_start_no_job_are_not_counted(place, program):
    drained = SINFO.replace("|3|8|8000|(null)|idle", "|1|8|8000|(null)|idle", 1)
    program("sinfo", f"cpu*|up|1:00:00|2|8|8000|(null)|drained*\n{drained}")
    said = "2 of the 3 nodes of cpu start no jobs now (drained or down)"
    assert (texts("fix"), said in texts("note")) == ([], True)
    write("config.yaml", CONFIG | {"matrix": [TWO_NODES], "figures": []})
    facts(nodes=2)
    assert f"{said}: 3 runs would wait for them, as lenet5" in only_fix()


def test_what_no_single_node_has_is_not_taken_for_there(place, program):
    many = "cpu*|up|1:00:00|2|64|8000|(null)|idle\ncpu*|up|1:00:00|1|8|8000|gpu:4|idle"
    program("sinfo", many)
    facts(device="gpu", devices_per_node=4, cores_per_node=64)
    refused, promised = texts("fix")
    assert refused.startswith("asks for 1 node of 16 cores, 8000 MiB, 1 GPUs, and cpu has 0 such (")
    assert "(2 nodes of 64 cores, 8000 MiB, 0 GPUs; 1 node of 8 cores, 8000 MiB, 4 GPUs)" in refused
    said = "asks for 1 node of 64 cores, 8000 MiB, 4 GPUs, and cpu has 0 such ("
    assert promised.startswith(said)
    facts(device="gpu", devices_per_node=4, cores_per_node=8)
    assert texts("fix") == []


def test_runs_that_the_site_cannot_do_are_noted(place):
    write("config.yaml", CONFIG | {"matrix": [BLOCK | {"nodes": [1, 2]}], "figures": []})
    assert any("3 runs left out: " in text for text in texts("note"))


def test_an_account_of_somebody_else_is_noted(place, program):
    profile(**{"default-resources": ["slurm_account=yours"]})
    assert "account 'yours' is not among yours: mine, other" in texts("note")
    program("sacctmgr", script="#!/bin/sh\necho no accounting >&2\nexit 1\n")
    assert any("accounts not looked at: sacctmgr failed" in text for text in texts("note"))


def test_a_job_that_the_scheduler_refuses_is_quoted(place, program):
    program("sbatch", script="#!/bin/sh\necho 'sbatch: error: Invalid account' >&2\nexit 1\n")
    assert "was refused: sbatch: error: Invalid account" in only_fix(with_job=True)


def test_a_job_that_waits_too_long_is_cancelled(place, program):
    program("sbatch", script="#!/bin/sh\necho 17\nexec sleep 60\n")
    program("squeue", "17|PENDING")
    program("scancel", script=f"#!/bin/sh\necho $1 >{place}/cancelled\n")
    found = only_fix(with_job=True, timeout_s=0.5)
    assert "job 17 of the check waited for more than 0.5 s in the queue (PENDING)" in found
    assert (place / "cancelled").read_text() == "17\n"


def test_a_job_that_cannot_see_the_folder_is_explained(place, program, monkeypatch):
    monkeypatch.setattr(check_site, "LATE_FILES_S", 0.1)
    elsewhere = SBATCH.replace('sh "$script"', "sh -c 'echo cd: no such folder; exit 1'")
    program("sbatch", script=elsewhere)
    found = only_fix(with_job=True)
    assert "job 17 of the check ended without an answer from its node: cd: no such folder" in found
    assert f"under the same path: {place}" in found


def test_several_nodes_are_asked_each_if_runs_are_on_several(place, program):
    facts(nodes=2)
    assert texts("fix", with_job=True) == []
    write("config.yaml", CONFIG | {"matrix": [TWO_NODES], "figures": [], "repeats": 2})
    program(
        "srun", script='#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\n"$@" & "$@"\nwait\n'
    )
    found = only_fix(with_job=True)
    assert found.startswith("a job on 2 nodes ran on")


def test_nodes_are_held_against_what_runs_of_any_framework_need(place, monkeypatch):
    seen = []
    monkeypatch.setattr(check_site, "remarks_on_nodes", lambda *given: seen.append(given[1]) or ())
    monkeypatch.setattr(trainer_environments, "is_installed", lambda _: True)
    of_jax = BLOCK | {"name": "jax", "framework": "jax", "environment": "jax"}
    write("config.yaml", CONFIG | {"matrix": [BLOCK, of_jax], "figures": []})
    findings(with_job=True)
    (expected,) = seen
    assert expected["own_name"]  # which JAX needs
    assert sorted(expected["packages"].values()) == ["jax", "snakemake", "tensorflow"]


def test_the_node_looks_for_mpirun_in_the_folders_of_environments_then_on_the_path(place):
    folder = place / "envs" / "train" / ".venv"
    assert check_site._mpiruns([Path("envs/train/.venv/bin/python")]) == [
        (
            str(folder / "bin" / "mpirun"),
            {"OPAL_PREFIX": str(folder), "LD_LIBRARY_PATH": str(folder / "lib")},
        ),
        ("mpirun", {}),
    ]


def test_modules_that_cannot_be_loaded_are_named_by_the_node(place):
    facts(modules=["openmpi/none"])
    found = only_fix(with_job=True)
    assert "openmpi/none" in found and "site.modules" in found


def test_an_image_that_is_not_made_is_noted_and_one_that_is_is_started(place, program):
    contained = BLOCK | {"runtime": "apptainer"}
    write("config.yaml", CONFIG | {"matrix": [contained], "figures": []})
    program("apptainer", script="#!/bin/sh\necho Python 3.11.2\n")
    form = Path("results/images/train/apptainer.json")
    command = tools.uv_command("run snakemake images")
    assert f"image {form}: not made yet ({command})" in texts("note", with_job=True)
    form.parent.mkdir(parents=True)
    form.write_text(json.dumps({"failure": "no Python in it"}))
    assert only_fix(with_job=True) == f"no Python in it ({command} tries again)"
    form.write_text(
        json.dumps(
            {"prepared": "x.sif", "environment": {}, "options": {}, "python": "python3",
             "packages": {}}
        )
    )  # fmt: skip
    assert any(
        "image train, apptainer starts, Python 3.11.2" in t for t in texts("ok", with_job=True)
    )
    program("apptainer", script="#!/bin/sh\necho no user namespaces\nexit 1\n")
    assert "does not start (exit code 1): no user namespaces" in only_fix(with_job=True)


def test_a_remark_of_several_lines_stays_aligned():
    assert str(Remark("fix", "one\ntwo")) == "fix   one\n      two"


def test_limits_of_qos_and_associations_are_looked_at(place, program, monkeypatch):
    program("sacctmgr", script=ACCOUNTS)
    program("scontrol", "PartitionName=cpu QoS=N/A TotalCPUs=24")
    assert texts("fix") == []
    profile(**{"default-resources": [*SETTINGS, "qos=short"]})
    short = "asks for 16 minutes, and QOS short has 5 (lower time_limit_s"
    (found,) = texts("fix")
    assert found.startswith(short)
    profile()
    monkeypatch.setenv("MOST", "00:10:00")
    (found,) = texts("fix")
    assert "16 minutes, and the association with account mine has 10 " in found
    assert "2 jobs, as lenet5 synthetic batch" in found
    monkeypatch.delenv("MOST")
    program("scontrol", "PartitionName=cpu QoS=short TotalCPUs=24")
    (found,) = texts("fix")
    assert found.startswith(short)


def test_a_limit_on_the_jobs_in_the_queue_is_compared_with_those_of_the_profile(
    place, program, monkeypatch
):
    program("sacctmgr", script=ACCOUNTS)
    program("scontrol", "PartitionName=cpu QoS=N/A TotalCPUs=24")
    monkeypatch.setenv("JOBS", "3")
    profile(jobs=3)
    assert not [text for text in texts("note") if "jobs: " in text]
    profile(jobs=50)
    (found,) = [text for text in texts("note") if "jobs: " in text]
    assert found.startswith(
        "QOS normal has 3 jobs in the queue at most, and the profile has jobs: 5"
    )


def test_runs_that_are_done_are_not_counted_as_to_train(place):
    assert "2 runs to train, of at most 16 min" in texts("ok")
    first, second = config.study_from_files(["config.yaml"]).runs
    finish(first)
    assert "1 run to train, of at most 16 min" in texts("ok")
    finish(second)
    assert "nothing to train: 2 runs done" in texts("ok")


def test_the_job_starts_its_processes_as_runs_by_srun_are_started(place, program):
    program("srun", script=SRUN)
    write("config.yaml", CONFIG | {"matrix": [BY_SRUN], "figures": [], "repeats": 2})
    (found,) = texts("fix", with_job=True)
    assert found.startswith("job 17 of the check could not start its processes, as those of runs ")
    assert "task 0 launch failed: Unspecified; Slurm's default protocol of MPI may not" in found
    assert "--mpi" not in (place / "srun.words").read_text()
