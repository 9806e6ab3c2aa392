"""What Grid Engine says, and what is asked of it. The texts are those of a real one (8.1.9)."""

import getpass
from dataclasses import replace

import pytest

from dlbench import Error, schedulers
from dlbench.cluster import jobs
from dlbench.schedulers import JobState, Queue, sge

ASKED = schedulers.Job(
    name="smk.train", nodes=1, tasks=1, cores_per_task=8, memory_mb=16000, time_min=90,
    gpus_per_node=2, gpu_request="gpu", exclusive=True, extra="-l fast=1",
    resources={"pe": "smp"},
)  # fmt: skip
JOB = "<job_list><JB_job_number>{}</JB_job_number><state>{}</state></job_list>"
QSTAT = f"""<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/qstat.xsd">
  <queue_info>{JOB.format(2, "r")}</queue_info>
  <job_info>{JOB.format(3, "qw")}{JOB.format(4, "Eqw")}</job_info>
</job_info>"""
QUEUE = """   <queue name='{0}'>
     <queuevalue qname='{0}' name='slots'>{1}</queuevalue>
     <queuevalue qname='{0}' name='state_string'>{2}</queuevalue>
   </queue>"""
QHOST = f"""<?xml version='1.0'?>
<qhost>
 <host name='global'><hostvalue name='mem_total'>-</hostvalue></host>
 <host name='n1'>
   <hostvalue name='mem_total'>23.5G</hostvalue>{QUEUE.format("all.q", 8, "")}
 </host>
 <host name='n2'>
   <hostvalue name='mem_total'>512.0M</hostvalue>{QUEUE.format("all.q", 16, "au")}
{QUEUE.format("old.q", 16, "d")}
 </host>
</qhost>"""


def complexes(gpu="JOB", memory="YES"):
    """What qconf -sc says of how a site counts."""
    return f"""#name      shortcut   type        relop requestable consumable default  urgency
#-----------------------------------------------------------------------------
gpu        g          INT         <=    YES         {gpu:10} 0        0
mem_free   mf         MEMORY      <=    YES         {memory:10} 0        0
# >#< starts a comment but comments are not saved across edits --------"""


@pytest.fixture(autouse=True)
def by_job(program):
    program("qconf", complexes())


def accounting(failed="0", status="0", lasted="9s", category="-l h_rt=600"):
    return f"""{"=" * 62}
qname        all.q
jobnumber    7
granted_pe   smp
failed       {failed}
exit_status  {status}
ru_wallclock {lasted}
category     {category}"""


def test_queues_are_read_over_their_nodes(program):
    program("qhost", QHOST)
    limits = "all.q) echo 'h_rt    24:00:00,[n1=48:00:00], \\'; echo '        [n2=1:0:0]';;\n"
    limits += "*) echo 'h_rt   INFINITY';;\n"
    program("qconf", script=f"#!/bin/sh\ncase $2 in\n{limits}esac\n")
    found = sge.queues()
    one = found["all.q"]
    assert (one.count(), one.maximum("cores"), one.maximum("memory_mb")) == (2, 16, 24064)
    assert (one.count(up=True), one.count(cores=16, memory_mb=24064)) == (1, 0)
    assert one.up and not one.default and one.time_limit_s == 48 * 3600
    assert not found["old.q"].up and found["old.q"].time_limit_s is None


def test_a_job_in_the_queue_runs_unless_it_is_in_an_error_state(program):
    program("qstat", QSTAT)
    program("qacct", script="#!/bin/sh\necho error: job id 9 not found >&2\nexit 1\n")
    states = {"2": JobState("r", "running"), "3": JobState("qw", "running")}
    assert sge.job_states({"2", "3", "4", "9"}) == states | {"4": JobState("Eqw", "failed")}


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({}, "ok"),
        ({"status": "3"}, "failed"),
        ({"status": "1", "failed": "26  : opening input/output file"}, "failed"),
        # Deleted; then killed for its time by the master and by the node's own daemon.
        ({"status": "137                  (Killed)", "failed": "100 : assumedly after job"},
         "failed"),
        ({"status": "137", "failed": "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
          "lasted": "601s"}, "timeout"),
        ({"status": "137", "failed": "100 : assumedly after job", "lasted": "600.2"}, "timeout"),
        ({"status": "137", "failed": "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
          "category": "-l h_rt=600,h_vmem=4G -pe smp 2"}, "oom"),
    ],
)  # fmt: skip
def test_how_a_job_ended_is_read_from_the_accounting(record, status, program):
    program("qstat", "<job_info/>")
    program("qacct", accounting(status="0") + "\n" + accounting(**record))
    assert sge.job_states({"7"})["7"].status == status


def test_only_the_users_own_jobs_are_asked_for(program, tmp_path):
    program("qstat", script=f'#!/bin/sh\necho "$*" >{tmp_path}/asked\necho "<job_info/>"\n')
    sge._alive()
    assert (tmp_path / "asked").read_text() == f"-u {getpass.getuser()} -xml\n"


def test_a_job_is_submitted_with_what_it_asks_for():
    words = "qsub -terse -cwd -V -S /bin/sh -r n -j y -o logs -N smk.train -pe smp 8 "
    assert sge.submission(ASKED, "logs") == f"{words}-l h_rt=5400,gpu=2 -l fast=1".split()


def test_a_sites_names_are_used_where_it_gives_them(program):
    given = {
        "pe": "mpi-8", "queue": "gpu.q", "project": "p", "account": "a",
        "memory_complex": "mem_free", "exclusive_complex": "excl",
    }  # fmt: skip
    program("qconf", complexes(gpu="YES"))
    asked = replace(ASKED, resources=given, nodes=2, tasks=2, node="n3", gpu_request="gpu:a100")
    command = sge.submission(replace(asked, gpus_per_node=8, extra=""), "logs")
    words = "-q gpu.q -P p -A a -pe mpi-8 16 -l h_rt=5400,hostname=n3,mem_free=2000M,gpu=1,"
    words += "gpu_type=a100,excl=true"
    assert command[command.index("smk.train") + 1 :] == words.split()


def test_several_nodes_that_are_named_are_alternatives_for_the_hosts_of_a_job():
    asked = replace(
        ASKED, node="n[3,5]", resources={"pe": "mpi-8"}, nodes=2, tasks=2, gpus_per_node=0
    )
    assert "h_rt=5400,hostname=n3|n5" in " ".join(sge.submission(asked, "logs"))


@pytest.mark.parametrize(
    ("how", "slots", "gpus", "asked"),
    [("YES", 2, 4, "gpu=2"), ("YES", 1, 4, "gpu=4"), ("JOB", 8, 2, "gpu=2"),
     ("HOST", 8, 2, "gpu=2"), ("NO", 8, 2, "gpu=2")],
)  # fmt: skip
def test_gpus_are_asked_for_as_they_are_counted(how, slots, gpus, asked, program):
    program("qconf", complexes(gpu=how))
    command = sge.submission(replace(ASKED, cores_per_task=slots, gpus_per_node=gpus), "logs")
    assert asked in command[command.index("-l") + 1].split(",")


@pytest.mark.parametrize(
    ("how", "memory"), [("YES", "2001M"), ("JOB", "16001M"), ("NO", "16001M"), ("HOST", "16001M")]
)
def test_memory_is_asked_for_as_it_is_counted(how, memory, program):
    program("qconf", complexes(memory=how))
    given = ASKED.resources | {"memory_complex": "mf"}
    command = sge.submission(replace(ASKED, resources=given, memory_mb=16001), "logs")
    assert f"mf={memory}" in command[command.index("-l") + 1].split(",")


def test_gpus_that_cannot_be_asked_for_are_told_before_anything_is_submitted(program):
    job = jobs.Job(1, 1, 4, 1000, 2, 60, False, "gpu", "")
    program("qconf", complexes(gpu="YES"))
    fitting = replace(job, gpus_per_node=0), replace(job, cores_per_task=2)
    (found,) = sge.unsupported_jobs([job, *fitting])
    assert found[1] is job
    assert "2 GPUs and 4 slots a node, and Grid Engine counts gpu by slot" in found[0]
    with pytest.raises(Error, match="counts gpu by slot"):
        sge.submission(replace(ASKED, cores_per_task=4), "logs")
    with pytest.raises(Error, match=r"counts gpu by slot .*: 1 job, as a run"):
        jobs.check([("a run", job)], {"q": Queue("q")}, "q", sge.unsupported_jobs)
    program("qconf", complexes(gpu="JOB"))
    (found,) = sge.unsupported_jobs([job, replace(job, nodes=2, tasks=2)])
    assert "on each of 2 nodes, and Grid Engine counts gpu by job" in found[0]
    (found,) = sge.unsupported_jobs([replace(job, gpu_request="gpus:a100")])
    assert "no complex of that name (qconf -sc) (did you mean 'gpu'?)" in found[0]
    assert "correct site.job.gpu_request" in found[0]


def test_several_slots_need_the_name_of_a_parallel_environment():
    with pytest.raises(Error, match=r"smk\.train needs 8 slots .* parallel environment"):
        sge.submission(replace(ASKED, resources={}), "logs")
    serial = replace(ASKED, resources={}, cores_per_task=1)
    assert "-pe" not in sge.submission(serial, "logs")
