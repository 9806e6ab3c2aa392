"""Write the page of the results in Markdown."""

from pathlib import Path
from typing import Any

from dlbench.common.files import write_json

from .suite import FAILED, NOT_POSSIBLE, PASSED, as_text

HEAD = """# Checks on GPUs

What a machine showed when it ran `python -m tests.gpu`, which writes this page and the JSON beside
it. [gpus.md](gpus.md) says what follows from it.

"""
MARKS = {PASSED: "passed", FAILED: "**failed**", NOT_POSSIBLE: "not possible"}


def write(results: dict[str, Any], file: Path) -> None:
    """Write results as JSON to a file, and their page beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, results)
    file.with_suffix(".md").write_text(page(results), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    checks = results["checks"]
    lines = [HEAD + _machine(results), ""]
    counted = [f"{sum(c['status'] == s for c in checks.values())} {s}" for s in MARKS]
    lines += [f"{', '.join(counted)}.", ""]
    lines += ["| Check | | Seconds | Date | What holds |", "| --- | --- | --- | --- | --- |"]
    for name, result in checks.items():
        cells = (
            name,
            MARKS[result["status"]],
            result["seconds"],
            result["date"][:10],
            result["title"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for name, result in checks.items():
        lines += ["", f"## {name}", "", *_details(result)]
    lines += ["", "Next: [gpus.md](gpus.md), how to set up a study on GPUs."]
    return "\n".join(lines) + "\n"


def _machine(results):
    machine = results["machine"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    if machine["driver"]:
        gpus += f", driver {machine['driver']} (CUDA {machine['cuda_driver']})"
    cores = f"{machine['cores']} cores of {machine['cpu']}{', virtual' * machine['virtual']}"
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [gpus, f"{cores}, {machine['memory_gib']} GiB", versions, f"commit {results['commit']}"]
    return "\n".join(f"- {line}" for line in lines)


def _details(result):
    lines = [f"{MARKS[result['status']]}: {result['title']}", ""]
    lines += [f"- fault: {text}" for text in result["faults"]]
    lines += [f"- {text}" for text in result["notes"]]
    lines += [
        f"- {number['name']}: {as_text(number['value'])} {number['unit']}".rstrip()
        for number in result["numbers"]
    ]
    return lines
