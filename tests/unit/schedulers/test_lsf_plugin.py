"""The mended plugin for LSF, whose own code is run against programs in LSF's place."""

import asyncio
import importlib.util
import subprocess
import types

import pytest

from dlbench.schedulers import _lsf_plugin


@pytest.fixture
def executor(tmp_path):
    """An executor of a copy of the plugin, of which only what asks for states is there."""
    plugin = loaded()
    _lsf_plugin.mend(plugin, every_s=10)
    _lsf_plugin.mend(plugin, every_s=10)
    executor = object.__new__(plugin.Executor)
    executor.run_uuid = "7f3a"
    executor.lsf_config = {"LSB_EVENTS": str(tmp_path / "not there")}
    silent = {name: lambda message: None for name in ("debug", "error", "warning")}
    executor.logger = types.SimpleNamespace(**silent)
    return executor


def loaded():
    """A copy of the plugin, as it is shipped."""
    found = importlib.util.find_spec("snakemake_executor_plugin_lsf")
    plugin = importlib.util.module_from_spec(found)
    found.loader.exec_module(plugin)
    return plugin


def states(query):
    return asyncio.run(query())[0]


def test_a_job_on_a_node_out_of_touch_runs(executor, program):
    program("bjobs", "7 UNKWN\n8 DONE\n9 EXIT")
    assert states(executor.job_stati_bjobs) == {"7": "RUN", "8": "DONE", "9": "EXIT"}


def test_nothing_is_known_where_lsf_does_not_answer(executor, program):
    program("bjobs", script="#!/bin/sh\necho LSF is down >&2\nexit 255\n")
    assert states(executor.job_stati_bjobs) == {}
    assert states(executor.job_stati_lsbevents) == {}


def test_it_asks_as_often_as_it_is_told(executor):
    executor.next_seconds_between_status_checks = 120
    assert executor.next_seconds_between_status_checks == 10


def test_a_job_that_is_refused_has_failed_and_does_not_end_the_campaign(program):
    program("bsub", script="#!/bin/sh\necho 'No such queue. Job not submitted.'; exit 255\n")
    plugin = loaded()

    def run_job(self, job):
        """As the plugin does it, but for what it makes of a job's resources."""
        try:
            subprocess.check_output("bsub", text=True)
        except subprocess.CalledProcessError as error:
            raise plugin.WorkflowError(
                f"LSF job submission failed. The error message was {error.output}"
            ) from None

    plugin.Executor.run_job = run_job
    _lsf_plugin.mend(plugin, every_s=10)
    executor, told = object.__new__(plugin.Executor), []
    executor.report_job_error = lambda info, message: told.append((info, message))
    executor.run_job("a job")
    ((info, message),) = told
    assert (info.job, info.external_jobid) == ("a job", None)
    assert "No such queue. Job not submitted." in message
