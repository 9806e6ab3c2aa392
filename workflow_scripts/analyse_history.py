"""Analyse a history: write its tables, and print what changed in it, when and probably why."""

import argparse
import json
import sys
from pathlib import Path

from dlbench import Error
from dlbench.common.command_line import run_program
from dlbench.history import add_campaign, analyse_history, sources
from dlbench.study import config
from dlbench.tables import parquet_files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=Path, default=sources.HISTORY, help="folder")
    parser.add_argument("--output", type=Path, default=sources.RESULTS, help="folder of the tables")
    parser.add_argument("--machines", type=json.loads, default={}, help="of the config, as JSON")
    parser.add_argument(
        "--refused",
        metavar="FILE",
        help="only report the sources of a merged config that were refused; exit code 1 if any was",
    )
    args = parser.parse_args()
    if args.refused:
        settings = config.read_merged_config(args.refused) or {}
        named = sources.sources(settings.get("history", []), settings.get("machines", {}))
        if refused := add_campaign.refusals(Path(source.receipt) for source in named):
            raise Error("\n".join(["not in the history:", *refused]))
        return
    parquet_files.spare_memory()
    history = analyse_history.analyse(args.history, args.machines)
    analyse_history.write(history, args.output)
    print(*history.lines(), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    run_program(main)
