"""Commands about a study that is to be run, runs or did.

A command imports what it needs when it is called: `dlbench run` starts without the tables.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from dlbench import Error
from dlbench.command import starting
from dlbench.command.starting import CONFIG, add_configfile, add_json, study_file
from dlbench.common import command_line, own_code, phrases, plugins, tools

STUDY = "my_study.yaml"
UNKNOWN = "what a node has is not known; write it there"
SUFFIXES = (".yaml", ".yml")


def add_init(parser: argparse.ArgumentParser) -> None:
    from dlbench.trainer import engine

    default = CONFIG if own_code.is_wheel() else STUDY
    parser.add_argument("target", nargs="?", default=default, help=f"file or folder ({default})")
    parser.add_argument("--name", help="of the study; if not given, that of the file or folder")
    parser.add_argument(
        "--framework",
        nargs="+",
        choices=engine.names(),
        help="if not given, those whose environments are installed",
    )
    parser.add_argument("--model", help="if not given, lenet5 on CPUs and resnet50 on GPUs")
    parser.add_argument(
        "--dataset", help="if not given, digits for a model of their shape, else synthetic"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="a folder with a folder of pictures for each class, a CSV file of paths and labels, "
        "a Parquet file, a pattern of WebDataset shards (in quotes), or a folder of these",
    )
    parser.add_argument(
        "--partition", metavar="NAME", help="partition or queue whose nodes are used"
    )
    parser.add_argument(
        "--nodes",
        type=command_line.whole(1),
        default=1,
        metavar="N",
        help="also runs on up to N nodes, under Slurm",
    )
    parser.add_argument(
        "--ask", action="store_true", help="ask for what is not given, on a terminal"
    )


def init(args: argparse.Namespace) -> None:
    """Write a first study for this machine as commented YAML, and a site.yaml where a scheduler is.

    TARGET is a file, or a folder, in which the study is config.yaml. It takes minutes: it measures
    the speedup on this machine's GPUs or cores, and throughput by batch size. Where Slurm, Grid
    Engine, PBS or LSF is found, the nodes of a partition are described in site.yaml. No file is
    ever replaced. With --data the study also trains on pictures of your own (docs/data.md).

    Where dlbench was installed from a wheel, TARGET is config.yaml, which later commands read by
    themselves, and the profile of a scheduler is copied into this folder, for your changes.

    Example: dlbench init my_study.yaml --framework pytorch
    """
    from dlbench.campaign import new_study
    from dlbench.cluster import profiles
    from dlbench.cluster.profiles import SITE_FILE

    file = _new_file(args.target)
    scheduler, site = profiles.of_this_machine(args.partition)
    site_text = profiles.text(site) if site else None
    images = new_study.images(args.data) if args.data else {}
    settings = new_study.settings(site_text, images)
    choice = _choice(args, file, settings["site"], scheduler, images)
    options = [f"--profile {_profile(scheduler)}"] if scheduler else []
    start = tools.snakemake_command(" ".join([*options, *_configfile(file)]))
    text = new_study.yaml_text(choice, start)
    trained, skipped = new_study.check(text, settings)
    if site and site_text:
        _write(Path(SITE_FILE), site_text)
        print(f"{SITE_FILE}: of {site.queue.name}: {site.nodes or UNKNOWN}")
    _write(file, text)
    if scheduler and own_code.is_wheel():
        _copy_profile(scheduler)
    print(
        f"{file}: {phrases.counted(trained, 'run')} of {choice.model} by "
        f"{', '.join(choice.frameworks)}, on up to "
        f"{phrases.counted(choice.devices[-1], new_study.DEVICES[choice.kind])} of a node"
    )
    for reason in skipped:
        print(f"skipped: {reason}")
    print(
        "next:", *(f"  {line}" for line in _before(file, scheduler, site)), f"  {start}", sep="\n"
    )


def _new_file(target):
    """The file of the study, which must not exist yet."""
    file = Path(target)
    if file.suffix not in SUFFIXES:
        file = file / CONFIG
    if os.path.lexists(file) or file.parent.is_file():
        raise Error(
            f"{file if os.path.lexists(file) else file.parent} is there already, and nothing is "
            "written over it: give another file or folder, as in `dlbench init other.yaml`"
        )
    return file


def _choice(args, file, site, scheduler, images):
    """What the study trains: what is given, then answers, then what the machine has."""
    from dlbench.campaign import new_study
    from dlbench.trainer import engine

    kind, devices = new_study.devices_of(site)
    own_name = file.absolute().parent.name if file.name == CONFIG else file.stem
    _ask(args, "name", "Name of the study", own_name)
    _ask(args, "framework", "Frameworks", " ".join(new_study.usable_frameworks(kind)))
    _ask(args, "model", "Model", (new_study.OF_IMAGES if images else new_study.MODELS)[kind])
    frameworks = args.framework if isinstance(args.framework, list) else args.framework.split()
    if unknown := [name for name in frameworks if name not in engine.names()]:
        raise Error(
            f"no framework {unknown[0]!r}{phrases.did_you_mean(unknown[0], engine.names())}; "
            f"there are: {', '.join(engine.names())}"
        )
    known = next(iter(images), None) or new_study.dataset_for(args.model, frameworks[0])
    _ask(args, "dataset", "Dataset", known)
    return new_study.Choice(
        name=args.name,
        frameworks=tuple(dict.fromkeys(frameworks)),
        model=args.model,
        dataset=args.dataset,
        kind=kind,
        devices=devices,
        nodes=_nodes(args.nodes, site["nodes"], scheduler),
        images=images,
    )


def _ask(args, name, question, default):
    """Give an argument that is missing the answer of the user, or with no --ask the default."""
    if getattr(args, name):
        return
    answer = ""
    if args.ask:
        if not sys.stdin.isatty():
            raise Error(
                "--ask: expected a terminal for the answers, found none; give flags instead"
            )
        try:
            answer = input(f"{question} [{default}]: ").strip()
        except EOFError:
            raise Error("--ask: the input ended before the answers; nothing is written") from None
    setattr(args, name, answer or default)


def _nodes(most, available, scheduler):
    """The numbers of nodes that runs have; () if all have one."""
    from dlbench.campaign import new_study

    if most == 1:
        return ()
    if scheduler != "slurm":
        raise Error(
            f"--nodes {most}: runs on several nodes are written for Slurm, whose srun starts them, "
            "and this machine has no Slurm; docs/clusters.md says what others need"
        )
    if most > available:
        raise Error(f"--nodes {most}: this site has {available} (site.nodes)")
    return new_study.counts_up_to(most)


def _before(file, scheduler, site):
    """What comes before the start on a cluster: the queue's name in the profile, a check."""
    if site and not site.queue.default:
        resource = plugins.constants("schedulers", scheduler)["QUEUE"]
        line = f"- {resource}={site.queue.name}"
        yield f"# in {_profile(scheduler)}/profile.yaml, under default-resources: {line}"
    if scheduler:
        options = [f"check-site --profile {_profile(scheduler)}", *_configfile(file)]
        yield tools.dlbench_command(" ".join(options))


def _configfile(file):
    """The option that names the study; none for the config.yaml that is read in any case."""
    is_read = file == Path(CONFIG) and not own_code.in_project_folder()
    return [] if is_read else [f"--configfile {shlex.quote(str(file))}"]


def _profile(scheduler):
    path = Path("profiles", scheduler)
    return shlex.quote(str(path if own_code.is_wheel() else own_code.project_path(path)))


def _copy_profile(scheduler):
    """Copy a profile of an installed dlbench, in which a site names its queues, to this folder."""
    copy = Path("profiles", scheduler)
    if not copy.exists():
        shutil.copytree(own_code.PROJECT / copy, copy)
        print(f"{copy}: the profile, in which queue and account are named")


def _write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "x", encoding="utf-8") as new:
        new.write(text)


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study", metavar="STUDY", nargs="?", help="a file, a folder, or a name in studies/"
    )
    parser.add_argument("snakemake", nargs=argparse.REMAINDER, help="as snakemake --help lists")


def run(args: argparse.Namespace) -> None:
    """Start the workflow with a study, and print the plain command of Snakemake that does it.

    STUDY is a config file, a folder that has one, or the name of a folder in studies/; without one,
    or with config.yaml, it is that of the config.yaml here. All after it are targets and options of
    Snakemake.

    Example: dlbench run overhead -n
    """
    file = study_file(args.study or CONFIG)
    own = Path(file).resolve() == Path(CONFIG).resolve()
    # Behind the others, since --configfile takes all that follows.
    starting.become_snakemake([*args.snakemake, *([] if own else ["--configfile", file])])


def add_status(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)
    parser.add_argument(
        "--jobs",
        type=command_line.whole(1),
        metavar="N",
        help="trained at a time; as many as now, if not given",
    )
    parser.add_argument("--runs", action="store_true", help="also one line a run")
    add_json(parser)
    parser.add_argument(
        "--watch", type=command_line.real(above=0), metavar="SECONDS", help="again and again"
    )


def status(args: argparse.Namespace) -> None:
    """Show the status of a study: which runs are done, running, pending, failed, skipped or stale.

    Also shows the cost. It reads the config, the records and the logs, and changes nothing, so it
    can run at any time, also on another machine that has access to the results.
    """
    from dlbench.campaign.status import print_status
    from dlbench.study import config

    study = config.study_from_files(args.configfile)
    print_status(study, args.jobs, args.runs, args.json, args.watch)


DRY = ("-n", "-np", "--dry-run", "--dryrun")


def add_retry(parser: argparse.ArgumentParser) -> None:
    from dlbench.campaign import forget_runs

    forget_runs.add_selection_flags(parser)
    add_configfile(parser)


def retry(args: argparse.Namespace) -> None:
    """Forget failures or other results of a study, and start the workflow, which trains them again.

    The workflow also trains missing runs. Arguments after -- are passed to Snakemake, whose exit
    code this program returns. If there is nothing to forget, nothing is started.

    Example: dlbench retry --status oom --configfile my_study.yaml -- --cores 4
    """
    from dlbench.campaign import forget_runs
    from dlbench.study import config

    snakemake = args.passed_on
    files = args.configfile or starting.config_files(snakemake)
    if args.configfile:
        if starting.config_files(snakemake):
            raise Error("--configfile: expected once, found before -- and after it")
        snakemake = [*snakemake, "--configfile", *files]
    if any(argument in DRY for argument in snakemake):
        raise Error("expected --dry-run before --, which forgets nothing; found it after --")
    study = config.study_from_files(files)
    chosen = forget_runs.select(args, study)
    if not chosen:
        print(f"no run of the study {study.name!r} to try again: nothing is started")
        return
    if not args.dry_run:
        forget_runs.check_not_running()
    forget_runs.forget(chosen, args.dry_run)
    if not args.dry_run:
        starting.become_snakemake(snakemake)


def add_forget(parser: argparse.ArgumentParser) -> None:
    from dlbench.campaign import forget_runs

    forget_runs.add_selection_flags(parser)
    add_configfile(parser)
    add_json(parser)


def forget(args: argparse.Namespace) -> None:
    """Forget recorded results, failures by default, so that the next start trains them again.

    With --configfile only those of that study. The logs stay, as train.attemptN.jsonl beside the
    new ones.
    """
    from dlbench.campaign import forget_runs
    from dlbench.study import config

    study = config.study_from_files(args.configfile) if args.configfile else None
    forget_runs.forget(forget_runs.select(args, study), args.dry_run, args.json)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="of the workflow, or its results")
    add_configfile(parser)
    parser.add_argument("--content", action="store_true", help="read shards and logs whole")
    add_json(parser)


def doctor(args: argparse.Namespace) -> int:
    """Check whether a results folder is healthy.

    Prints one line for each finding: what, where, why it matters, what to do. Checks datasets,
    tables, and the records of all runs, or with --configfile those of a study; nothing is changed.
    Exit code 1: there are findings.
    """
    from dlbench.campaign.doctor import SCHEMA_VERSION, enter_workflow_folder, examine
    from dlbench.study import config

    enter_workflow_folder(args.folder)
    study = config.study_from_files(args.configfile) if args.configfile else None
    problems = examine(study, args.content)
    if args.json:
        findings = [vars(problem) for problem in problems]
        print(json.dumps({"schema_version": SCHEMA_VERSION, "findings": findings}))
    else:
        for problem in problems:
            print(problem.line())
        print(f"{len(problems)} finding(s)" if problems else "healthy", file=sys.stderr)
    return 1 if problems else 0
