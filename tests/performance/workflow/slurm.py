"""What a run costs beside its training when it goes through a real Slurm on this machine.

- overhead: one run a job, `--runs` times: submission, the Snakemake that starts inside the job,
  the training itself with its imports, the end of the job, and how late it is noticed.
- shared: the same runs in jobs that they share, beside a job each; wall time over the runs' own.

Needs the scripts in the folder that DLBENCH_TEST_EQUIPMENT names, root and Debian.
    uv run python -m tests.performance.workflow.slurm [--runs 5] [--shared 100] [--apart 20]
"""

import json
import re
import subprocess
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import yaml

from dlbench.log import event_fields, event_log
from support.campaigns.campaign import Campaign
from support.machines.slurm_cluster import FACTS, SCRIPTS, Slurm, resolve_nodes

from .. import bench

ENDED = re.compile(r"run \d+/\d+  .*: (?:ok|unstable)")  # Snakemake's terminal, of a run
BLOCK = {
    "name": "short", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4,
    "warmup_steps": 1,
}  # fmt: skip


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of the overhead")
    parser.add_argument("--shared", type=int, default=100, help="runs that share jobs")
    parser.add_argument("--apart", type=int, default=20, help="runs in a job each, beside them")
    parser.add_argument("--steps", type=int, default=4000, help="five seconds, with imports")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        slurm = Slurm(Path(folder) / "slurm")
        resolve_nodes()
        up = ["bash", SCRIPTS / "slurm_up.sh", slurm.folder, "acct"]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            campaign = Campaign.fresh(Path(folder) / "project")
            campaign.variables = slurm.variables
            measure(campaign, slurm, args)
        finally:
            slurm.down()


def measure(campaign, slurm, args):
    figures = bench.Figures(args.json)
    prepare(campaign)
    overhead(figures, campaign, slurm, args)
    alone = wall_over_own(campaign, args.apart, args.steps, seed=3, bundle_min=0)
    together = wall_over_own(campaign, args.shared, args.steps, seed=4, bundle_min=30)
    for name, (number, wall_s, own_s, jobs) in (("a job each", alone), ("shared jobs", together)):
        of = f"{number} runs of {own_s / number:.1f} s each in {jobs} jobs, {name}"
        figures.add(f"{of}, time over the runs' own", wall_s / own_s)


def prepare(campaign):
    """The environment, and a first run by which it is known how long such runs take."""
    study(campaign, 1, 10, seed=1)
    campaign.succeed("--profile", "profiles/slurm")


def study(campaign, repeats, steps, seed, bundle_min=0):
    site = FACTS | {"job": FACTS["job"] | {"bundle_min": bundle_min}}
    (campaign.folder / "site.yaml").write_text(yaml.safe_dump({"site": site}))
    block = {**BLOCK, "steps": steps, "seed": seed, "repeats": repeats}
    campaign.configure(matrix=[block], figures=[])


def overhead(figures, campaign, slurm, args):
    parts = []
    for seed in range(100, 100 + args.runs):
        study(campaign, 1, args.steps, seed)
        parts.append(one_run(campaign, slurm))
    for name in parts[0]:  # Slurm's own dates are whole seconds
        figures.add(f"one run through Slurm, {name}", [part[name] for part in parts], "s")


def one_run(campaign, slurm):
    """Seconds of each part between the start of Snakemake and its end."""
    before = set(records(campaign))
    started = time.time()
    process = subprocess.Popen(
        campaign.command("--profile", "profiles/slurm"),
        cwd=campaign.folder,
        text=True,
        env=campaign.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    submitted = noticed = None
    for line in process.stdout:
        if found := re.search(r"with external jobid '(\w+)'", line):
            submitted, job = time.time(), found[1]
        elif submitted and not noticed and ENDED.match(line):
            noticed = time.time()
    process.wait()
    (run,) = set(records(campaign)) - before
    log = list(event_log.read(run.parent / "train.jsonl"))
    launched, ended = seconds(log[0]["t_utc"]), seconds(log[-1]["t_utc"])
    begun, over = job_times(slurm, job)
    return {
        "Snakemake until submission": submitted - started,
        "waiting in the queue": max(0.0, begun - submitted),
        "Snakemake inside the job": launched - begun,
        "the run itself": ended - launched,
        "the job after the run": over - ended,
        "noticed": noticed - over,
    }


def job_times(slurm, job):
    """When a job began and ended, in seconds since 1970."""
    said = slurm.run("sacct", "-X", "--noheader", "--parsable2", "--format=Start,End", "-j", job)
    return [datetime.fromisoformat(date).timestamp() for date in said.strip().split("|")]


def seconds(date):
    then = datetime.strptime(date, event_fields.UTC_FORMAT)
    return then.replace(tzinfo=timezone.utc).timestamp()


def records(campaign):
    return (campaign.folder / "results/runs").glob("*/run.json")


def wall_over_own(campaign, number, steps, seed, bundle_min):
    """(runs, wall seconds, the runs' own seconds, jobs) of some runs, one job at a time."""
    study(campaign, 1, steps, seed)
    campaign.succeed("--profile", "profiles/slurm")  # by which it is known how long they take
    before = set(records(campaign))
    study(campaign, number + 1, steps, seed, bundle_min)
    started = time.monotonic()
    # Two of them would be measured on each other's cores.
    campaign.succeed("--profile", "profiles/slurm", "--jobs", "1", timeout=7200)
    wall_s = time.monotonic() - started
    new = set(records(campaign)) - before
    logs = [list(event_log.read(path.parent / "train.jsonl")) for path in new]
    own_s = sum(seconds(log[-1]["t_utc"]) - seconds(log[0]["t_utc"]) for log in logs)
    jobs = {json.loads(path.read_text())["provenance"]["job"]["id"] for path in new}
    return number, wall_s, own_s, len(jobs)


if __name__ == "__main__":
    main()
