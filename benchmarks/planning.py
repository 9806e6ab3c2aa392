"""What combinations cost to plan, beside a bare Snakemake workflow of the same job count.

Measured are CPU time and memory of a dry run of one combination, as a first start has it; of a dry
run of all; of a start that finds everything done; and what a dry run schedules after one model was
added. The targets: within twice the bare workflow's CPU time where all is to be done and 1.3 times
where nothing is, under 450 MB, and exactly the new model's runs. A dry run of GROWTH times as many
takes at most a tenth more than GROWTH times the CPU time, since else something grows faster than
linearly. The finished runs are not trained: their logs are written here, two steps each, then
parsed, collected and drawn by the workflow itself.
"""

import re
import statistics
import sys
import tempfile
from pathlib import Path

from support.campaigns.campaign import Campaign, environment
from support.costs import finished_study
from support.costs.bare_workflow import BARE

from . import measuring

ROUNDS = 2
GROWTH = 5


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--combinations", type=int, default=10_000)
    args = parser.parse_args()
    figures = measuring.Figures(args.json)
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Path(folder) / "ours", Path(folder) / "bare"
        campaign = Campaign.fresh(ours)
        bare.mkdir()
        write(campaign, bare, 1)
        compare(figures, "dry run of one", None, ours, bare, "-n", "--quiet", "all")
        write(campaign, bare, args.combinations)
        cpu_s = compare(figures, "dry run", 2.0, ours, bare, "-n", "--quiet", "all")
        write(campaign, bare, GROWTH * args.combinations)
        grown(figures, ours, bare, cpu_s)

        write(campaign, bare, args.combinations)
        finished_study.finish(campaign)
        finished_study.finish_bare(bare, args.combinations)
        snakemake(bare, "--quiet", "all")
        compare(figures, "nothing to do", 1.3, ours, bare, "--quiet", "all")

        study(campaign, ["lenet5", "cnn12"], args.combinations)
        added(figures, ours, args.combinations)


def write(campaign, bare, combinations):
    study(campaign, ["lenet5"], combinations)
    (bare / "Snakefile").write_text(BARE.format(combinations=combinations))


def study(campaign, models, combinations):
    block = {"name": "many", "model": models, "dataset": "synthetic", "steps": 2}
    campaign.configure(
        matrix=[block | {"batch_per_device": list(range(1, combinations + 1)), "warmup_steps": 0}],
        figures=["scaling"],
    )


def compare(figures, what, most, ours, bare, *arguments):
    """Add the figures of a start of both workflows. Returns the CPU time of each, in s.

    Args:
        most: the target, of our CPU time over the bare workflow's.
    """
    calls = {
        "ours": lambda: snakemake(ours, *arguments),
        "bare": lambda: snakemake(bare, *arguments),
    }
    used = measuring.in_turns(ROUNDS, calls)
    cpu_s = {name: [one.cpu_s for one in each] for name, each in used.items()}
    peak_mb = {name: [one.peak_mb for one in each] for name, each in used.items()}
    figures.add(f"{what}, CPU time", cpu_s["ours"], "s")
    ratios = measuring.ratios(cpu_s["ours"], cpu_s["bare"])
    figures.add(f"{what}, CPU time over the bare workflow's", ratios, at_most=most)
    figures.add(f"{what}, memory", peak_mb["ours"], "MB", at_most=450)
    figures.add(f"{what}, memory of the bare workflow", peak_mb["bare"], "MB")
    return {name: statistics.median(values) for name, values in cpu_s.items()}


def grown(figures, ours, bare, cpu_s):
    """Add the figures of a dry run of GROWTH times as many as took this CPU time."""
    what = f"dry run of {GROWTH} times as many"
    for name, folder, of in (("ours", ours, ""), ("bare", bare, " of the bare workflow")):
        used = snakemake(folder, "-n", "--quiet", "all")
        figures.add(f"{what}, CPU time{of}", used.cpu_s, "s")
        most = 1.1 * GROWTH if name == "ours" else None
        figures.add(f"{what}, times the CPU time{of}", used.cpu_s / cpu_s[name], at_most=most)
        figures.add(f"{what}, memory{of}", used.peak_mb, "MB")


def snakemake(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    return measuring.run(command, cwd=folder, env=environment())


def added(figures, folder, combinations):
    printed = snakemake(folder, "-n", "--quiet", "rules").output
    counts = dict(re.findall(r"^(\w+) +(\d+)$", printed, re.MULTILINE))
    print(f"one model added to {combinations} finished runs schedules: {counts}")
    beyond = abs(int(counts["train"]) - combinations)
    figures.add("one model added: runs scheduled beyond its own", beyond, at_most=0)


if __name__ == "__main__":
    main()
