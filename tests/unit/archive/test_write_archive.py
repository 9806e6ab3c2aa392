"""write_archive: the files of an archive, and the same bytes for the same content."""

import dataclasses
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from dlbench import Error
from dlbench.archive import crate, write_archive
from dlbench.common import plugins
from dlbench.common.files import sha256
from dlbench.data import stores
from dlbench.images import trainer_image
from dlbench.machine import redaction
from dlbench.plan import planning
from dlbench.records import judgement, run_record
from dlbench.study import config
from dlbench.tables import cells
from support.archives import made_archives
from support.archives.made_archives import ARCHIVE
from support.runs import made_runs


def content(name):
    with zipfile.ZipFile(made_archives.archived() / ARCHIVE) as archive:
        return archive.read(f"archive/data/{name}")


@pytest.fixture(autouse=True)
def user_files():
    yield
    made_archives.forget()


@pytest.fixture
def archived(monkeypatch):
    monkeypatch.chdir(made_archives.archived())


def merged():
    return config.settings_of([])


def test_the_same_content_is_the_same_bytes_whenever_and_by_whomever_it_is_written(
    archived, tmp_path
):
    before = os.umask(0o077)
    try:
        os.utime("results/report.html", (1, 1))
        write_archive.write(merged(), tmp_path / "again.zip")
    finally:
        os.umask(before)
    assert (tmp_path / "again.zip").read_bytes() == Path(ARCHIVE).read_bytes()


def test_all_that_was_measured_and_made_is_in_it_and_nothing_that_can_be_made_again(archived):
    with zipfile.ZipFile(ARCHIVE) as archive:
        entries = archive.infolist()
        info = archive.read("archive/bag-info.txt").decode()
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}
    assert "Bagging-Date: 2026-01-01\n" in info  # that of the last run
    there = {entry.filename.removeprefix("archive/data/") for entry in entries}
    for run in config.study(merged()).runs:
        place = f"results/runs/{run.id}"
        unchanged = ("run.json", "train.jsonl", "steps.parquet", "output/printed.log")
        assert {f"{place}/{name}" for name in unchanged} < there
        assert f"results/logs/train/{run.id}.log" in there
    assert {f"results/tables/{name}.parquet" for name in cells.OF_STUDY} < there
    for name in made_archives.FIGURES:
        assert {f"results/figures/{name}.{end}" for end in ("svg", "png", "pdf")} < there
    assert {
        "results/tables/runs.csv", "results/report.html", "results/packages/0123.txt",
        "results/imports/others/runs.parquet", "results/code/4567.txt",
        "results/chosen_environments.json", "manifests/digits.json", "Snakefile",
        "rules/train.smk", "workflow_scripts/dlbench/study/runs.py", "uv.lock",
        "envs/train/uv.lock", "envs/apptainer.def", "profiles/default/profile.yaml",
        "pyproject.toml", "CITATION.cff", "LICENSE", "as_given/config.yaml",
    } < there  # fmt: skip
    for word in ("00000-of", "checkpoint\n", "output/data", ".venv", "__pycache__", "elsewhere"):
        assert not [name for name in there if word in f"{name}\n"], word
    (entry,) = json.loads(content("imported/others.json"))  # named, not copied
    log = made_archives.archived().parent / "elsewhere" / "log"
    assert entry == {"file": "log", "bytes": log.stat().st_size, "sha256": sha256(log)}


def test_the_paths_of_the_config_lead_into_the_archive():
    found = yaml.safe_load(content("config.yaml"))
    paths = [found["trainers"]["theirs"]["files"][0], found["references"][0]["path"],
             found["imports"][0]["path"], f"{found['model_folder']}/mine.py"]  # fmt: skip
    assert all(content(path) for path in paths)
    assert Path(found["references"][0]["path"]).parent.name == "published"
    assert found["site"]["device"] in ("cpu", "gpu") and found["site"]["cores_per_node"] > 0
    assert (found["history"], found["machines"], found["tags"]) == ([], {}, {})
    assert str(made_archives.archived().parent) not in content("config.yaml").decode()


def test_runs_are_current_in_the_unpacked_archive(tmp_path, monkeypatch):
    with zipfile.ZipFile(made_archives.archived() / ARCHIVE) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path / "archive" / "data")
    study = config.study(merged())
    assert len(study.runs) == 7
    assert {judgement.state(run)[0] for run in study.runs} == {judgement.State.CURRENT}


def test_tfrecords_of_others_stand_for_the_same_data_in_the_archive(project, monkeypatch):
    shards = project / "far" / "digits"
    shards.mkdir(parents=True)
    for split in ("train", "validation"):
        (shards / f"{split}-00000-of-00001").write_bytes(b"shard")
    settings = made_runs.SETTINGS | {"matrix": [made_archives.BLOCK | {"dataset": "digits"}]}
    settings["data"] = settings["data"] | {"tfrecords": {"digits": str(shards)}}
    study = config.study(settings)
    _, before = stores.adopted(study)["digits"]
    changed, files = write_archive.portable(settings, study)
    inside = project / "inside"
    (inside / "adopted" / "digits").mkdir(parents=True)
    (inside / "adopted/digits/manifest.json").write_bytes(files["adopted/digits/manifest.json"])
    monkeypatch.chdir(inside)
    after = dataclasses.replace(study, data=changed["data"])
    assert stores.adopted(after)["digits"][1] == before


def test_pictures_and_files_of_the_user_stand_for_the_same_data_in_the_archive(
    project, monkeypatch
):
    far = project / "far"
    for name in ("pictures/cat/1.jpg", "pictures/cat/2.jpg", "pictures/dog/1.jpg",
                 "pictures/dog/2.jpg", "own/scans.py"):  # fmt: skip
        (far / name).parent.mkdir(parents=True, exist_ok=True)
        (far / name).write_text('KIND = "image"\nSYNTHETIC = False\n')
    block = made_archives.BLOCK | {"model": "cnn12", "dataset": ["photos", "scans"]}
    settings = made_runs.SETTINGS | {"matrix": [block], "dataset_folder": str(far / "own")}
    images = {"photos": {"path": str(far / "pictures")}}
    settings["data"] = settings["data"] | {"images": images}
    study = config.study(settings)
    before = stores.adopted(study)["photos"].digest, judgement.recipe("scans")
    changed, files = write_archive.portable(settings, study)
    assert str(far) not in json.dumps(changed)
    for name, content_or_path in files.items():
        path = project / "inside" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_path = isinstance(content_or_path, Path)
        path.write_bytes(content_or_path.read_bytes() if is_path else content_or_path)
    shutil.rmtree(far)
    monkeypatch.chdir(project / "inside")
    (project / "inside/envs").symlink_to(made_archives.REPOSITORY / "envs")
    judgement.recipe.cache_clear()
    after = config.study(changed)
    assert (stores.adopted(after)["photos"].digest, judgement.recipe("scans")) == before
    plugins.add_user_folder("datasets")
    plugins.set_user_names("datasets", "images", [])


def copied(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(made_archives.archived(), folder, symlinks=True)
    monkeypatch.chdir(folder)


def test_a_log_that_is_not_its_records_is_refused_and_the_archive_stays(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch)
    before = sha256(ARCHIVE)
    log = min(Path("results/runs").glob("*/train.jsonl"))
    log.write_bytes(log.read_bytes().replace(b'"loss": 2.0', b'"loss": 1.0', 1))
    with pytest.raises(run_record.RecordError, match="not as its record says"):
        write_archive.write(merged(), ARCHIVE)
    assert sha256(ARCHIVE) == before
    assert [path.name for path in Path("results").glob(".*")] == []


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch)
    Path("results/report.html").unlink()
    with pytest.raises(Error, match=r"results/report.html: missing; `snakemake archive` makes"):
        write_archive.write(merged(), ARCHIVE)
    min(Path("results/runs").glob("*/run.json")).unlink()
    with pytest.raises(run_record.RecordError, match="there is no record"):
        write_archive.write(merged(), ARCHIVE)


def test_names_that_lists_of_files_cannot_have_are_refused_and_other_unusual_ones_kept(tmp_path):
    for name in ("a\nb", "a%0Ab", "a\\b"):
        with pytest.raises(Error, match="rename it"):
            crate.write(tmp_path / "x.zip", {name: b""}, [])
    assert list(tmp_path.iterdir()) == []
    unchanged = {"ä ö.log": b"1", "it's (1).log": b"2", "a'b;$(c).log": b"3"}
    crate.write(tmp_path / "x.zip", unchanged, [])
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert {n: archive.read(f"archive/data/{n}") for n in unchanged} == unchanged


def test_without_authors_and_a_licence_nothing_is_archived(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch)
    for text in ("", "license: MIT", "authors: []", "{license: MIT, authors: [Ada]}"):
        Path("CITATION.cff").unlink()
        Path("CITATION.cff").write_text(text)
        with pytest.raises(Error, match=r"CITATION\.cff: expected authors and a license"):
            write_archive.write(merged(), "new.zip")
    assert not Path("new.zip").exists()


SECRET = "pl4nted-s3cret"


def with_secrets():
    """The project with secrets in its config and in another program's output."""
    settings = yaml.safe_load(Path("config.yaml").read_text())
    settings["trainers"]["theirs"]["command"] += ["--api-token", SECRET, "--max-tokens=512"]
    settings["site"] = settings["site"] | {"power_meter": f"ipmitool -U me -P {SECRET} sdr"}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    Path("site.yaml").write_text(f"# WANDB_KEY: {SECRET}\nsite:\n  name: a\n")
    printed = min(Path("results/runs").glob("*/output/printed.log"))
    printed.write_text(f"logged in as {SECRET}\npassword=other-s3cret\nimages/sec: 1.0\n")
    printed.with_name("events.bin").write_bytes(b"\0" + b"password=other-s3cret")
    return config.settings_of([]), printed


@pytest.mark.ci
def test_secrets_of_configs_and_of_what_was_printed_are_hidden_and_counted(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch)
    settings, printed = with_secrets()
    for run in config.study(settings).runs:
        if run.is_external:  # its command is another one now
            (run_record.folder(run.id) / "train.jsonl").unlink()
            made_runs.finish(run, 60, status="failed", message="no <b>luck</b>")
    written = write_archive.write(settings, "new.zip")
    assert written.by == "The dlbench authors, Apache-2.0"
    with zipfile.ZipFile("new.zip") as archive:
        for name in archive.namelist():
            assert SECRET.encode() not in archive.read(name), name
        inside = archive.read(f"archive/data/{printed}").decode()
        about = json.loads(archive.read("archive/data/archive.json"))
        archive.extractall("there")
    assert inside == "logged in as (hidden)\npassword=(hidden)\nimages/sec: 1.0\n"
    hidden = {str(printed): 2, "as_given/config.yaml": 2, "as_given/site.yaml": 1}
    assert written.redacted == about["redacted"] == hidden
    assert SECRET in printed.read_text()  # here it stays
    lines = "\n".join(written.describe_secrets())
    assert f"2 secrets hidden in {printed}" in lines and "Only secrets whose name" in lines
    monkeypatch.chdir("there/archive/data")
    study = config.study(merged())
    assert {judgement.state(run)[0] for run in study.runs} == {judgement.State.CURRENT}
    words = merged()["trainers"]["theirs"]["command"]
    assert words[-3:] == ["--api-token", "(hidden)", "--max-tokens=512"]
    for run in study.runs:
        run_record.forget(run.id)
    with pytest.raises(Error, match=r"trainers\.theirs\.command: \(hidden\) replaces a secret"):
        planning.plan_of_start(merged(), is_start=True)


@pytest.mark.ci
def test_images_go_along_only_where_asked_for(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch)
    image = tmp_path / "far.sif"
    image.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x00content")
    entry = {"source": str(image)}
    identity = trainer_image.identity("far", trainer_image.settings("far", {"far": entry}))
    Path("results/images/far").mkdir(parents=True)
    Path("results/images/far/image.json").write_text(
        json.dumps({"path": str(image), "identity": identity, "state": "", "digest": identity})
    )
    settings = made_archives.finish_contained("far", entry)
    write_archive.write(settings, "without.zip")
    write_archive.write(settings, "with.zip", with_images=True)
    with zipfile.ZipFile("without.zip") as archive:
        assert not [name for name in archive.namelist() if name.endswith(".sif")]
        assert "archive/data/images/far/image.json" in archive.namelist()
    with zipfile.ZipFile("with.zip") as archive:
        assert archive.read("archive/data/images/far/far.sif") == image.read_bytes()
        archive.extractall("there")
    monkeypatch.chdir("there/archive/data")
    inside = trainer_image.settings("far", merged()["images"])
    assert trainer_image.identity("far", inside) == identity


def test_the_secrets_of_settings_are_known_also_those_that_a_start_hands_on(monkeypatch):
    settings = {
        "site": {"power_meter": f"ipmitool -P '{SECRET}' sdr"},
        "trainers": {"x": {"command": ["a", "--token", "short", "--key=longer-than-all-others"]}},
    }
    assert write_archive.secrets_of(settings) == ["longer-than-all-others", SECRET]
    monkeypatch.setenv(redaction.VARIABLE, json.dumps(["from-the-start"]))
    known = write_archive.secrets_of(redaction.redact_settings(settings))
    assert known == ["from-the-start"]


def test_secrets_are_hidden_in_texts_only_and_counted(tmp_path):
    texts = {
        "results/runs/a/output/printed.log": f"hello {SECRET}\ntoken=abc {SECRET}\n",
        "results/runs/a/output/plain.csv": "step,tokens_per_second\n1,5\n",
        "results/logs/train/a.log": "Authorization: Bearer abc\n" + "x" * 3_000_000 + "\nkey: b\n",
        "results/batches/x/tries/1/output/printed.log": "https://me:pw@host/\n",
        "as_given/config.yaml": "- --token\n- abc\n",
        "results/runs/a/train.jsonl": '{"token": "abc"}\n',
    }
    files = {}
    for number, (name, text) in enumerate(texts.items()):
        files[name] = tmp_path / str(number)
        files[name].write_text(text)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\0token=abc")
    latin = tmp_path / "latin"
    latin.write_bytes(b"\xe4 password=abc\r\nimages/sec: 1\r\n")
    files |= {"results/runs/a/output/events": binary, "results/runs/a/output/latin.log": latin}
    folder = tmp_path / "copies"
    folder.mkdir()
    chosen, counts, left = write_archive.redact_files(files, [SECRET], folder)
    assert counts == {
        "results/runs/a/output/printed.log": 3,
        "results/logs/train/a.log": 2,
        "results/batches/x/tries/1/output/printed.log": 1,
        "as_given/config.yaml": 1,
        "results/runs/a/output/latin.log": 1,
    }
    assert {name for name in files if chosen[name] != files[name]} == counts.keys()
    hidden = chosen["results/runs/a/output/printed.log"].read_text()
    assert hidden == "hello (hidden)\ntoken=(hidden) (hidden)\n"
    latin = chosen["results/runs/a/output/latin.log"].read_bytes()
    assert latin == b"\xe4 password=(hidden)\r\nimages/sec: 1\r\n"
    assert left == []
    again, counts, _ = write_archive.redact_files(chosen, [SECRET], folder / "..")
    assert (again, counts) == (chosen, {})


def test_secrets_in_what_digests_name_stay_and_are_named(tmp_path):
    script = tmp_path / "theirs.py"
    script.write_text(f"get('https://me:{SECRET}@host')\n")
    files = {
        "trainers/theirs/theirs.py": script,
        "own/mine.py": b"x = 'hf_" + b"a1B2" * 6 + b"'",
        "results/report.html": SECRET.encode(),
        "own/plain.py": b"token = next(tokens)",
        "results/runs/a/train.jsonl": b"{}",
    }
    chosen, counts, left = write_archive.redact_files(files, [SECRET], tmp_path)
    assert (chosen, counts) == (files, {})
    assert left == ["trainers/theirs/theirs.py", "own/mine.py", "results/report.html"]
    lines = write_archive.ArchiveSummary(1, 4, counts, left, "").describe_secrets()
    assert lines[0].startswith("  a secret stays in trainers/theirs/theirs.py, since results")
    written = write_archive.ArchiveSummary(
        1, 40, {f"{n}.log": 1 for n in range(13)}, ["x"] * 12, ""
    )
    lines = written.describe_secrets()
    assert lines[9:11] == ["  1 secret hidden in 9.log",
                           "  and in 3 more: archive.json has them all"]  # fmt: skip
    assert lines[-2] == "  and in 2 more" and "Only secrets whose name" in lines[-1]
