"""docs/adding.md: every file on the page works as the page says, in a copy of the project.

Training with them is tested in tests/workflow/test_own_data.py.
"""

import json
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest
import yaml

from support.machines.paths import REPOSITORY
from support.project import adding_page
from support.project.adding_page import evaluate, start
from support.results import made_tables

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the files of the page."""
    folder = tmp_path_factory.mktemp("adding") / "project"
    compiled = shutil.ignore_patterns("__pycache__")
    for name in ("workflow_scripts", "profiles"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=compiled)
    (folder / "envs").symlink_to(REPOSITORY / "envs")
    shutil.copy(REPOSITORY / "config.yaml", folder)
    adding_page.write(folder)
    return folder


def test_runs_of_the_added_things_are_planned(project):
    block = {
        "name": "added", "model": "mlp", "dataset": "stripes", "strategy": "mirrored_one",
        "launcher": "nice", "runtime": ["bare", "bubblewrap"], "batch_per_device": 8, "steps": 2,
    }  # fmt: skip
    (project / "added.yaml").write_text(
        yaml.safe_dump({"matrix": [block], "model_folder": "my_models", "repeats": 1})
    )
    code = """
import json
from dlbench.common import plugins
from dlbench.study import config
study = config.study_from_files(["added.yaml"])
print(json.dumps([plugins.load("launchers", r.launcher).command(r, ["train"], None) + [r.id]
                  for r in study.runs]))
"""
    planned = evaluate(project, code)
    assert [command[:4] for command in planned] == [["nice", "-n", "5", "train"]] * 2
    ids = " ".join(command[4] for command in planned)
    assert "mlp-stripes-b8-mirrored_one-1x1-r1" in ids
    assert "mlp-stripes-b8-mirrored_one-1x1-bubblewrap-r1" in ids


def test_a_launcher_of_one_process_refuses_a_strategy_with_several(project):
    code = """
import json
from dlbench.common import plugins
from dlbench.study import runs
run = runs.Run(model="mlp", dataset="stripes", batch_per_device=8, devices_per_node=2,
               strategy="multiworker", launcher="nice", steps=1)
print(json.dumps(plugins.load("launchers", "nice").unsupported(run)))
"""
    expected = "launcher nice starts one process; strategy multiworker has more"
    assert evaluate(project, code) == expected


def test_the_dataset_is_fetched_converted_and_verified(project):
    source, output = project / "source", project / "data/stripes"
    start(project, "workflow_scripts/dlbench", "fetch-dataset", "stripes", "--folder", source)
    convert = ["stripes", "--source", source, "--output", output, "--workers", 2]
    start(project, "workflow_scripts/convert_dataset.py", *convert)
    start(project, "workflow_scripts/dlbench", "verify-dataset", output)
    splits = json.loads((output / "manifest.json").read_text())["splits"]
    assert {name: split["records"] for name, split in splits.items()} == {
        "train": 400,
        "validation": 100,
    }


def test_the_dataset_has_stripes_in_both_directions_by_label(project):
    code = """
import json
import numpy as np
from dlbench.common import plugins
source = plugins.load("datasets", "stripes").open(None)
found = []
for index in range(source.count("train")):
    record = source.features("train", index)
    image = np.frombuffer(record["image/encoded"], np.uint8).reshape(32, 32)
    upright = bool((image == image[0]).all() and not (image.T == image.T[0]).all())
    found.append(record["image/class/label"] == upright)
print(json.dumps([len(found), all(found)]))
"""
    assert evaluate(project, code) == [400, True]


def test_the_log_becomes_a_run_with_its_throughput(project):
    (project / "loop.txt").write_text("".join(f"step {n} took 125 ms\n" for n in range(1, 9)))
    command = ["loop.txt", "--output", "loop.parquet", "--fields", '{"global_batch": 64}']
    start(project, "workflow_scripts/dlbench", "import", *command)
    (run,) = pq.read_table(project / "loop.parquet").to_pylist()
    assert (run["timing_source"], run["images_per_second"]) == ("our_loop", 64 / 0.125)


def test_the_figure_is_drawn(project):
    rows = [
        made_tables.run(batch_per_device=batch, repeat=repeat, peak_memory_bytes=batch * 2**20)
        for batch in (16, 64)
        for repeat in (1, 2)
    ]
    (project / "tables").mkdir()
    made_tables.write(project / "tables", rows)
    folders = ["--tables", "tables", "--runs", "tables/runs", "--output", "figures"]
    start(project, "workflow_scripts/draw_figure.py", "resident_set", *folders)
    drawn = (project / "figures/resident_set.svg").read_text()
    assert "bytes" in drawn and "no series" not in drawn


def test_the_runtime_makes_a_root_with_our_marker_and_enters_it(project, tmp_path):
    image, marker, place = tmp_path / "image", tmp_path / "marker", tmp_path / "place"
    for folder in (image / "etc", marker / "etc", place):
        folder.mkdir(parents=True)
    (marker / "etc/dlbench-image.json").write_text("{}")
    code = f"""
import json
from pathlib import Path
from types import SimpleNamespace
from dlbench.common import plugins
from dlbench.images.runtimes import Container
runtime = plugins.load("runtimes", "bubblewrap")
image = SimpleNamespace(kind="folder", path=Path({str(image)!r}), marked=False,
                        marker=Path({str(marker)!r}))
there = [f"{{p}}:{{p}}:ro" for p in ("/usr", "/bin", "/lib", "/lib64") if Path(p).exists()]
container = Container(image=runtime.prepared(image, {str(place)!r}, {{}}),
                      folder={str(tmp_path)!r}, binds=tuple(there), environment={{"SAID": "a b"}})
program = ["sh", "-c", 'cat /etc/dlbench-image.json; echo "$SAID"; pwd; ls /']
print(json.dumps([runtime.prepare(image, {str(place)!r}, {{}}),
                  runtime.command(container, program)]))
"""
    commands, enter = evaluate(project, code)
    for command in commands:
        subprocess.run(command, check=True)
    assert (place / "root/etc/dlbench-image.json").read_text() == "{}"
    assert not (image / "etc/dlbench-image.json").exists()
    assert enter[0] == "bwrap"
    assert shutil.which("bwrap") or pytest.skip("bubblewrap is not on the path")
    inside = subprocess.run(enter, capture_output=True, text=True, check=True).stdout
    text = inside.splitlines()
    assert text[:2] == ["{}a b", str(tmp_path)]
    assert "home" not in text[2:]


def test_the_profile_is_read_as_snakemake_does(project):
    code = """
import json
from dlbench.cluster import profiles
profile = profiles.read("profiles/oursite")
print(json.dumps([profile.executor, profile.defaults]))
"""
    executor, defaults = evaluate(project, code)
    assert executor == "cluster-generic"
    assert defaults == {
        "slurm_partition": "gpu", "slurm_account": "myproject", "mem_mb": 4000, "runtime": 60,
    }  # fmt: skip
    content = yaml.safe_load((project / "profiles/oursite/profile.yaml").read_text())
    ours = yaml.safe_load((REPOSITORY / "profiles/slurm/profile.yaml").read_text())
    assert set(content) <= set(ours)
    for key in content.keys() - {"default-resources", "jobs", "jobscript"}:
        assert content[key] == ours[key]
    assert (project / "profiles/oursite" / content["jobscript"]).is_file()


def test_the_study_has_its_runs_and_its_published_numbers(project):
    code = """
import json
from dlbench.results import published_beside_own
from dlbench.study import config
study = config.study_from_files(["studies/ours/config.yaml"])
rows = published_beside_own.numbers(study, [])
print(json.dumps([len(study.runs), [[r["metric"], r["value"], r["base"]] for r in rows]]))
"""
    runs, numbers = evaluate(project, code)
    assert runs == 9
    assert numbers == [["images_per_second", 352.0, None], ["speedup", 3.7, "one"]]
