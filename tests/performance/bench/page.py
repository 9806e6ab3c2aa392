"""Write the page of all figures, docs/performance.md, from the programs' results.

The results, docs/performance.json, have

    sessions    by start date: commit, whether files were changed, machine, versions
    programs    by name: session, date, arguments, seconds, load before, cores that other processes
                used in the meantime, error (empty without one), figures

Measuring a program again replaces its results.
"""

import json
from pathlib import Path
from typing import Any

from . import REPOSITORY
from .figure import Figure
from .programs import FILES, PROGRAMS

FILE, PAGE = REPOSITORY / "docs/performance.json", REPOSITORY / "docs/performance.md"
MAX_OTHERS = 0.05  # of the cores: beyond it a machine was not quiet
HEAD = """# Performance

What dlbench adds to a training, and how fast its programs are beside those of others. The page and
`docs/performance.json` are made on a quiet machine by

```sh
uv run python -m tests.performance
```

which runs every program of `tests/performance` that needs no more than its environment, one after
the other: about {minutes:.0f} minutes on two cores. With names of programs it runs those and
replaces their rows. A figure is the median of its rounds, with the least and the most of them
behind it; a ratio is of one round, in which both sides ran one after the other. A section says
**not quiet** if others used more than {quiet} % of the cores meanwhile.
"""
NEXT = "Next: [methodology.md](methodology.md), how a run is measured.\n"
COLUMNS = "| Figure | Measured | Target | |\n| --- | --- | --- | --- |\n"


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old results, with those of newly measured programs replaced."""
    programs = old.get("programs", {}) | new["programs"]
    sessions = old.get("sessions", {}) | new["sessions"]
    needed = {program["session"] for program in programs.values()}
    return {
        "sessions": {date: sessions[date] for date in sorted(needed)},
        "programs": {name: programs[name] for name in PROGRAMS if name in programs},
    }


def read(file: Path) -> dict[str, Any]:
    """The results in a file; empty results if the file does not exist."""
    return json.loads(file.read_text()) if file.is_file() else {"sessions": {}, "programs": {}}


def write(results: dict[str, Any], file: Path) -> None:
    """Write results to a file, and their page beside it."""
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(page(results))


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    programs = results["programs"]
    minutes = sum(program.minutes for program in PROGRAMS.values() if not program.needs)
    parts = [HEAD.format(minutes=minutes, quiet=round(100 * MAX_OTHERS)), _summary(programs)]
    parts += [_section(name, programs.get(name)) for name in PROGRAMS]
    parts += [_sessions(results["sessions"]), NEXT]
    return "\n".join(parts)


def figures(program: dict[str, Any]) -> list[Figure]:
    """The figures of a program."""
    return [Figure(**figure) for figure in program["figures"]]


def _summary(programs):
    every = [(name, figure) for name, one in programs.items() for figure in figures(one)]
    with_target = [(name, figure) for name, figure in every if figure.target]
    missed = [(name, figure) for name, figure in with_target if not figure.met]
    ended = f"{len(with_target) - len(missed)} of {len(with_target)} targets are met"
    lines = [f"{ended}. Not met:\n" if missed else f"{ended}."]
    lines += [f"- [{name}](#{name}): {figure.name}" for name, figure in missed]
    return "\n".join(lines) + "\n"


def _section(name, program):
    lines = [f"## {name}\n", f"`{FILES[name].relative_to(REPOSITORY)}`: {_subject(name)}\n"]
    if program is None:
        return "\n".join([*lines, COLUMNS + f"| not run: {_how_to_run(name)} | | | |\n"])
    rows = [
        f"| {figure.name} | {figure.measured} | {figure.target} | "
        f"{figure.verdict.replace('not met', '**not met**')} |\n"
        for figure in figures(program)
    ]
    if program["error"]:
        rows.append(f"| **failed**: {_cell(program['error'])} | | | |\n")
    lines.append(COLUMNS + "".join(rows))
    if PROGRAMS[name].note:
        lines.append(f"{PROGRAMS[name].note}\n")
    if not quiet(program):
        cores = program["others_cpu_cores"]
        used = "an unknown part" if cores is None else f"{cores:.2f}"
        lines.append(
            f"**Not quiet**: others used {used} of {program['cores']} cores "
            f"(load before: {program['load_before_1min']:.1f}).\n"
        )
    words = f" with `{program['arguments']}`" if program["arguments"] else ""
    took = f"Took {program['seconds']:.0f} s{words}, session {program['session']}.\n"
    return "\n".join([*lines, took])


def quiet(program: dict[str, Any]) -> bool:
    """Whether other processes used few cores while a program ran; False if that is unknown."""
    others = program["others_cpu_cores"]
    return others is not None and others <= MAX_OTHERS * program["cores"]


def _subject(name):
    """What a program measures: the first line of its docstring."""
    return FILES[name].read_text()[3:].split("\n")[0]


def _how_to_run(name):
    program = PROGRAMS[name]
    given = f" -- {program.given}" if program.given else ""
    command = f"`uv run python -m tests.performance {name}{given}`"
    return f"needs {program.needs}; {command} runs it" if program.needs else f"{command} runs it"


def _cell(text):
    return " ".join(text.replace("|", "\\|").split())[:200]


def _sessions(sessions):
    """The section of sessions; those with the same machine and versions are grouped."""
    alike: dict[str, list[str]] = {}
    for date, one in sessions.items():
        changed = ", with changes that are not committed" if one["changed"] else ""
        begun = f"{date}, commit {one['commit'][:12]}{changed}"
        alike.setdefault("\n".join(_equipment(one["machine"], one["versions"])), []).append(begun)
    parts = [f"{'; '.join(begun)}:\n\n{equipment}\n" for equipment, begun in alike.items()]
    return "\n".join(["## Sessions\n", *parts]) if parts else ""


def _equipment(machine, versions):
    yield (
        f"- {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB, "
        f"{machine['os']}, Linux {machine['kernel']}"
    )
    for environment, found in versions.items():
        yield f"- {environment}: " + ", ".join(f"{name} {number}" for name, number in found.items())
