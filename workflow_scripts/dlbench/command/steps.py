"""Steps of the workflow: commands that rules start, and that --help does not list.

A step imports what it needs when it is called.
"""

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path

from dlbench.common import command_line, plugins


def add_fetch_dataset(parser: argparse.ArgumentParser) -> None:
    command_line.add_dataset(parser)
    parser.add_argument("--folder", required=True, help="where the source files go")
    parser.add_argument("--stamp", help="JSON file that lists what was checked, written last")
    parser.add_argument("--manual-dir", help="folder with files put there by hand")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument(
        "--terms-accepted", action="store_true", help="you have accepted the dataset's terms"
    )


def fetch_dataset(args: argparse.Namespace) -> None:
    """Download the source files of a dataset and compare them with the published digests."""
    from dlbench.common.files import write_json
    from dlbench.data.fetch_dataset import fetch

    command_line.check_dataset(args)
    checked = fetch(
        args.dataset,
        args.folder,
        manual_dir=args.manual_dir,
        offline=args.offline,
        terms_accepted=args.terms_accepted,
    )
    if args.stamp:
        write_json(args.stamp, checked)


def add_adopt_dataset(parser: argparse.ArgumentParser) -> None:
    command_line.add_dataset(parser)
    parser.add_argument("folder", help="folder with the shards, or with our manifest.json")
    parser.add_argument("--output", required=True, help="path of the manifest")
    parser.add_argument(
        "--code-sha256", default="", help="digest of a user's text and of the code that converts it"
    )
    parser.add_argument(
        "--check",
        default="header",
        choices=["header", "decode"],
        help="count the records and read the first of each shard, or read all",
    )


def adopt_dataset(args: argparse.Namespace) -> None:
    """Write a manifest for existing TFRecords, which stay where they are."""
    from dlbench.data.stores import adopt

    command_line.check_dataset(args)
    adopt(args.dataset, args.folder, args.output, args.check, args.code_sha256)


def add_convert_pictures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="its name in the config, under data.images")
    parser.add_argument("given", type=json.loads, help="what the config says there, as JSON")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for the shards and manifest.json"
    )
    parser.add_argument(
        "--workers", type=command_line.whole(1), help="processes; by default one for each core"
    )


def convert_pictures(args: argparse.Namespace) -> None:
    """Convert a user's pictures to TFRecord shards with a manifest."""
    from dlbench.data.convert_pictures import convert

    convert(args.dataset, args.given, args.output, args.workers)
    print(f"{args.dataset}: {args.output / 'manifest.json'} written")


def add_make_image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="what runs give as their environment")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="its entry under images in the config, JSON"
    )
    parser.add_argument("--output", required=True, type=Path, help="image.json, in its own folder")
    parser.add_argument("--study", help="for which it is made; others are not to replace it")
    _add_keep_failure(parser)


def make_image(args: argparse.Namespace) -> None:
    """Build an image, pull it, or use it where it is, and describe it in image.json."""
    from dlbench.images import trainer_image
    from dlbench.images.make_image import make

    settings = trainer_image.settings(args.name, {args.name: args.settings})
    recorded = trainer_image.record_failure(args.output, f"image {args.name} could not be made: ")
    with recorded if args.keep_failure else contextlib.nullcontext():
        make(args.name, settings, args.output, args.study)


def add_prepare_image(parser: argparse.ArgumentParser) -> None:
    runtimes = [n for n in plugins.names("runtimes") if plugins.load("runtimes", n).CONTAINED]
    parser.add_argument("image", type=Path, help="image.json, as make-image wrote it")
    parser.add_argument("--runtime", required=True, choices=runtimes)
    parser.add_argument("--options", type=json.loads, default={}, help="of the runtime, JSON")
    parser.add_argument("--python", default="python3", help="the interpreter inside")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument(
        "--any-packages", action="store_true", help="also without TensorFlow: not for our trainer"
    )
    parser.add_argument("--output", required=True, type=Path, help="JSON; its folder has no suffix")
    _add_keep_failure(parser)


def prepare_image(args: argparse.Namespace) -> None:
    """Convert an image to the form that a runtime needs; check from inside that it is usable."""
    from dlbench.images import trainer_image
    from dlbench.images.make_image import prepare

    recorded = trainer_image.record_failure(args.output)
    with recorded if args.keep_failure else contextlib.nullcontext():
        prepare(
            trainer_image.read(args.image),
            args.runtime,
            args.options,
            args.python,
            args.device == "gpu",
            args.output,
            args.any_packages,
        )


def _add_keep_failure(parser):
    parser.add_argument(
        "--keep-failure", action="store_true", help="write into it why it fails, and exit with 0"
    )


def add_report_images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("form", nargs="*", type=Path, help="as prepare-image wrote it")


def report_images(args: argparse.Namespace) -> None:
    """Fail if images could not be made or prepared, and say why.

    The workflow goes on with the runs that do not need them.
    """
    from dlbench.images.make_image import check

    check(args.form)


def add_start_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", type=json.loads, help="id, started_at and host, as JSON")
    parser.add_argument(
        "--output", required=True, type=Path, help="its file, also where storage has its own copy"
    )
    parser.add_argument("--config-json", required=True, metavar="FILE", help="the merged config")
    parser.add_argument(
        "--sentinels", type=json.loads, default=[], help="values of the runs it repeats, as JSON"
    )
    parser.add_argument("--scheduler", help="the one that gets the jobs, if any")
    parser.add_argument("--leftover-jobs", nargs="*", default=[], help="ids of an earlier start's")


def start_session(args: argparse.Namespace) -> None:
    """Start a session: each start of the workflow that trains is one.

    Writes the session's file, which all its runs wait for. Before that it cancels jobs that an
    earlier start left in a scheduler's queue, since they would write the same files; moves logs
    aside that would be replaced; and keeps the choice of environments and the digests of the
    executed code.
    """
    from dlbench.cluster import cluster_job
    from dlbench.plan import planning, sentinels
    from dlbench.records import sessions
    from dlbench.study import config

    # Before it is planned: they may end runs.
    this = args.session["id"]
    if args.scheduler and (left := cluster_job.cancel_jobs(args.scheduler, args.leftover_jobs)):
        print(f"cancelled jobs that an earlier start left behind: {', '.join(left)}")
    chosen = sentinels.of_values(args.sentinels)
    settings = config.read_merged_config(args.config_json) or {}
    planning.make_plan(settings, lambda *_: chosen).start_session(args.session)
    if not args.output.exists():
        args.output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sessions.file(this), args.output)


def add_find_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", required=True, help="fields of the try of the least batch, JSON")
    parser.add_argument("--output", required=True, type=Path, help="what is found; tries beside it")
    parser.add_argument("--messages", required=True, type=Path, help="what the trainers print")
    parser.add_argument("--skip", default="", help="write this reason instead of trying")
    parser.add_argument("--processes", type=command_line.whole(1), default=1, help="on each node")
    parser.add_argument("--memory-mb", type=command_line.whole(1), help="of a node, for all, MiB")


def find_batch(args: argparse.Namespace) -> None:
    """Find the largest batch per device that fits into memory, by trying.

    After -- are further arguments of start_run.py. The exit code is 0 also if not even the smallest
    batch fits; the output says so.
    """
    from dlbench.starting.find_batch import find, skip
    from dlbench.study.batch_searches import Search
    from dlbench.study.runs import Run

    search = Search(Run.from_json(args.spec))
    if args.skip:
        skip(search, args.output, args.skip)
        return
    find(search, args.output, args.passed_on, args.messages, args.processes, args.memory_mb)


def add_parse_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="train.jsonl of rank 0, its other ranks beside it")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--put-aside", action="store_true", help="logs that cannot be read")


def parse_run(args: argparse.Namespace) -> None:
    """Parse the event logs of one run and write its record, run.json, beside them.

    With --put-aside, logs that cannot be read are renamed to train.attempt1.jsonl and so on. The
    workflow then trains the run again.
    """
    from dlbench.log import event_fields, event_log
    from dlbench.records.parse_run import parse
    from dlbench.study.runs import Run

    try:
        parse(Run.from_json(args.spec), args.log, args.log.with_name("run.json"))
    except event_fields.LogError as error:
        if not args.put_aside or not args.log.is_file():
            raise
        moved_to = event_log.keep_aside(args.log)
        sys.exit(f"{error}; it is kept as {moved_to}: the next start trains the run again")


def add_add_campaign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="an archive (.zip) or a results folder")
    parser.add_argument("--options", type=json.loads, default={}, help="of its entry, as JSON")
    _add_history(parser)


def add_campaign(args: argparse.Namespace) -> None:
    """Add the sessions of an archive or a results folder to the history, once (docs/history.md)."""
    from dlbench.history import sources
    from dlbench.history.add_campaign import add, lines

    receipt = add(sources.Source(args.path, args.options), args.history)
    print(*lines(receipt), sep="\n", file=sys.stderr)


def add_analyse_history(parser: argparse.ArgumentParser) -> None:
    from dlbench.history import sources

    _add_history(parser)
    parser.add_argument("--output", type=Path, default=sources.RESULTS, help="folder of the tables")
    parser.add_argument("--machines", type=json.loads, default={}, help="of the config, as JSON")
    parser.add_argument(
        "--refused",
        metavar="FILE",
        help="only report the sources of a merged config that were refused; exit code 1 if any was",
    )


def analyse_history(args: argparse.Namespace) -> None:
    """Analyse a history: write its tables, and print what changed in it, when and probably why."""
    from dlbench.history import add_campaign, sources
    from dlbench.history.analyse_history import analyse, write
    from dlbench.study import config

    if args.refused:
        settings = config.read_merged_config(args.refused) or {}
        named = sources.sources(settings.get("history", []), settings.get("machines", {}))
        if refused := add_campaign.refusals(Path(source.receipt) for source in named):
            sys.exit("\n".join(["error: not in the history:", *refused]))
        return
    history = analyse(args.history, args.machines)
    write(history, args.output)
    print(*history.lines(), sep="\n", file=sys.stderr)


def _add_history(parser):
    from dlbench.history import sources

    parser.add_argument("--history", type=Path, default=sources.HISTORY, help="folder")
