"""Time and memory to read and analyse a history of many campaigns, and to judge the newest one.

uv run python -m tests.performance.results.history [--campaigns 10000] [--machines 20]

Campaigns of 50 conditions and 3 to 5 repeats are written as the history has them, some machines in
turn, each with a change of the driver that costs 3 %; then analyse_history.py reads and analyses
all, and `dlbench gate` judges the newest. The target: 10 000 campaigns in under a minute and 1 GB,
each of the two.
"""

import json
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

from dlbench.history import dataset, machines
from support.costs import resource_use

from .. import REPOSITORY, bench

CONDITIONS = 50
FIRST = datetime(2020, 6, 1, tzinfo=timezone.utc)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--machines", type=int, default=20)
    args = parser.parse_args()
    chance = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for number in range(args.campaigns):
            dataset.add(folder / "history", session(number, args, chance))
        programs, history = REPOSITORY / "workflow_scripts", folder / "history"
        analysis = [programs / "analyse_history.py", "--history", history]
        analysed = resource_use.run([sys.executable, *analysis, "--output", folder / "tables"])
        gate = [programs / "dlbench", "gate", history, "--allow", "worse"]
        judged = resource_use.run([sys.executable, *gate])
    figures = bench.Figures(args.json)
    what = f"{args.campaigns} campaigns of {CONDITIONS} conditions"
    for use, work in ((analysed, ""), (judged, ", the gate")):
        figures.add(f"{what}{work}: time", use.wall_s, "s", at_most=60)
        figures.add(f"{what}{work}: memory", use.peak_mb / 1000, "GB", at_most=1)


def session(number, args, chance):
    machine, week = number % args.machines, number // args.machines
    is_new = week >= args.campaigns / args.machines / 2
    facts = {"nodes": [f"2 x processor {machine}, 64 cores"], "gpus": [], "gpus_per_node": 0}
    fingerprints = {
        "GPU driver": "560.35" if is_new else "550.54",
        "kernel": f"6.{week // 20}",
        "dlbench commit": f"{number:040x}",
        **{f"library {n}": f"1.{week // 50}.{n}" for n in range(20)},
    }
    common = {
        "session": f"s{number:06d}",
        "started_at": FIRST + timedelta(hours=2 * number),
        "site": "here",
        "study": "nightly",
        "machine_key": machines.key(facts),
        "machine": machines.name(facts),
        "machine_facts": json.dumps(facts),
        "metric": "images_per_second",
        "unit": "items/s",
        "better": "higher",
        "facts": json.dumps(fingerprints, sort_keys=True),
        "hosts": f"node{machine}",
        "archive_sha256": f"{number:064x}",
    }
    counts = chance.integers(3, 6, CONDITIONS)
    logs = np.log(1000) + chance.normal(0, 0.005, CONDITIONS) - 0.03 * is_new
    return [
        common
        | {
            "condition_id": f"{condition:012x}",
            "condition": f"model{condition} data batch 64, mirrored on 8 devices",
            "fields": f'{{"batch_per_device":64,"model":"model{condition}"}}',
            "meaning": "{}",
            "n": int(counts[condition]),
            "mean_log": float(logs[condition]),
            "scatter": float(0.008 * chance.uniform(0.7, 1.3)),
            "mean": float(np.exp(logs[condition])),
            "failed": 0,
            "disturbed": 0,
            "logs": [f"{number:08x}{condition:04x}{n:04x}" for n in range(counts[condition])],
        }
        for condition in range(CONDITIONS)
    ]


if __name__ == "__main__":
    main()
