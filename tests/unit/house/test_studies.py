"""The studies that ship: their configs, smoke variants and published numbers."""

import dataclasses
import hashlib
import json
import re
from types import SimpleNamespace

import pytest

from dlbench.analysis import (
    accept_nodes,
    base_flags,
    bounds,
    campaigns,
    published_numbers,
    scaling_series,
)
from dlbench.common import plugins
from dlbench.results import published_beside_own
from dlbench.study import config
from dlbench.tables import parquet_files, table_columns
from support.machines.paths import REPOSITORY

STUDIES = REPOSITORY / "studies"
ALL = sorted(path.parent.name for path in STUDIES.glob("*/config.yaml"))
# Published numbers of each study; one more or less is a change that should be meant.
NUMBERS = {
    "dell_singularity": 40, "inovex_cpu": 0, "inovex_gpu": 0, "kit_horovod": 28, "kit_long": 22,
    "kit_multigpu": 38, "kit_real_vs_synthetic": 24, "kit_runtimes": 72, "nvidia_recipes": 57,
    "prace_cifar10": 0, "prace_convnet": 0, "prace_imagenet": 3, "prace_ramp_astro": 0,
    "udocker_gpu": 0,
}  # fmt: skip
PUBLISHED = [name for name in NUMBERS if name in ALL]  # nvidia_recipes has no runs
ON_THIS_MACHINE = ("synthetic", "digits", "blends", "bytes")  # datasets that need no network


@pytest.fixture
def read(monkeypatch):
    """Read a study as the workflow does, in its folder, without a site's own facts."""
    monkeypatch.chdir(REPOSITORY)

    def read(name, *further):
        files = [f"studies/{name}/{file}" for file in ("config.yaml", *further)]
        return config.study(config.read("config.yaml", *files))

    return read


def numbers(name):
    entry = {"path": str(STUDIES / name / "references.csv"), "match": ()}
    return published_beside_own.numbers(SimpleNamespace(name=name, references=[entry]), [])


@pytest.mark.parametrize("name", ALL)
def test_every_study_can_be_run(name, read):
    study = read(name)
    assert study.name == name
    for field in {entry["field"] for entry in study.compare}:
        assert len({getattr(run, field) for run in study.runs}) > 1, field
    assert study.runs


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_study_shows_its_numbers(name, read):
    for study in (read(name), read(name, "smoke.yaml")):
        assert [entry["path"] for entry in study.references] == [f"studies/{name}/references.csv"]
        assert "published" in study.figures
        assert parquet_files.table(published_beside_own.rows(study), table_columns.RUNS).num_columns
        made = published_beside_own.numbers(study, published_beside_own.rows(study))
        assert parquet_files.table(made, table_columns.PUBLISHED).num_rows == NUMBERS[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_smoke_variant_needs_two_cores_and_nothing_else(name, read):
    full, smoke = read(name), read(name, "smoke.yaml")
    assert smoke.figures == full.figures
    assert not {run.id for run in smoke.runs} & {run.id for run in full.runs}
    for run in smoke.runs:
        assert run.copies_per_node * run.devices * run.threads_per_device <= 2
        assert (run.nodes, run.runtime, run.environment) == (1, "bare", "train")
        assert run.launcher != "kubernetes" and run.dataset in ON_THIS_MACHINE
        assert (run.steps or 0) <= 100 and (run.epochs or 0) <= 2


def test_the_acceptance_of_nodes_has_each_node_and_pairs_and_its_bounds_are_about_these(read):
    study = read("gpu_acceptance")
    alone = [run for run in study.runs if run.nodes == 1]
    assert {run.node for run in alone} == {"n1", "n2", "n3", "n4"}
    assert {run.node for run in study.runs if run.nodes == 2} == {"n[1-2]", "n[3-4]"}
    # One request, so that they share the job of their node.
    assert len({(run.strategy, run.launcher, run.devices_per_node) for run in alone}) == 1
    assert study.site["job"]["bundle_min"] > 0
    file = STUDIES / "gpu_acceptance" / "bounds.yaml"
    wanted = bounds.read(file, accept_nodes.bounded_by)
    models = {bound.match["model"] for bound in wanted if "measure" not in bound.match}
    assert models == {run.model for run in study.runs}
    rate = {"images_per_second_per_device": 1e6}
    made = [
        campaigns.Measured(run.id, dataclasses.asdict(run), "ok", rate, {}) for run in study.runs
    ]
    of_models = [bound for bound in wanted if "measure" not in bound.match]
    found = accept_nodes.judge(of_models, made)
    assert {(one.name, one.passed) for one in found} == {
        (name, True) for name in ("n1", "n2", "n3", "n4", "n[1-2]", "n[3-4]")
    }


def test_the_table_of_all_studies_counts_their_published_numbers():
    page = (STUDIES / "README.md").read_text(encoding="utf-8")
    counts = dict(re.findall(r"^\| \[(\w+)\][^|]*\|[^|]*\| (\d+) \|", page, re.MULTILINE))
    assert {name: int(count) for name, count in counts.items()} == {
        name: count for name, count in NUMBERS.items() if count
    }


def test_names_of_what_we_run_are_ours():
    kinds = {"models": "keras/models", "datasets": "datasets", "runtimes": "runtimes"}
    ours = {name: set(plugins.names(kind)) for name, kind in kinds.items()}
    for name in PUBLISHED:
        for point in published_numbers.read(STUDIES / name / "references.csv").values():
            stated = point.settings
            assert {stated["model"]} <= ours["models"]
            assert {stated["dataset"]} <= ours["datasets"]
            assert {stated.get("runtime", "bare")} <= ours["runtimes"]


def test_every_printed_relative_number_follows_from_the_printed_ones():
    relative = [row for name in PUBLISHED for row in numbers(name) if row["base"]]
    recomputed = [row for row in relative if "recomputed" in row]
    assert [row["point"] for row in recomputed if not row["agrees"]] == []
    assert [row["metric"] for row in recomputed].count("speedup") == 23
    # The others, of Dell EMC and PRACE, are relative to what is in figures only.
    assert {row["source"] for row in relative if "recomputed" not in row} == {"Dell EMC", "PRACE"}


def test_published_numbers_are_those_that_were_compared_with_their_sources():
    """With texts of the sources and KIT's logs, by hand: whoever changes a number does so again."""
    found = [
        f"{name} {row['point']} {row['metric']} {row['base']} {row['printed']} {row['value']}"
        for name in NUMBERS
        for row in numbers(name)
    ]
    assert hashlib.sha256("\n".join(found).encode()).hexdigest() == (
        "09c39621120092297ad3ae91c174855c7098af4ee877c643879ae4787bea6cc6"
    )


def test_the_base_of_horovods_speedups_is_flagged():
    found = {
        (row["point"], row["metric"], row["base"]): (row["printed"], row["base_mismatch"])
        for row in numbers("kit_horovod")
        if row["base"] and row["point"].startswith("horovod")
    }
    theirs, nearest = "parameter-server-imagenet-1", "parameter-server-synthetic-1"
    other, older = "dataset, strategy", "dataset, strategy, framework_version"
    batch = "strategy, framework_version, batch_per_device"
    assert found == {
        ("horovod-synthetic-2", "speedup", theirs): ("2.1", other),
        ("horovod-synthetic-2", "efficiency", theirs): ("1.068", other),
        ("horovod-synthetic-2", "efficiency", nearest): ("1.021", "strategy"),
        ("horovod-synthetic-12", "speedup", theirs): ("12.0", other),
        ("horovod-synthetic-12", "efficiency", nearest): ("0.954", "strategy"),
        ("horovod-synthetic-4", "speedup", theirs): ("4.2", older),
        ("horovod-synthetic-4", "efficiency", theirs): ("1.042", older),
        ("horovod-synthetic-4", "efficiency", nearest): ("0.997", "strategy, framework_version"),
        ("horovod-synthetic-8", "speedup", theirs): ("8.25", older),
        ("horovod-synthetic-8", "efficiency", theirs): ("1.032", older),
        ("horovod-synthetic-8", "efficiency", nearest): ("0.987", "strategy, framework_version"),
        ("horovod-imagenet-24", "speedup", theirs): ("20.65", batch),
    }


def test_the_base_that_the_study_of_horovod_measures_is_not_flagged(read):
    rows = [
        dict.fromkeys((*table_columns.RUNS.names, *base_flags.BASE_KEYS))
        | {name: getattr(run, name) for name in table_columns.RUNS.names if hasattr(run, name)}
        | {"run_id": run.id, "status": "ok", "timing_source": "dlbench", "steps_measured": 100}
        | {"images_per_second": 100.0 * run.devices, "framework_version": "2.18", "site": "here"}
        for run in read("kit_horovod").runs
    ]
    series = [s for s in scaling_series.all_series(rows) if s.row["strategy"] == "horovod"]
    assert [(s.row["dataset"], [p.devices for p in s.points]) for s in series if s.kind] == [
        ("imagenet", [1, 24]),
        ("synthetic", [1, 2, 4, 8, 12]),
    ]
    assert all(s.mismatch == () and not s.base.borrowed for s in series)


def test_the_series_of_the_talk_borrows_the_base_on_synthetic_images(read):
    rows = published_beside_own.rows(read("kit_horovod"))
    series = {(s.row["strategy"], s.row["dataset"]): s for s in scaling_series.all_series(rows)}
    found = series["horovod", "synthetic"]
    assert found.base.borrowed and found.base.throughput.value == pytest.approx(123.4)
    assert found.mismatch == ("strategy", "framework_version")
    assert found.points[0].efficiency.value == pytest.approx(1.021, abs=0.0005)


def test_other_models_are_no_comparison_of_frameworks():
    assert {row["base_mismatch"] for row in numbers("prace_imagenet")} == {"model"}


# Ids before the library had rooms: of the default study one by one, of each other config how many
# and the digest of all.
IDS = json.loads((REPOSITORY / "tests/data/run_ids.json").read_text())


@pytest.mark.parametrize("file", IDS)
def test_ids_of_runs_stay(file, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    files = dict.fromkeys(["config.yaml", f"{file.rpartition('/')[0] or '.'}/config.yaml", file])
    ids = [run.id for run in config.study(config.read(*files)).runs]
    if isinstance(IDS[file], list):
        assert not set(IDS[file]) - set(ids)  # runs may be added
    else:
        digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()
        assert f"{len(ids)} {digest}" == IDS[file]
