"""What it takes a run to say on what and with what it is trained, beside the rest of its start.

    uv run dlbench environment envs/train
    envs/train/.venv/bin/python -m tests.performance.machine.provenance [--runs 5]

Each run is a process of its own, so that nothing is remembered from the one before. Prints
    gathered     milliseconds from the first fact to the last (target: under 1000)
    share        of the start: the trainer's first words to run_start (imports, model, data)
    event        bytes of the event in the log
What NVML takes for GPUs needs one, and is not in it here.
"""

import json
import sys
import tempfile
from pathlib import Path

from dlbench.log import event_log

from .. import bench

TRAIN = bench.REPOSITORY / "workflow_scripts" / "train.py"
FLAGS = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "8"]


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    rows = [measured() for _ in range(args.runs)]
    gathered_ms, percent, size = zip(*rows, strict=True)
    figures = bench.Figures(args.json)
    figures.add("gathering what a run says of its machine", gathered_ms, "ms", at_most=1000)
    figures.add("its share of the run's start", percent, "%")
    figures.add("what is said, in the log", size, "bytes")


def measured():
    """Milliseconds of gathering, per cent of the start, bytes of the event of one run."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.jsonl"
        command = [sys.executable, TRAIN, *FLAGS, "--steps", "1", "--warmup-steps", "1"]
        command += ["--log", log, "--packages", Path(folder) / "packages"]
        bench.run(command)
        events = {event["event"]: event for event in event_log.read(log)}
    start_s = event_log.seconds_between(events["begin"]["t_utc"], events["run_start"]["t_utc"])
    gathered_s = events["machine"]["gathered_s"]
    return 1000 * gathered_s, 100 * gathered_s / start_s, len(json.dumps(events["machine"]))


if __name__ == "__main__":
    main()
