"""A campaign on a real Slurm while it is at work: its running jobs, and what status says."""

import json
import subprocess

from dlbench.starting import fates
from support.machines.slurm_cluster import wait_for


class Running:
    """A run that a job of Slurm trains."""

    def __init__(self, log):
        self.run_id = log.parent.name
        self.job = fates.current_attempt(log).job[1]
        launch = json.loads(log.read_text().splitlines()[0])
        (self.host,) = launch["job"]["hosts"]


def start(campaign, *more, options=("--profile", "slurm")):
    command = campaign.command(*options, *more)
    joined = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=campaign.folder, env=campaign.environment(), **joined)


def running_jobs(campaign, number):
    """The runs that take steps, once so many do."""
    folder = campaign.folder / "results/runs"

    def at_work():
        logs = folder.glob("*/train.jsonl")
        going = [log for log in logs if not (log.parent / "run.json").exists()]
        going = [log for log in going if '"step"' in log.read_text()]
        return going if len(going) == number else None

    return [Running(log) for log in sorted(wait_for(at_work, 300))]


def aside(campaign, run_id):
    return list((campaign.folder / "results/runs" / run_id).glob("train.attempt*.jsonl"))


def has_aside(campaign, run_id, number):
    return len(aside(campaign, run_id)) == number


def status(campaign):
    return json.loads(campaign.dlbench("status", "--json"))
