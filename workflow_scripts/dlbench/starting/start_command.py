"""The command that starts a run: the launcher starts the runtime, which starts the trainer.

    mpirun -np 2 ... apptainer exec ... IMAGE python workflow_scripts/train.py ...

If Snakemake's container directive has entered the image already, the launcher runs inside too. So
this file needs the standard library and NumPy only.
"""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.common import assignments, networks, options, plugins
from dlbench.images import trainer_image
from dlbench.images.runtimes import HOST_ONLY, Container
from dlbench.machine import hardware
from dlbench.starting import start_unreachable
from dlbench.starting.launchers import mpirun
from dlbench.study import other_trainers, trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import cluster, copies

# A login shell has the function `module` if the site set it up for its users.
MODULES_SCRIPT = """
type module >/dev/null 2>&1 || { echo "there is no command module on this machine" >&2; exit 1; }
for name in "$@"; do
    module load "$name" || exit 1
    case ":$LOADEDMODULES:" in *":$name"[:/]*) ;; *) exit 1 ;; esac
done
exec "$DLBENCH_PYTHON" -c 'import json, os; print("\\n" + json.dumps(dict(os.environ)))'
"""


def load_modules(names: list[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables after loading some modules, in this order.

    Raises Error: this machine has no modules, or one cannot be loaded.
    """
    if not names:
        return dict(environ)
    finished = subprocess.run(
        ["bash", "-lc", MODULES_SCRIPT, "module", *names],
        env={**environ, "DLBENCH_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode:
        message = " | ".join(line.strip() for line in finished.stderr.splitlines() if line.strip())
        raise Error(
            f"module load {' '.join(names)} failed: {message[-500:] or 'no message'}; "
            "the modules are named under site.modules"
        )
    variables = json.loads(finished.stdout.splitlines()[-1])
    # The shell sets these, not the modules.
    of_shell = {"DLBENCH_PYTHON", "SHLVL", "PWD", "OLDPWD", "_"}
    before = {name: environ[name] for name in of_shell if name in environ}
    return {name: value for name, value in variables.items() if name not in of_shell} | before


START_PROCESSES = Path(__file__).parents[2] / "start_processes.py"
# The facts of an image that go into the log of each run.
LOGGED = ("image", "digest", "image_id", "runtime_version", "options", "libc", "mpi", "packages")


class NotEntered(Error):
    """The container directive did not take effect: the fault is in the call of Snakemake."""


class NoAddress(Error):
    """The machine's own name, at which servers of the run would listen, has no address."""


class WrongNode(Error):
    """The run names another node than this one."""


@dataclass(frozen=True)
class Start:
    """How a run is started: the command; the one that removes what may be left of its container, or
    None; and the facts of its container for the run's log, {} on bare metal.
    """

    command: tuple[str, ...]
    cleanup: tuple[str, ...] | None
    container: dict[str, Any]


NOTHING = Start((), None, {})
# A run uses the packages of its environment only, whatever modules and users set for other Pythons.
ISOLATED = ("env", "-u", "PYTHONHOME", "-u", "PYTHONPATH", "PYTHONNOUSERSITE=1")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of how a command is started, which start_run.py and start_baseline.py share."""
    add = parser.add_argument
    add("--form", type=Path, help="the run's image, as prepare-image wrote it")
    add("--bind", action="append", default=[], help="to be seen in a container")
    add("--device", default="cpu", choices=["cpu", "gpu"])
    network = "auto: nobody else reaches the servers of a run on one node, where the kernel lets us"
    add("--network", default="auto", choices=["auto", "host"], help=network)
    add("--node-address", help="how nodes are reached by their names, as in {node}-ib0")
    add("--module", action="append", default=[], help="to be loaded")


def build(
    run: Run,
    trainer: list[str],
    form: Mapping[str, Any] | None = None,
    device: str = "cpu",
    binds: Iterable[str] = (),
    bound: Callable[[list[str]], list[str]] = list,
) -> Start:
    """Build the command that starts a run.

    Args:
        trainer: the command of one trainer process, with the Python of bare metal.
        form: what dlbench prepare-image wrote about the image; None on bare metal.
        device: cpu or gpu.
        binds: paths to bind into the container beside the workflow's folder, as in /scratch,
            /data:/input or /data:/input:ro.
        bound: returns the command that binds a process and then runs the given one.

    Raises:
        Error: a folder to bind does not exist, or no launcher fits the image's MPI.
        trainer_image.Unusable: the image lacks a package that the run needs.
        NotEntered: this process should be inside the image already, and is not.
    """
    if not contained(run):
        return Start(tuple(_on_bare_metal(run, trainer, device, bound)), None, {})
    return _in_an_image(run, trainer, form or {}, device, binds, bound)


def _on_bare_metal(run, trainer, device, bound):
    """The command that starts a run without an image; arguments as for `build`."""
    if run.is_external:
        python = trainer_environments.trainer_python(run.environment)
        environment = _environment_with(run.launcher, python.absolute().parents[1])
        needs_environment = any(str(python) in word for word in trainer)  # where {python} stood
    else:
        environment, needs_environment = Path(trainer[0]).absolute().parents[1], True
    trainer = _with_variables(run, trainer)
    if not needs_environment:
        return _launched(run, bound(trainer), environment, device)
    isolated = bound([*ISOLATED, *trainer])  # also on other nodes, where a login sets variables
    command = _launched(run, isolated, environment, device)
    # Launchers of an environment are programs of its Python, too.
    return command if command == isolated else [*ISOLATED, *command]


def _in_an_image(run, trainer, form, device, binds, bound):
    """The Start of a run in an image; arguments as for `build`."""
    trainer_image.check_packages(run, form)
    if run.is_external:
        inside = other_trainers.with_marker_copied(run, trainer, trainer_image.MARKER)
    else:
        inside = [form["python"], *trainer[1:], "--image-id", form["image_id"]]
    inside = _with_variables(run, inside)
    logged = {key: form[key] for key in LOGGED}
    if by_directive(run):
        if not Path("/", trainer_image.MARKER).exists():
            raise NotEntered(
                f"Snakemake's container directive did not enter the image {form['image']}: call it "
                "with --software-deployment-method apptainer, as profiles/default does, or give "
                "the runs runtime_options: {start: command}"
            )
        logged["start"] = "directive"
        environment = _environment_with(run.launcher, Path(form["python"]).parents[1])
        return Start(tuple(_launched(run, inside, environment, device)), None, logged)
    runtime = plugins.load("runtimes", run.runtime)
    container = Container(
        image=form["prepared"],
        folder=os.getcwd(),
        binds=tuple(binds),
        environment=form["environment"],
        gpus=device == "gpu",
        options=form["options"],
        name=run.id,
    )
    for source, target, _ in container.mounts():
        if set(source + target) & set(",:\n"):
            raise Error(f"{source}: a path with , or : in it cannot be seen in a container")
        if not os.path.exists(source):
            raise Error(f"{source} is to be bound into the container but is not on this machine")
    kept_out = (*HOST_ONLY, "LD_LIBRARY_PATH") if runtime.FORWARDS_LIBRARY_PATH else HOST_ONLY
    absent = (name for name in kept_out if name not in container.environment)
    hidden = [word for name in absent for word in ("-u", name)]
    contained = runtime.command(container, ["env", *hidden, *inside])
    if contained[0] != "srun":  # with Pyxis's options, which the launcher srun takes
        contained = _with_variables(run, contained)
    launcher, version = _outer_tools(run, form)
    logged |= {"start": "command", "launcher_mpi": version}
    cleanup = runtime.cleanup(container) if hasattr(runtime, "cleanup") else None
    command = _launched(run, bound(contained), launcher, device)
    return Start(tuple(command), cleanup and tuple(cleanup), logged)


def copies_command(run: Run, trainer: list[str], python: str, device: str) -> list[str]:
    """The command line that starts the command `trainer` once for each copy of a run on a node.

    `python` runs start_processes.py. Each copy gets its own cores or GPUs, by `device`: cpu or gpu.
    """
    if device == "gpu":
        each = ["--gpus-each", str(run.devices_per_node)]
    else:
        each = ["--cores-each", str(copies.cores_per_copy(run))]
    count = str(run.copies_per_node)
    return [python, os.path.relpath(START_PROCESSES), "--copies", count, *each, "--", *trainer]


def prepare(run: Run, module_names: list[str], node_address: str | None) -> None:
    """Set the variables of this process with which a run is started, and check its node.

    Raises Error: a module cannot be loaded, or the run names another node.
    """
    # In an image there are no modules.
    os.environ.update(load_modules([] if by_directive(run) else module_names))
    os.environ.update(address_variables(run, node_address))
    check_node(run)


def address_variables(
    run: Run, node_address: str | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Variables with which the processes of a run reach one another's nodes, without a proxy.

    If the name of a node does not resolve, the scheduler's address of the node is used.
    `node_address`: pattern of the nodes' addresses, as in {node}-ib0; None: their names.
    """
    job = schedulers.job(environ)
    scheduler = job and plugins.load("schedulers", job[0])
    names = scheduler.hosts(environ) if scheduler else []
    addresses = {name: (node_address or "{node}").replace("{node}", name) for name in names}
    if run.nodes > 1 and (unknown := networks.unresolved_names(addresses.values())):
        lost = [name for name, address in addresses.items() if address in unknown]
        known = getattr(scheduler, "addresses", None)
        addresses |= known(lost) if known else {}
    variables = networks.no_proxy_variables({*addresses, *addresses.values()}, environ)
    other = {name: address for name, address in addresses.items() if address != name}
    return variables | ({cluster.NODE_ADDRESSES: json.dumps(other)} if other else {})


def job_facts() -> dict[str, Any]:
    """For a run's log: the scheduler's job with its nodes; {"job": None} outside of jobs."""
    job = schedulers.job()
    if not job:
        return {"job": None}
    hosts = plugins.load("schedulers", job[0]).hosts(os.environ)
    dates = schedulers.queue_dates()
    return {"job": {"scheduler": job[0], "id": job[1], "hosts": hosts, **dates}}


def check_node(run: Run, environ: Mapping[str, str] = os.environ) -> None:
    """Check that a run that names its node, or several, is on these.

    `environ`: with the variables of the scheduler's job, which has names of its own for nodes.

    Raises WrongNode: it is on another.
    """
    if not run.node:
        return
    job = schedulers.job(environ)
    names = [hardware.host(), *(plugins.load("schedulers", job[0]).hosts(environ) if job else [])]
    if {*map(hardware.short_host, networks.expand_hosts(run.node))} <= {
        *map(hardware.short_host, names)
    }:
        return
    here = " or ".join(dict.fromkeys(names))
    remedy = "only the profile of a cluster sends runs to other nodes (docs/clusters.md)"
    if job:
        asked = "these nodes and chose others" if run.nodes > 1 else "that node and chose another"
        by = schedulers.display_name(job[0])
        remedy = f"{by} was asked for {asked}; see the job's options"
    raise WrongNode(f"expected node {run.node}, found {here}: {remedy}")


def contained(run: Run) -> bool:
    """Whether a run is trained inside an image."""
    return plugins.load("runtimes", run.runtime).CONTAINED


def by_directive(run: Run) -> bool:
    """Whether Snakemake's container directive enters a run's image."""
    runtime = plugins.load("runtimes", run.runtime)
    if "start" not in runtime.OPTIONS or run.is_external:
        return False
    start = options.parse("runtime", run.runtime, runtime.OPTIONS, run.runtime_options)["start"]
    return start == "directive" or (start == "auto" and run.nodes == 1 and run.copies_per_node == 1)


def may_be_unreachable(run: Run, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a run works in a network namespace that has only the loopback interface.

    Not in a container that the command line starts: the engine, or its setuid starter, may not
    work there. Not under mpirun in a scheduler's job: it identifies its host among those of the job
    by addresses.
    """
    launcher = plugins.load("launchers", run.launcher)
    return (
        getattr(launcher, "LOOPBACK_SUFFICES", False)
        and run.nodes == 1
        and not run.is_external
        and (not contained(run) or by_directive(run))
        and not (launcher.TAKES_TASKS and schedulers.job(environ))
    )


def network(run: Run, requested: str) -> str:
    """The network of a run: `loopback`, a network namespace of its own, or `host`, the machine's.

    `requested`: auto or host.

    Raises NoAddress: it must be the machine's, and the run cannot work there.
    """
    if requested == "auto" and may_be_unreachable(run) and start_unreachable.possible():
        return "loopback"
    launcher = plugins.load("launchers", run.launcher)
    # A container that the command line starts may resolve other names.
    here = not contained(run) or by_directive(run)
    if here and getattr(launcher, "LISTENS_BY_NAME", False) and not networks.listening_address():
        raise NoAddress(
            f"launcher {run.launcher} needs an address of this machine behind its name "
            f"{hardware.host()} (hostname), and found none: have it put into /etc/hosts, or use "
            "launcher mpirun"
        )
    return "host"


def _launched(run, program, environment, device):
    """The command that starts the processes of a run.

    `environment`: folder whose bin/ has the launcher; None: PATH.
    """
    command = plugins.load("launchers", run.launcher).command(run, program, environment)
    if run.copies_per_node > 1 and not run.is_external:
        command = copies_command(run, command, sys.executable, device)
    return command if command == program else _with_variables(run, command)


def _with_variables(run, command):
    """A command that starts another one with the variables of a run."""
    variables = assignments.words(run.variables)
    if run.is_external and run.nodes > 1:  # launchers may leave them out on other nodes
        folder = Path("results/runs", run.id, other_trainers.FOLDER)
        logging = other_trainers.log_variables(run, folder)
        variables += [f"{name}={value}" for name, value in logging.items()]
    return ["env", *variables, *command] if variables else command


def _outer_tools(run, form):
    """(environment whose launcher starts the containers, or None for PATH; its MPI's version).

    Of the mpirun on PATH and that of the environment, the first that can start the image's
    processes: the same MPI, not older.
    """
    ours = trainer_environments.trainer_python(run.environment).absolute().parents[1]
    if run.launcher != "mpirun":
        return _environment_with(run.launcher, ours), None
    if not form["mpi"]:
        raise Error(f"image {form['image']} has no mpirun: its processes cannot speak MPI")
    tried = []
    for environment in (None, ours):
        program = shutil.which("mpirun") if environment is None else ours / "bin" / "mpirun"
        version = mpi_version(program, environment) if program else None
        if version and fits(version, form["mpi"]):
            return environment, version
        tried += [f"{program} ({version})"] if version else []
    raise Error(
        f"image {form['image']} has {form['mpi']}; to start its processes this machine needs the "
        f"same MPI, as new or newer, and has: {', '.join(tried) or 'none'}"
    )


def _environment_with(program, environment):
    """The environment if it has a program, else None: the program is taken from PATH."""
    return environment if (environment / "bin" / program).exists() else None


def fits(outside: str, inside: str) -> bool:
    """Whether an mpirun may start processes that use another MPI library.

    >>> fits("Open MPI 4.1.8", "Open MPI 4.1.4"), fits("Open MPI 4.1.4", "Open MPI 5.0.3")
    (True, False)
    """
    (kind, newer), (other, older) = (_split(text) for text in (outside, inside))
    return kind == other and newer >= older


def _split(text):
    kind, _, version = text.rpartition(" ")
    return kind, tuple(map(int, re.findall(r"\d+", version)))


@functools.cache
def mpi_version(program: str | Path, environment: Path | None = None) -> str | None:
    """The version that an mpirun names, as in `Open MPI 4.1.8`; None if it names none."""
    output = mpirun.output_of([program, "--version"], environment)
    match = re.search(r"(Open MPI|MPICH|Intel\(R\) MPI)\D*([\d.]*\d)", output)
    return " ".join(match.groups()) if match else None
