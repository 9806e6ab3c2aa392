"""What it takes a run to say on what and with what it is trained, beside the rest of its start.

    uv run python workflow_scripts/make_environment.py envs/train
    envs/train/.venv/bin/python tests/performance/provenance.py [--runs 5]

Each run is a process of its own, so that nothing is remembered from the one before. Prints over
the runs the median, least and most of
    gathered     milliseconds from the first fact to the last (target: under 1000)
    share        of the start: the trainer's first words to run_start (imports, model, data)
    event        bytes of the event in the log
What NVML takes for GPUs needs one, and is not in it here.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

from dlbench.log import event_log  # noqa: E402

TRAIN = REPOSITORY / "workflow_scripts" / "train.py"
FLAGS = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "8"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    rows = [measured() for _ in range(parser.parse_args().runs)]
    gathered_ms, share, size = zip(*rows, strict=True)
    print(f"gathered: {spread(gathered_ms, 1)} ms (target < 1000)")
    print(f"share:    {spread(share, 2)} % of the start")
    print(f"event:    {spread(size, 0)} bytes")


def measured():
    """Milliseconds of gathering, per cent of the start, bytes of the event of one run."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.jsonl"
        command = [sys.executable, TRAIN, *FLAGS, "--steps", "1", "--warmup-steps", "1"]
        command += ["--log", log, "--packages", Path(folder) / "packages"]
        subprocess.run(command, check=True, capture_output=True)
        events = {event["event"]: event for event in event_log.read(log)}
    start_s = event_log.seconds_between(events["begin"]["t_utc"], events["run_start"]["t_utc"])
    gathered_s = events["machine"]["gathered_s"]
    return 1000 * gathered_s, 100 * gathered_s / start_s, len(json.dumps(events["machine"]))


def spread(values, digits):
    low, median, high = min(values), statistics.median(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
