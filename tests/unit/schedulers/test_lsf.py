"""What LSF says, after the texts in its manuals, and what it is asked for."""

import dataclasses

import pytest

from dlbench import Error, schedulers
from dlbench.schedulers import JobState, lsf

QUEUES = """
QUEUE: normal
  -- For normal low priority jobs.  This is the default queue.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30   20  Open:Active       -    -    -    -     0     0     0     0     0    0     0

DEFAULT LIMITS:
 RUNLIMIT
 60.0 min of host1

MAXIMUM LIMITS:
 RUNLIMIT
 1440.0 min of host1

------------------------------------------------------------------------------

QUEUE: idle
  -- Running only if the machine is idle and very lightly loaded.

PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 20   20  Closed:Active     -    -    -    -     0     0     0     0     0    0     0
"""
REMEMBERED = """
Job <7>, Job Name <smk>, User <u>, Project <default>, Command <sleep 600>
Thu Mar 13 20:16:32: Submitted from host <h>, to Queue <normal>
Thu Mar 13 20:18:32: Exited by signal 2. The CPU time used is 0.1 seconds;
Thu Mar 13 20:18:32: Completed <exit>; TERM_RUN
                     LIMIT: job killed after reaching LSF run time limit;
"""
REQUEST = schedulers.Job(
    name="run", nodes=2, tasks=8, cores_per_task=4, memory_mb=64000, time_min=90,
    gpus_per_node=4, gpu_request="gpu:NVIDIAA100", exclusive=True, extra="-U reserved",
    node="n[3,5]", resources={"lsf_queue": "gpu"},
)  # fmt: skip


def test_queues_are_read_with_the_limit_that_may_be_asked_for(program):
    program("bqueues", QUEUES)
    found = lsf.queues()
    assert found["normal"].default and found["normal"].up
    assert found["normal"].time_limit_s == 24 * 3600
    assert not found["idle"].default and not found["idle"].up
    assert found["idle"].time_limit_s is None


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("7|PEND|-|-", "running"),
        ("7|UNKWN|-|-", "running"),
        ("7|DONE|-|-", "ok"),
        ("7|EXIT|1|-", "failed"),
        ("7|EXIT|130|TERM_OWNER: job killed by owner", "interrupted"),
        ("7|EXIT|140|TERM_RUNLIMIT: job killed after reaching LSF run time limit", "timeout"),
        ("7|EXIT|137|TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", "oom"),
    ],
)
def test_how_a_job_stands_or_ended_is_read(line, status, program):
    program("bjobs", line)
    assert lsf.job_states({"7"})["7"].status == status


def test_jobs_that_bjobs_has_forgotten_are_looked_up_one_by_one(program):
    cases = "*7*) echo 'Job <7> is not found' >&2; exit 255;;\n*) echo '8|DONE|-|-';;"
    program("bjobs", script=f'#!/bin/sh\ncase "$*" in\n{cases}\nesac\n')
    program("bhist", REMEMBERED)
    forgotten = JobState("EXIT, TERM_RUNLIMIT", "timeout")
    assert lsf.job_states({"7", "8"}) == {"7": forgotten, "8": JobState("DONE", "ok")}


def test_a_job_asks_for_slots_by_node_and_for_memory_by_slot():
    command = lsf.submission(REQUEST, "logs")
    assert command[command.index("-m") + 1] == "n3 n5" and command[-3:] == ["-U", "reserved", "sh"]
    asked = " ".join(command)
    assert "-n 32 -R span[ptile=16] -R rusage[mem=4000] -gpu num=4/host:gmodel=NVIDIAA100" in asked
    assert "-q gpu " in asked and " -x -m n3 n5 " in asked and " -W 90 " in asked
    by_job = dataclasses.replace(REQUEST, resources={"lsf_memory": "job"})
    assert "rusage[mem=64000]" in lsf.submission(by_job, "logs")
    assert lsf.job_id("Job <7> is submitted to queue <gpu>.\n") == "7"
    with pytest.raises(Error, match="bsub names no job: Over quota"):
        lsf.job_id("Over quota\n")
