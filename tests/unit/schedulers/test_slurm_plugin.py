"""What is changed in the Slurm plugin, on the plugin itself."""

import asyncio
import importlib
import logging
import sys

import pytest

from dlbench.schedulers import _slurm_plugin


class Settings:
    requeue = False
    array_jobs = None


@pytest.fixture
def plugin():
    """The plugin, freshly loaded."""
    before = sys.modules.pop("snakemake_executor_plugin_slurm", None)
    yield importlib.import_module("snakemake_executor_plugin_slurm")
    del sys.modules["snakemake_executor_plugin_slurm"]
    if before:
        sys.modules["snakemake_executor_plugin_slurm"] = before


def query(plugin, command):
    return asyncio.run(plugin.query_job_status(command, logging.getLogger("test")))


def test_states_are_what_the_plugin_knows(plugin):
    _slurm_plugin.mend(plugin, 10, Settings)
    states, _ = query(plugin, "printf '7|CANCELLED by 0\n8|PREEMPTED\n9|RUNNING\n'")
    assert states == {"7": "CANCELLED", "8": "FAILED", "9": "RUNNING"}


def test_a_scheduler_that_does_not_answer_takes_no_job_away(plugin):
    assert query(plugin, "false") == (None, None)  # with which the plugin forgets its jobs
    _slurm_plugin.mend(plugin, 10, Settings)
    assert query(plugin, "false") == ({}, 0.0)


def test_without_accounting_the_queue_itself_is_asked(plugin, program):
    program("sacct", script="#!/bin/sh\nexit 1\n")
    program("squeue", script='#!/bin/sh\necho "7|RUNNING"; test "$5" = some-run\n')
    _slurm_plugin.mend(plugin, 10, Settings)
    assert query(plugin, plugin.query_job_status_sacct("some-run"))[0] == {"7": "RUNNING"}


def test_a_job_that_was_seen_and_is_gone_has_failed(plugin, monkeypatch):
    _slurm_plugin.mend(plugin, 10, Settings)
    query(plugin, "printf '7|RUNNING\n8|RUNNING\n'")
    assert query(plugin, "printf '8|RUNNING\n'")[0] == {"8": "RUNNING"}
    monkeypatch.setattr(_slurm_plugin, "GONE_AFTER_S", 0.0)
    assert query(plugin, "printf '8|RUNNING\n'")[0] == {"7": "FAILED", "8": "RUNNING"}


def test_the_queue_is_looked_at_as_often_as_asked_for_however_idle_it_is(plugin):
    _slurm_plugin.mend(plugin, 10, Settings)
    executor = plugin.Executor.__new__(plugin.Executor)
    executor.next_seconds_between_status_checks = 180
    assert executor.next_seconds_between_status_checks == 10
    executor.next_seconds_between_status_checks = 5
    assert executor.next_seconds_between_status_checks == 5


def test_one_snakemake_does_the_work_of_a_job(plugin):
    _slurm_plugin.mend(plugin, 10, Settings)

    class Of:
        class workflow:
            class executor_settings:
                pass_command_as_script = False

    assert plugin.Executor.additional_general_args(Of) == "--executor local --jobs 1"


def test_arrays_that_are_not_used_may_be_of_any_size(plugin, program):
    program("scontrol", "MaxArraySize            = 1")
    assert plugin.get_max_array_size() < 2  # with which the plugin ends the campaign
    _slurm_plugin.mend(plugin, 10, Settings)
    assert plugin.get_max_array_size() == 1000


def test_arrays_that_are_used_are_of_slurms_size(plugin, program):
    class Arrays(Settings):
        array_jobs = "train"

    program("scontrol", "MaxArraySize            = 501")
    _slurm_plugin.mend(plugin, 10, Arrays)
    assert plugin.get_max_array_size() == 500


def test_it_is_changed_once(plugin):
    _slurm_plugin.mend(plugin, 10, Settings)
    once = plugin.query_job_status
    _slurm_plugin.mend(plugin, 10, Settings)
    assert plugin.query_job_status is once
