"""docs/notebooks.md: its cells are run one after the other on the results of a small study."""

import ast
import json
import re
import subprocess

import pytest

from dlbench.common import tools
from dlbench.results import collect_runs, export_runs
from support.machines.paths import REPOSITORY
from support.runs.collected_runs import PLAIN, finished, study
from support.runs.collected_runs import folder as folder

PAGE = REPOSITORY / "docs" / "notebooks.md"
CELLS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
PACKAGES = ("nbclient==0.11.0", "ipykernel==7.4.0")
# What uv says where it does not reach the package index.
UNREACHABLE = ("Failed to fetch", "error sending request", "dns error")
RUN_NOTEBOOK = """
import json, sys
from nbclient import NotebookClient
from nbformat import v4
notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in json.load(sys.stdin)])
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
kinds = [[sorted(out.get("data", ())) for out in cell.outputs] for cell in notebook.cells]
print(json.dumps(kinds))
"""


@pytest.fixture
def results(folder):
    """The results of one strategy on one device and on two, collected and exported."""
    made = study(PLAIN | {"strategy": "mirrored", "devices_per_node": [1, 2]}, repeats=3)
    for run in made.runs:
        finished(run, start={"devices": [f"CPU:{number}" for number in range(run.devices)]})
    collect_runs.collect(made, "cpu", "results/tables")
    export_runs.export_dataset(made, "exported")


def shown(cell, known):
    """What a notebook would show of a cell: the value of its last line."""
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), str(PAGE), "exec"), known)
    return eval(compile(ast.Expression(last.value), str(PAGE), "eval"), known)


def test_the_cells_show_the_numbers_of_the_study_with_their_units(results, capsys):
    known = {}
    throughput, described, by_sql, units, _ = (shown(cell, known) for cell in CELLS)
    assert capsys.readouterr().out == "throughput in items/s\n"
    assert throughput["count"].tolist() == [3, 3]
    # Each step of 8 items a device takes 0.5 s.
    assert throughput["median"].tolist() == pytest.approx([16, 32])
    assert described["count"] == 2 and described["95%"] == 0.5
    assert by_sql[["devices", "steps", "p99_s"]].values.tolist() == [
        [1, 3 * 2, 0.5],
        [2, 3 * 2, 0.5],
    ]
    assert json.loads(units[0][0])["units"]["step_time_s"] == "s"
    axes = known["axes"]
    assert axes.get_ylabel() == "throughput (items/s)"
    (label,) = (text.get_text() for text in axes.get_legend().get_texts())
    assert label == "tensorflow, lenet5, synthetic, 8, mirrored"
    (line,) = (container.lines[0] for container in axes.containers)
    assert line.get_xydata().tolist() == [pytest.approx([1, 16]), pytest.approx([2, 32])]


@pytest.mark.slow
def test_a_notebook_of_the_cells_runs_to_its_end_and_shows_a_picture(results, tmp_path):
    given = [word for package in PACKAGES for word in ("--with", package)]
    command = [tools.find_uv(), "run", "--frozen", "--project", REPOSITORY, *given, "python"]
    there = subprocess.run([*command, "-c", ""], capture_output=True, text=True)
    if there.returncode and any(words in there.stderr for words in UNREACHABLE):
        pytest.skip(f"{', '.join(PACKAGES)} cannot be had: {there.stderr.splitlines()[-1]}")
    assert there.returncode == 0, there.stderr
    executed = subprocess.run(
        [*command, "-c", RUN_NOTEBOOK],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert executed.returncode == 0, executed.stderr
    outputs = json.loads(executed.stdout.splitlines()[-1])
    assert "text/html" in outputs[0][-1] and "text/html" in outputs[2][-1]  # tables
    assert any("image/png" in kinds for kinds in outputs[-1])
