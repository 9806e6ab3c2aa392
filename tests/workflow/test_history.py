"""The history on the real Snakefile."""

import shutil
import sys

import pytest

from support.campaigns.campaign import IMPORTED, REPOSITORY, environment
from support.history import made_campaigns as made
from support.programs import forked

COMMAND = [sys.executable, "-m", "snakemake", "--snakefile", REPOSITORY / "Snakefile"]
COMMAND += ["--cores", "2", "--resources", "bench=1", "--configfile", "history.yaml", "--"]


def start(folder, target="history"):
    command = [*COMMAND, target]
    finished = forked.run(command, IMPORTED, cwd=folder, env=environment(), together=True)
    return finished.returncode, finished.stdout


@pytest.mark.ci
def test_a_history_adds_only_what_is_new_and_names_what_it_refuses(tmp_path):
    (tmp_path / "history.yaml").write_text("history: [nowhere]\n")
    code, printed = start(tmp_path)
    assert code != 0 and "there is no archive or results folder nowhere" in printed
    assert "Traceback" not in printed

    (tmp_path / "history.yaml").write_text("history: [all]\n")
    for week in range(8):
        rates = {8: [1000.0 + week, 1003.0], 16: [2000.0, 2003.0 - week]}
        made.add_session(tmp_path / "made" / f"c{week}", week, rates)
    (tmp_path / "all").mkdir()
    for week in range(7):
        made.archive(tmp_path / "made" / f"c{week}", tmp_path / "all" / f"c{week}.zip")
    code, printed = start(tmp_path)
    assert code == 0, printed
    assert "7 sessions of the history count; 0 findings" in printed
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("history/*/*/*.parquet")}
    assert len(written) == 7

    code, printed = start(tmp_path)  # nothing is new
    assert code == 0 and "add_campaign" not in printed and "analyse_history" not in printed

    shutil.copytree(tmp_path / "made" / "c7", tmp_path / "all" / "c7")
    broken = tmp_path / "all" / "broken.zip"
    broken.write_bytes((tmp_path / "all" / "c0.zip").read_bytes()[:-50])
    code, printed = start(tmp_path)
    assert code != 0
    assert "8 sessions of the history count" in printed
    assert "not in the history:" in printed and "broken.zip: no whole zip file" in printed
    assert printed.count("in the history\n") == 2  # the two new ones
    assert all(path.stat().st_mtime_ns == date for path, date in written.items())

    broken.unlink()
    (file,) = tmp_path.glob("history/*/*/20260105*.parquet")
    file.with_suffix(".withdrawn").write_text("wrong BIOS")
    code, printed = start(tmp_path, "site")
    assert code == 0, printed
    assert "7 sessions of the history count" in printed
    assert "wrong BIOS" in (tmp_path / "results" / "site" / "index.html").read_text()
