"""docs/adding.md: a field and a column can be added as the page says, in a copy of the project."""

import shutil

import pytest

from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.project import adding_page
from support.project.adding_page import evaluate, start

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the project with the changes of the page, and its generated files made again."""
    folder = tmp_path_factory.mktemp("adding") / "changed"
    compiled = shutil.ignore_patterns("__pycache__")
    for name in ("workflow_scripts", "docs"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=compiled)
    for name in ("config.yaml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, folder)
    (folder / "envs").symlink_to(REPOSITORY / "envs")
    for patch in adding_page.changes().values():
        adding_page.change(folder, patch)
    start(folder, "workflow_scripts/write_reference_pages.py")
    for page, word in (("config", "learning_rate_floor"), ("tables", "cores_asked")):
        assert f"| `{word}` |" in (folder / f"docs/{page}.md").read_text()
    return folder


ADDED_FIELD = """
import json
from types import SimpleNamespace
from dlbench.drawing import series
from dlbench.study import config, config_schema, runs
from dlbench.tables import table_columns
from dlbench.trainer import flags, updates
block = {"name": "decaying", "model": "lenet5", "dataset": "digits", "batch_per_device": 8,
         "steps": 5, "learning_rate_decay": "cosine"}
def study(floors):
    block["learning_rate_floor"] = floors
    with open("floors.yaml", "w") as file:
        json.dump({"matrix": [block], "repeats": 1}, file)
    return config.study_from_files(["floors.yaml"])
found = sorted(study([0.0, 0.1]).runs, key=lambda run: run.learning_rate_floor)
specs = [flags.parse(None, [*run.flags(), "--log", "train.jsonl"])[0] for run in found]
try:
    study(2)
except config_schema.ConfigError as error:
    message = str(error)
print(json.dumps({
    "ids": [run.id for run in found],
    "labels": sorted(runs.labels(found).values()),
    "last rates": [updates.learning_rate_in_step(spec, 8, 10**6, 10**6) for spec in specs],
    "message": message,
    "columns": [name for name, schema in table_columns.STUDY_TABLES.items()
                if "learning_rate_floor" in schema.names],
    "in figures": "learning_rate_floor" in series.SETTINGS,
}))
"""


def test_the_field_reaches_config_ids_trainer_tables_and_figures(changed):
    added = evaluate(changed, ADDED_FIELD)
    before = Run(
        model="lenet5", dataset="digits", batch_per_device=8, steps=5, learning_rate_decay="cosine"
    )
    assert added["ids"][0] == before.id != added["ids"][1]
    assert [", learning_rate_floor " in label for label in added["labels"]] == [True, True]
    assert added["last rates"] == pytest.approx([0.0, 0.001], abs=1e-6)
    assert added["message"] == (
        "matrix[0] (decaying).learning_rate_floor: expected at most 1, found 2; it is a share: "
        "0.02 is 2 %"
    )
    assert added["columns"] == ["runs"]
    assert added["in figures"]


ADDED_COLUMN = """
import json
from collections import defaultdict
from types import SimpleNamespace
from dlbench.imports import table_rows
from dlbench.results import run_rows
from dlbench.study import config_schema, runs
from dlbench.tables import parquet_files, table_columns
run = runs.Run(model="lenet5", dataset="digits", batch_per_device=8, steps=5,
               devices_per_node=2, threads_per_device=3)
study = SimpleNamespace(name="s", site={"name": "here"}, must_reach={}, with_found_batch=None)
record = {"spec": run.values(), "provenance": defaultdict(lambda: None), "summary": {},
          "status": "failed", "message": "no", "log_sha256": None, "parser_version": 1}
row = run_rows.row(record, study, "cpu")
table = parquet_files.table([row | {"notes": None}], table_columns.RUNS)
imports = config_schema.schema()["properties"]["imports"]["items"]["properties"]
print(json.dumps([table["cores_asked"].to_pylist(),
                  table.schema.field("cores_asked").metadata[b"unit"].decode(),
                  "cores_asked" in imports["fields"]["propertyNames"]["enum"],
                  table_rows.parse_fields({"cores_asked": "4"})]))
"""


def test_the_column_is_in_the_table_and_may_be_given_of_imported_runs(changed):
    assert evaluate(changed, ADDED_COLUMN) == [[6], "cores", True, {"cores_asked": 4}]
