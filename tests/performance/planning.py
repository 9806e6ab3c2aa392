"""What 10 000 combinations cost to plan, beside a bare Snakemake workflow of the same job count.

    uv run python tests/performance/planning.py [--combinations 10000]

Prints the time and memory of a dry run, of a run that finds everything done,
and what a dry run schedules after one model was added. The targets: within 1.5
times the bare workflow, under 400 MB, and exactly the new model's runs.
The finished runs are not trained: their logs are written here, two steps each,
then parsed, collected and drawn by the workflow itself.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/support"), str(REPOSITORY / "workflow_scripts")]

from campaign import Campaign, environment  # noqa: E402

from dlbench.log import event_log  # noqa: E402
from dlbench.records import parse_run, run_record, staleness  # noqa: E402
from dlbench.study import config  # noqa: E402

BARE = """
RUNS = [f"model-dataset-b{{number}}-r1-0123456789" for number in range({combinations})]
rule all:
    input: expand("results/runs/{{run}}/run.json", run=RUNS),
           "results/tables/runs.parquet", "results/figures/scaling.svg"
rule train:
    output: "results/runs/{{run}}/train.jsonl", "results/runs/{{run}}/run.json"
    shell: "touch {{output}}"
rule collect_runs:
    input: expand("results/runs/{{run}}/run.json", run=RUNS)
    output: "results/tables/runs.parquet"
    shell: "touch {{output}}"
rule draw_figure:
    input: "results/tables/runs.parquet"
    output: "results/figures/scaling.svg"
    shell: "touch {{output}}"
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--combinations", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Path(folder) / "ours", Path(folder) / "bare"
        campaign = Campaign.fresh(ours)
        study(campaign, ["lenet5"], args.combinations)
        bare.mkdir()
        (bare / "Snakefile").write_text(BARE.format(combinations=args.combinations))
        compare("dry run of all", ours, bare, "-n", "--quiet", "all")

        finish_ours(campaign)
        finish_bare(bare, args.combinations)
        compare("nothing to do", ours, bare, "--quiet", "all")

        study(campaign, ["lenet5", "cnn12"], args.combinations)
        added(ours, args.combinations)


def study(campaign, models, combinations):
    block = {"name": "many", "model": models, "dataset": "synthetic", "steps": 2}
    campaign.configure(
        matrix=[block | {"batch_per_device": list(range(1, combinations + 1)), "warmup_steps": 0}],
        figures=["scaling"],
    )


def compare(what, ours, bare, *arguments):
    measured = [measure(folder, *arguments) for folder in (bare, ours, bare, ours)]
    (bare_s, bare_mb), (our_s, our_mb) = min(measured[::2]), min(measured[1::2])
    print(
        f"{what}: {our_s:.1f} s beside {bare_s:.1f} s, ratio {our_s / bare_s:.2f}; "
        f"{our_mb:.0f} MB beside {bare_mb:.0f} MB",
        flush=True,
    )


def measure(folder, *arguments):
    """Seconds and peak memory in MB of one `snakemake`."""
    before = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--cores", "1", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(output.decode())
    return time.perf_counter() - before, usage.ru_maxrss / 1000


def finish_ours(campaign):
    """Write every run's log and let the library parse it; the workflow does the rest."""
    os.chdir(campaign.folder)
    plan = config.study(config.read("config.yaml"))
    for run in plan.runs:
        place = run_record.folder(run.id)
        log = event_log.EventLog(place / "train.jsonl")
        log.write("launch", t_utc=event_log.utc_now(), made_from=staleness.made_from(run))
        log.start(
            spec=run.values(),
            versions={"tensorflow": "2.18.1"},
            device_model="none",
            host="none",
            devices=["0"] * run.devices,
            total_steps=2,
        )
        for step in (1, 2):
            log.step(step, 0.1 * step, 0.1, 2.3, 0.01, False, 1)
        log.write(
            "run_end",
            t_s=0.2,
            t_utc=event_log.utc_now(),
            status="ok",
            message="",
            weights_sha256=["0"],
        )
        log.close()
        parse_run.parse(run, place / "train.jsonl", place / "run.json")
    campaign.succeed("--quiet", "all", "--", "images", "all")


def finish_bare(folder, combinations):
    for number in range(combinations):
        place = folder / f"results/runs/model-dataset-b{number}-r1-0123456789"
        place.mkdir(parents=True)
        for name in ("train.jsonl", "run.json"):
            (place / name).touch()
    measure(folder, "--quiet", "all")


def added(folder, combinations):
    finished = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    counts = dict(re.findall(r"^(\w+) +(\d+)$", finished.stdout + finished.stderr, re.MULTILINE))
    print(f"one model added to {combinations} finished runs schedules:")
    for rule, count in counts.items():
        print(f"  {rule} {count}")


if __name__ == "__main__":
    main()
