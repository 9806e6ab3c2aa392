"""docs/results.md: its cells are run one after the other on the results of a small study."""

import ast
import re

import pytest

from dlbench.results import collect_runs, export_runs
from support.machines.paths import REPOSITORY
from support.runs.collected_runs import PLAIN, finished, study
from support.runs.collected_runs import folder as folder

PAGE = REPOSITORY / "docs" / "results.md"
CELLS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


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
    throughput, by_sql = (shown(cell, {}) for cell in CELLS)
    assert capsys.readouterr().out == "throughput in items/s\n"
    assert throughput["count"].tolist() == [3, 3]
    # Each step of 8 items a device takes 0.5 s.
    assert throughput["median"].tolist() == pytest.approx([16, 32])
    assert by_sql[["devices", "steps", "p99_s"]].values.tolist() == [
        [1, 3 * 2, 0.5],
        [2, 3 * 2, 0.5],
    ]
