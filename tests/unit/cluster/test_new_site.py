"""What a new site.yaml says, with programs in the place of a scheduler."""

import pytest
import yaml

from dlbench import Error
from dlbench.cluster import jobs, profiles
from support.studies.site_facts import CONFIG

SINFO = "cpu*|up|1:00:00|3|8|8000|(null)|idle\ngpu|up|1:00:00|2|16|64000|gpu:4|mixed"


@pytest.fixture
def slurm(place, programs_of):
    programs_of("sbatch", "squeue", "scancel", sinfo=SINFO)
    return place


@pytest.fixture
def programs_of(place):
    """Makes programs on the path, which print a text if one is given."""

    def make(*names, **texts):
        for name in (*names, *texts):
            path = place / "bin" / name
            path.write_text(f"#!/bin/sh\ncat <<'END'\n{texts.get(name, '')}\nEND\n")
            path.chmod(0o755)

    return make


def test_a_machine_without_a_scheduler_has_none(place):
    assert profiles.find_schedulers() == []


def test_a_scheduler_is_found_by_its_programs(slurm):
    assert profiles.find_schedulers() == ["slurm"]


def test_grid_engine_is_not_taken_for_pbs_whose_programs_it_has(place, programs_of):
    programs_of("qsub", "qstat", "qdel")
    assert profiles.find_schedulers() == ["pbs"]
    programs_of("qacct")
    assert profiles.find_schedulers() == ["sge", "pbs"]


def test_a_scheduler_that_does_not_answer_is_passed_over(slurm, place, capsys):
    for name in ("qsub", "qstat", "qdel", "qacct", "qhost", "qconf"):
        (place / "bin" / name).write_text("#!/bin/sh\necho no qmaster >&2\nexit 1\n")
        (place / "bin" / name).chmod(0o755)
    assert {"slurm", "sge"} < {*profiles.find_schedulers()}
    scheduler, site = profiles.of_this_machine()
    assert (scheduler, site.scheduler) == ("slurm", "slurm")
    with pytest.raises(Error, match=r"(?s)no qmaster.*did you mean 'cpu'"):
        profiles.of_this_machine("cpus")
    (place / "bin/sinfo").write_text("#!/bin/sh\nexit 1\n")
    capsys.readouterr()
    assert profiles.of_this_machine() == (None, None)
    line = "runs are for this machine, since no scheduler answers (SGE, Slurm, PBS)\n"
    assert capsys.readouterr().err == line


def test_nodes_with_gpus_come_before_the_default_queue(slurm):
    site = profiles.describe("slurm")
    assert (site.queue.name, site.kind) == ("gpu", "gpu")


def test_the_queue_that_is_named_is_described(slurm):
    facts = yaml.safe_load(profiles.text(profiles.describe("slurm", "cpu")))["site"]
    assert facts["device"] == "cpu"
    assert facts["devices_per_node"] == facts["cores_per_node"] == 8
    assert (facts["memory_mb_per_node"], facts["nodes"]) == (8000, 3)


@pytest.mark.parametrize("printed", ["ClusterName             = 1e3\n", "SLURM_VERSION = 25.05\n"])
def test_the_site_has_the_name_that_slurm_has_for_the_cluster(slurm, programs_of, printed):
    programs_of(scontrol=f"Configuration data as of today\n{printed}")
    facts = yaml.safe_load(profiles.text(profiles.describe("slurm")))["site"]
    assert facts["name"] == ("1e3" if "ClusterName" in printed else "this machine")


def test_a_cluster_needs_no_more_than_the_file_says(slurm):
    text = profiles.text(profiles.describe("slurm"))
    facts = yaml.safe_load(text)["site"]
    assert "auto" not in text
    assert jobs.describe_auto(CONFIG["site"] | facts) == ""
    assert (facts["device"], facts["devices_per_node"], facts["cores_per_node"]) == ("gpu", 4, 16)


def test_most_nodes_of_a_kind_are_described_among_those_with_as_many_gpus(place, programs_of):
    lines = "a*|up|1:00:00|1|8|8000|gpu:2|idle\na*|up|1:00:00|5|16|9000|gpu:2|idle"
    programs_of("sbatch", "squeue", "scancel", sinfo=lines)
    assert profiles.describe("slurm").nodes.cores == 16


def test_a_queue_that_is_misspelt_gets_the_nearest(slurm):
    with pytest.raises(
        Error, match=r"Slurm has no queue 'gpus' \(did you mean 'gpu'\?\).*cpu, gpu"
    ):
        profiles.describe("slurm", "gpus")


def test_what_the_scheduler_does_not_say_is_auto_and_asked_for(place, programs_of):
    names = ("bsub", "bjobs", "bkill", "bhist", "badmin", "lsclusters")
    programs_of(*names, bqueues="QUEUE: normal\n  This is the default queue\n STATUS Open:Active")
    text = profiles.text(profiles.describe("lsf"))
    facts = yaml.safe_load(text)["site"]
    assert "What is auto is not known here" in text
    assert "site.cores_per_node" in jobs.describe_auto(CONFIG["site"] | facts)


def test_modules_that_are_loaded_are_proposed_and_none_is_required(slurm):
    text = profiles.text(profiles.describe("slurm"), {"LOADEDMODULES": "gcc/12:openmpi/4.1"})
    assert "[gcc/12, openmpi/4.1]" in text
    assert yaml.safe_load(text)["site"]["modules"] == []
