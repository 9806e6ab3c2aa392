"""dlbench init: what it writes where, what it refuses, and what it says comes next."""

import os
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from dlbench.command import dispatch
from dlbench.common import own_code
from support.machines.paths import REPOSITORY

SNAKEFILE = shlex.quote(f"{own_code.PROJECT}/Snakefile")
SINFO = "cpu*|up|1:00:00|3|8|8000|(null)|idle\ngpu|up|1:00:00|2|16|64000|gpu:4|mixed"


@pytest.fixture(autouse=True)
def workflow(place, pythons):
    shutil.copy(REPOSITORY / "config.yaml", place)
    return place


@pytest.fixture
def slurm(place):
    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        path = place / "bin" / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{SINFO}\nEND\n")
        path.chmod(0o755)


def init(*arguments):
    return dispatch.main(["init", *arguments])


def refused(capsys, *arguments):
    """The message of a command line that is refused, which writes nothing."""
    before = {path: path.lstat().st_mtime_ns for path in Path.cwd().rglob("*.yaml")}
    assert init(*arguments) == 2
    assert {path: path.lstat().st_mtime_ns for path in Path.cwd().rglob("*.yaml")} == before
    return capsys.readouterr().err


def test_it_writes_a_study_and_says_what_to_type(capsys):
    assert init("--framework", "tensorflow") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("my_study.yaml: ")
    assert printed.splitlines()[-1].endswith("run snakemake --configfile my_study.yaml")
    written = yaml.safe_load(Path("my_study.yaml").read_text())
    assert (written["study"], written["matrix"][0]["model"]) == ("my_study", "lenet5")
    assert not Path("site.yaml").exists()
    # In a folder the study is config.yaml, and has the name of the folder.
    assert init("studies/ours", "--framework", "pytorch", "jax", "--model", "cnn12") == 0
    written = yaml.safe_load(Path("studies/ours/config.yaml").read_text())
    assert written["study"] == "ours"
    assert written["matrix"][-1]["include"] == [
        {"framework": "jax", "strategy": "single", "batch_per_device": [16, 64, 256]}
    ]


def test_a_file_that_is_there_stays_as_it_is(capsys):
    Path("my_study.yaml").write_text("study: old\n")
    assert "my_study.yaml is there already" in refused(capsys)
    assert "config.yaml is there already" in refused(capsys, ".")
    assert "bin/sh is there already" in refused(capsys, "bin/sh")
    os.symlink("nowhere", "link.yaml")
    assert "link.yaml is there already" in refused(capsys, "link.yaml")


def test_bad_flags_are_refused_and_nothing_is_written(capsys):
    assert "did you mean 'lenet5'?" in refused(capsys, "--model", "lenet")
    assert "there are: " in refused(capsys, "--dataset", "digit")
    refusal = refused(capsys, "--nodes", "2")
    assert "--nodes 2: runs on several nodes are written for Slurm" in refusal
    assert "has the programs of no scheduler" in refused(capsys, "--partition", "gpu")
    assert "expected a terminal" in refused(capsys, "--ask")
    assert "study" in refused(capsys, "--name", "a/b")
    assert "expected a folder with a folder of pictures" in refused(capsys, "--data", "nowhere")
    Path("empty").mkdir()
    assert "empty" in refused(capsys, "--data", "empty")


def test_a_folder_of_pictures_is_a_dataset_of_the_study(tmp_path, capsys):
    folder = tmp_path / "My photos, 2026"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.png").write_bytes(b"")
    assert init("--framework", "pytorch", "--data", str(folder)) == 0
    written = yaml.safe_load(Path("my_study.yaml").read_text())
    assert written["data"] == {"images": {"my_photos_2026": {"path": str(folder)}}}
    assert {block["dataset"] for block in written["matrix"]} == {"synthetic", "my_photos_2026"}
    assert {block["model"] for block in written["matrix"]} == {"resnet20"}
    labels = folder / "cat/digits.csv"
    labels.write_text("file,label\n" + "".join(f"{n}.png,{n % 2}\n" for n in range(3)))
    assert "class" in refused(capsys, "other.yaml", "--data", str(labels))  # 1 has one picture
    (folder / "cat/3.png").write_bytes(b"")
    labels.write_text(f"{labels.read_text()}3.png,1\n")
    assert init("other.yaml", "--framework", "jax", "--data", str(labels)) == 0
    written = yaml.safe_load(Path("other.yaml").read_text())
    assert written["data"] == {"images": {"digits_of_mine": {"csv": str(labels)}}}


def test_shards_are_a_dataset_of_the_study(tmp_path, capsys):
    shards = tmp_path / "birds" / "train-{0..1}.tar"
    assert "2 of 2 shards do not exist" in refused(capsys, "x.yaml", "--data", str(shards))
    shards.parent.mkdir()
    for number in range(2):
        with tarfile.open(shards.with_name(f"train-{number}.tar"), "w") as archive:
            for key in range(4):
                (tmp_path / "x").write_text(str(key % 2))
                archive.add(tmp_path / "x", f"{key}.cls")
                archive.add(tmp_path / "x", f"{key}.jpg")
    assert init("x.yaml", "--framework", "pytorch", "--data", str(shards)) == 0
    written = yaml.safe_load(Path("x.yaml").read_text())
    assert written["data"] == {"images": {"birds": {"webdataset": str(shards)}}}


def test_with_a_scheduler_it_writes_a_site_and_has_it_checked_first(slurm, capsys):
    assert "did you mean 'cpu'?" in refused(capsys, "--partition", "cpus")
    assert init("--framework", "pytorch", "--nodes", "2") == 0
    printed = capsys.readouterr().out
    assert "site.yaml: of gpu: 2 nodes of 16 cores, 64000 MiB, 4 GPUs" in printed
    before, check, start = printed.splitlines()[-3:]
    assert before.endswith("under default-resources: - slurm_partition=gpu")
    assert "dlbench check-site --profile profiles/slurm --configfile my_study.yaml" in check
    assert "run snakemake --profile profiles/slurm --configfile my_study.yaml" in start
    written = yaml.safe_load(Path("my_study.yaml").read_text())
    assert written["matrix"][0]["devices_per_node"] == [1, 2, 4]
    assert written["matrix"][1]["nodes"] == [1, 2]


def test_a_site_that_is_there_is_kept_and_describes_the_devices(slurm, capsys):
    Path("site.yaml").write_text("site: {device: cpu, devices_per_node: 4, cores_per_node: 4}\n")
    assert "leave --partition out" in refused(capsys, "--partition", "cpu")
    assert "--nodes 3: this site has 1" in refused(capsys, "--nodes", "3")
    assert init("--framework", "jax") == 0
    written = yaml.safe_load(Path("my_study.yaml").read_text())
    assert written["matrix"][0]["devices_per_node"] == [1, 2, 4]
    assert Path("site.yaml").read_text().startswith("site: {device: cpu")


def test_a_scheduler_that_does_not_answer_leaves_this_machine(slurm, place, capsys):
    (place / "bin/sinfo").write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
    assert init("--framework", "jax") == 0
    captured = capsys.readouterr()
    assert captured.err == "runs are for this machine, since no scheduler answers (Slurm)\n"
    assert "--profile" not in captured.out
    assert "no controller" in refused(capsys, "other.yaml", "--partition", "cpu")


def test_another_folder_gets_commands_that_name_the_workflow(monkeypatch, capsys):
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    Path("config.yaml").unlink()
    assert init("--framework", "jax") == 0
    start = capsys.readouterr().out.splitlines()[-1]
    assert f"--snakefile {SNAKEFILE}" in start


def test_answers_take_the_place_of_flags(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["asked", "jax", "cnn12", ""])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert init("--ask") == 0
    written = yaml.safe_load(Path("my_study.yaml").read_text())
    block = written["matrix"][0]
    assert (written["study"], block["framework"], block["model"]) == ("asked", "jax", "cnn12")


def test_an_installed_dlbench_writes_a_config_and_copies_the_profile_which_a_site_changes(
    monkeypatch, place, slurm, capsys
):
    monkeypatch.setattr(own_code, "is_wheel", lambda: True)
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    Path("config.yaml").unlink()
    assert init("--framework", "jax") == 0
    printed = capsys.readouterr().out
    assert "\nconfig.yaml: " in printed
    assert "config.yaml is there already" in refused(capsys)
    names = {path.name for path in Path("profiles/slurm").iterdir()}
    assert names == {"profile.yaml", "jobscript.sh"}
    check, start = printed.splitlines()[-2:]
    assert re.search(r"dlbench'? check-site --profile profiles/slurm$", check)
    assert start.endswith(f"--snakefile {SNAKEFILE} --profile profiles/slurm")
    Path("profiles/slurm/profile.yaml").write_text("mine: true\n")
    assert init("other.yaml", "--framework", "jax") == 0
    assert Path("profiles/slurm/profile.yaml").read_text() == "mine: true\n"
