"""Write a first study for this machine as commented YAML, and a site.yaml where a scheduler is.

TARGET is a file, or a folder, in which the study is config.yaml. It takes minutes: it measures the
speedup on this machine's GPUs or cores, and throughput by batch size. Where Slurm, Grid Engine, PBS
or LSF is found, the nodes of a partition are described in site.yaml. No file is ever replaced. With
--data the study also trains on pictures of your own (docs/data.md).

Where dlbench was installed from a wheel, TARGET is config.yaml, which later commands read by
themselves, and the profile of a scheduler is copied into this folder, for your changes.

Example: dlbench init my_study.yaml --framework pytorch
"""

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

from dlbench import Error
from dlbench.campaign import new_study
from dlbench.cluster import new_site
from dlbench.cluster.queue_check import SITE_FILE
from dlbench.common import flag_types, installation, own_code, phrases, plugins, tools
from dlbench.trainer import engine

STUDY, CONFIG = "my_study.yaml", "config.yaml"
UNKNOWN = "what a node has is not known; write it there"
SUFFIXES = (".yaml", ".yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = CONFIG if installation.is_wheel() else STUDY
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
        type=flag_types.whole(1),
        default=1,
        metavar="N",
        help="also runs on up to N nodes, under Slurm",
    )
    parser.add_argument(
        "--ask", action="store_true", help="ask for what is not given, on a terminal"
    )


def run(args: argparse.Namespace) -> None:
    file = _new_file(args.target)
    scheduler, site = new_site.of_this_machine(args.partition)
    site_text = new_site.text(site) if site else None
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
    if scheduler and installation.is_wheel():
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
        yield f"# in {_profile(scheduler)}/config.yaml, under default-resources: {line}"
    if scheduler:
        options = [f"check-site --profile {_profile(scheduler)}", *_configfile(file)]
        yield tools.dlbench_command(" ".join(options))


def _configfile(file):
    """The option that names the study; none for the config.yaml that is read in any case."""
    is_read = file == Path(CONFIG) and not own_code.in_project_folder()
    return [] if is_read else [f"--configfile {shlex.quote(str(file))}"]


def _profile(scheduler):
    path = Path("profiles", scheduler)
    return shlex.quote(str(path if installation.is_wheel() else own_code.project_path(path)))


def _copy_profile(scheduler):
    """Copy a profile of an installed dlbench, in which a site names its queues, to this folder."""
    copy = Path("profiles", scheduler)
    if not copy.exists():
        shutil.copytree(own_code.PROJECT / copy, copy)
        print(f"{copy}: the profile, in which queue and account are named")


def _write(file, text):
    """Write a file that does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "x", encoding="utf-8") as new:
        new.write(text)
