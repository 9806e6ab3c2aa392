"""Run benchmarks of dlbench, one after the other; README.md has what each compares.

    uv run --group dev python -m benchmarks [NAME ...]     # without names: all that need no more
    uv run --group dev python -m benchmarks NAME -- ARGUMENTS of that program

The machine should be idle otherwise. If a program fails, its row says so and the others go on.
Figures of one commit, machine and set of versions are kept together in benchmarks.json, and as
tables in benchmarks.md; others replace them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from dlbench.log import event_log
from dlbench.machine import facts, hardware
from dlbench.starting.neighbours import Watch

from . import REPOSITORY
from .measuring import Figure, python_of

RESULTS = REPOSITORY / "benchmarks.json"
FRAMEWORKS = ("tensorflow", "pytorch", "jax")


class Program(NamedTuple):
    """A program of this folder.

    Attributes:
        smallest: arguments of a run of seconds.
        frameworks: it runs once in the environment of each; none: in the workflow's.
        needs: requirements that not every machine meets; such a program runs only if named.
    """

    smallest: str
    frameworks: tuple[str, ...] = ()
    needs: str = ""


PROGRAMS = {
    "planning": Program("--combinations 20"),
    "training_step": Program("--pairs 2 --case lenet5:8:2", FRAMEWORKS),
    "two_processes": Program("--model lenet5 --batch 8 --steps 4 --rounds 1", FRAMEWORKS),
    "tf_cnn_benchmarks": Program("", ("tensorflow",), needs="a checkout of it"),
    "reading": Program("--images 64 --rounds 1", ("tensorflow",)),
    "sampling": Program("--samples 20 --rounds 2", ("tensorflow",)),
    "aggregation": Program("--runs 20 --steps 20"),
    "report": Program("--runs 20", needs="Chromium"),
    "import_logs": Program("--steps 2000 --rounds 1"),
    "drift": Program("--studies 2"),
    "history": Program("--histories 2 --sessions 2"),
}
VERSIONED = (
    *("snakemake", "pandas", "pyarrow", "numpy", "matplotlib"),
    *("tensorflow", "tensorflow-cpu", "keras", "horovod", "torch", "jax", "jaxlib"),
)
VERSIONS = """
import platform, sys
from importlib import metadata
found = {one.name: one.version for one in metadata.distributions() if one.name in sys.argv}
print(", ".join(f"{n} {v}" for n, v in [("Python", platform.python_version()), *found.items()]))
"""


def main():
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    args, own = parser.parse_args(words[:end]), words[end + 1 :]
    if unknown := set(args.names) - PROGRAMS.keys():
        parser.error(f"no program {unknown.pop()}: they are {', '.join(PROGRAMS)}")
    if own and len(args.names) != 1:
        parser.error("arguments after -- are those of one program: name it")
    names = args.names or [name for name, one in PROGRAMS.items() if not one.needs]
    # As users have it: without bytecode caches each start would take longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = kept(session())
    for name in names:
        for framework in PROGRAMS[name].frameworks or ("",):
            label = f"{name}, {framework}" if framework else name
            print(f"\n{label}", flush=True)
            results["programs"][label] = run(name, framework, own)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            RESULTS.with_suffix(".md").write_text(page(results))
    print(f"\n{page(results)}")
    sys.exit(any(one["error"] for one in results["programs"].values()))


def session():
    """Commit, machine and versions, which all figures of a file share."""
    files = hardware.Files()
    cpu = hardware.constant_facts(files)["cpu"]["model"]
    gib = hardware.installed_gib(hardware.present_facts(files)["memory_bytes"])
    system, cores = facts.system(files), len(os.sched_getaffinity(0))
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    found = {
        "commit": subprocess.run(commit, cwd=REPOSITORY, capture_output=True, text=True).stdout,
        "machine": f"{cores} cores of {cpu}, {gib:g} GiB, {system['os']}, Linux {system['kernel']}",
    }
    for name in ("", *FRAMEWORKS):
        if python_of(name).is_file():
            command = [python_of(name), "-c", VERSIONS, *VERSIONED]
            found[name or "workflow"] = subprocess.check_output(command, text=True)
    return {what: text.strip() or "unknown" for what, text in found.items()}


def kept(session):
    """The results in the file, if they are of this session's commit, machine and versions."""
    old = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    return old if old.get("session") == session else {"session": session, "programs": {}}


def command(name, framework, words):
    """What starts a program in the folder of the repository."""
    several = len(PROGRAMS[name].frameworks) > 1
    own = ["--framework", framework] if several else []
    return [python_of(framework), "-m", f"benchmarks.{name}", *own, *words]


def run(name, framework, words):
    """Run a program. Returns its figures, and how many cores others used in the meantime."""
    watch, began, date = Watch(), time.monotonic(), event_log.utc_now()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures")
        error = start(command(name, framework, [*words, "--json", str(file)]))
        lines = file.read_text().splitlines() if file.is_file() else []
    return {
        "date": date[:19] + "Z",
        # Without the folders of files, which are those of this machine.
        "arguments": " ".join(Path(word).name if "/" in word else word for word in words),
        "seconds": round(time.monotonic() - began, 1),
        "others_cpu_cores": watch.summarise(Path("no log")).get("others_cpu_cores"),
        "error": error or ("" if lines else "it handed over no figure"),
        "figures": [json.loads(line) for line in lines],
    }


def start(command):
    """Run a command and print its output. Returns its last line if it failed, else ""."""
    if not command[0].is_file():
        return f"there is no {command[0].relative_to(REPOSITORY)}: dlbench environment makes it"
    last = ""
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(f"  {line}", end="", flush=True)
            last = line.strip() or last
    return (last or f"exit code {process.returncode}") if process.returncode else ""


def page(results):
    """The results as Markdown."""
    lines = ["# Benchmarks", ""]
    lines += [f"- {what}: {text}" for what, text in results["session"].items()]
    for label, one in results["programs"].items():
        words = f" with `{one['arguments']}`" if one["arguments"] else ""
        lines += ["", f"## {label}", "", f"{one['date']}, {one['seconds']:.0f} s{words}; others"]
        lines[-1] += f" used {one['others_cpu_cores']} cores."
        lines += ["", "| Figure | Median (least .. most) | Target | |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(Figure(**figure).cells)} |" for figure in one["figures"]]
        lines += [f"| **failed**: {one['error']} | | | |"] if one["error"] else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
