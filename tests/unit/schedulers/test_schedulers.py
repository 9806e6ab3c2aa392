"""What schedulers say, read from what their programs print."""

import inspect

import pytest

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.schedulers import Fate, slurm


def test_slurms_partitions_are_read_with_their_limits(program):
    program(
        "sinfo",
        "cpu*|up|1:00:00|3|8|8000|(null)|idle\n"
        "cpu*|up|1:00:00|1|8|8000|(null)|draining\n"
        "cpu*|up|1:00:00|2|8|8000|(null)|idle~\n"
        "cpu*|up|1:00:00|1|8|8000|(null)|idle*\n"
        "gpu|up|2-00:00:00|2|64|256000|gpu:a100:4(S:0-1),nvme:1|mixed\n"
        "gpu|up|2-00:00:00|1|32|128000|gpu:v100:2|allocated\n"
        "old|down|infinite|1|8|8000|(null)|down\n"
        "none|up|infinite|0|0|0|(null)|n/a",
    )
    found = slurm.queues()
    assert found["cpu"].default and found["cpu"].most("gpus") == 0
    assert (found["cpu"].count(), found["cpu"].count(up=True)) == (7, 5)
    assert found["none"].count() == 0
    assert found["cpu"].time_limit_s == 3600
    gpu = found["gpu"]
    assert (gpu.count(), gpu.most("gpus"), gpu.most("cores")) == (3, 4, 64)
    assert (gpu.count(gpus=4), gpu.count(gpus=2), gpu.count(gpus=4, cores=65)) == (2, 3, 0)
    assert gpu.time_limit_s == 2 * 24 * 3600
    assert not found["old"].up and found["old"].time_limit_s is None


def test_a_job_that_slurm_still_shows_counts_as_it_stands_now(program):
    program("sacct", "7|COMPLETED\n8|CANCELLED by 0\n9|OUT_OF_MEMORY\n11|PENDING")
    program("squeue", "10|TIMEOUT\n11|RUNNING")
    assert slurm.fates({"7", "8", "9", "10", "11", "12"}) == {
        "7": Fate("COMPLETED", "ok"),
        "8": Fate("CANCELLED by 0", "interrupted"),
        "9": Fate("OUT_OF_MEMORY", "oom"),
        "10": Fate("TIMEOUT", "timeout"),
        "11": Fate("RUNNING", "running"),
    }


def test_nothing_is_known_of_jobs_where_the_scheduler_does_not_answer(program):
    for name in ("sacct", "squeue"):
        program(name, script="#!/bin/sh\necho slurm_load_jobs error >&2\nexit 1\n")
    assert slurm.fates({"7"}) == {}


def test_a_scheduler_that_does_not_answer_is_named_with_what_it_says(program, monkeypatch):
    program("sinfo", script="#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    with pytest.raises(Error, match=r"sinfo failed .*Unable to contact slurm controller"):
        slurm.queues()
    program("sinfo", script="#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(schedulers, "PATIENCE_S", 0.2)
    with pytest.raises(Error, match=r"did not answer within 0\.2 s"):
        slurm.queues()


@pytest.mark.parametrize("name", plugins.names("schedulers"))
def test_every_scheduler_defines_what_is_asked_of_it(name):
    module = plugins.load("schedulers", name)
    assert isinstance(module.JOB_ID, str) and isinstance(module.QUEUE, str)
    assert all(callable(getattr(module, asked)) for asked in ("queues", "fates", "hosts"))
    assert module.fates(set()) == {} and module.hosts({}) == []


def test_the_job_around_this_process_is_known_by_its_variable():
    assert schedulers.job({"SLURM_JOB_ID": "17"}) == ("slurm", "17")
    assert schedulers.job({}) is None


@pytest.mark.parametrize("name", ["slurm", "lsf"])
def test_a_scheduler_whose_plugin_lacks_something_says_how_to_change_it(name):
    signature = inspect.signature(plugins.load("schedulers", name).mend)
    assert list(signature.parameters) == ["plugin", "every_s", "settings"]
