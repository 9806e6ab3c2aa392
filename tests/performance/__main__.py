"""Run the programs of these folders and write docs/performance.json and docs/performance.md.

    uv run python -m tests.performance [NAME ...]     # without names: all that need nothing more
    uv run python -m tests.performance NAME -- ARGUMENTS of that program
    uv run python -m tests.performance --page         # the page alone, from the figures as kept

The programs run one after the other, each in the environment that it needs. If one fails, its row
says so and the others go on. The machine should be idle otherwise; the figures of each program
include how many cores other processes used.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dlbench.log import event_log
from dlbench.machine import hardware, software
from dlbench.starting.neighbours import Watch

from .bench import REPOSITORY, TRAINER, page
from .bench.programs import PROGRAMS, command

ENVIRONMENTS = {
    "workflow": (Path(sys.executable), ("snakemake", "pandas", "pyarrow", "numpy", "matplotlib")),
    "trainer": (TRAINER, ("tensorflow", "tensorflow-cpu", "keras", "horovod", "numpy")),
    "pytorch": (PROGRAMS["torch_step"].python, ("torch", "numpy")),
    "jax": (PROGRAMS["jax_step"].python, ("jax", "jaxlib", "keras", "numpy")),
}
VERSIONS = """
import json, platform, sys
from importlib import metadata
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def main():
    words, own = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m tests.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--smallest", action="store_true", help="as in CI, to try this out")
    parser.add_argument("--file", type=Path, default=page.FILE, help="where figures are kept")
    args = parser.parse_args(words)
    unknown = [name for name in args.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]}: they are {', '.join(PROGRAMS)}")
    if own and len(args.names) != 1:
        parser.error("arguments after -- are those of one program: name it")
    if not args.page:
        names = args.names or [name for name, one in PROGRAMS.items() if not one.needs]
        arguments = {
            name: own or (PROGRAMS[name].smallest.split() if args.smallest else [])
            for name in names
        }
        measure(arguments, args.file)
    page.write(page.merged(page.read(args.file), {"sessions": {}, "programs": {}}), args.file)
    print(f"{args.file.with_suffix('.md')} is written")


def _split(words):
    """(our arguments, the program's arguments after `--`)."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def measure(arguments, file):
    """Run programs with their arguments; the results of each are written as soon as it ends."""
    # As users have it: without bytecode caches each start would take longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    date, session = event_log.utc_now()[:19] + "Z", describe_session()
    for number, (name, words) in enumerate(arguments.items(), start=1):
        minutes = PROGRAMS[name].minutes
        print(f"\n[{number}/{len(arguments)}] {name}, about {minutes:g} minutes", flush=True)
        found = {"session": date, **run(name, words)}
        if found["error"]:
            print(f"{name} failed: {found['error']}", flush=True)
        new = {"sessions": {date: session}, "programs": {name: found}}
        page.write(page.merged(page.read(file), new), file)


def run(name, words):
    """Run a program. Returns its figures and the load of the machine in the meantime."""
    watch, load = Watch(), os.getloadavg()[0]
    began, date = time.monotonic(), event_log.utc_now()
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures")
        error = _start(name, [*words, "--json", str(figures)])
        lines = figures.read_text().splitlines() if figures.is_file() else []
    seconds = time.monotonic() - began
    use = watch.summarise(Path("no log"))
    return {
        "date": date[:19] + "Z",
        # Without the folders of files, which are those of this machine.
        "arguments": " ".join(Path(word).name if "/" in word else word for word in words),
        "seconds": round(seconds, 1),
        "load_before_1min": round(load, 2),
        "others_cpu_cores": use.get("others_cpu_cores"),
        "cores": len(os.sched_getaffinity(0)),
        "error": error or ("" if lines else "it handed over no figure"),
        "figures": [json.loads(line) for line in lines],
    }


def _start(name, words):
    """Run a program and print its output. Returns its last line if it failed, else ""."""
    program, last = PROGRAMS[name], ""
    if not program.python.is_file():
        environment = f"envs/{program.environment}"
        return f"{environment} is not installed: dlbench environment installs it"
    process = subprocess.Popen(
        command(name, words),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    for line in process.stdout:
        print(f"  {line}", end="", flush=True)
        last = line.strip() or last
    return (last or f"exit code {process.returncode}") if process.wait() else ""


def describe_session():
    """Commit, machine and versions, which all programs of a session share."""
    files = hardware.Files()
    facts, system = hardware.constant_facts(files), software.system(files)
    made = [f":!docs/{path.name}" for path in (page.FILE, page.PAGE)]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", ".", *made)),
        "machine": {
            "cpu": facts["cpu"]["model"],
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": hardware.installed_gib(hardware.present_facts(files)["memory_bytes"]),
            "kernel": system["kernel"],
            "os": system["os"],
        },
        "versions": {
            name: _versions(python, packages)
            for name, (python, packages) in ENVIRONMENTS.items()
            if python.is_file()
        },
    }


def _git(*words):
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"figures are of a commit, but git says: {done.stderr.strip()}")
    return done.stdout.strip()


def _versions(python, packages):
    done = subprocess.run(
        [python, "-c", VERSIONS, *packages], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
