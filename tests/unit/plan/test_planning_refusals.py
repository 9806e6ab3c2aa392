"""planning: what is refused before anything is done, and in which words."""

import os
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.plan import planning
from support.studies.planned_runs import STUDY


def test_an_unknown_run_is_named_with_the_nearest(plan):
    known = next(iter(plan.runs))
    with pytest.raises(Error, match=f"no run .*did you mean .*{known}"):
        plan.run(known[:-1])


@pytest.mark.parametrize("key", ["manual_dir", "store"])
def test_a_folder_of_data_that_is_not_there_is_named(alone, key):
    with pytest.raises(Error, match=rf"data\.{key}: there is no folder nowhere; make it"):
        planning.make_plan(STUDY | {"data": STUDY["data"] | {key: "nowhere"}})


def test_terms_that_nobody_accepted_are_named_before_anything_is_fetched(alone):
    block = STUDY["matrix"][0] | {"model": "resnet50", "dataset": ["synthetic", "imagenet"]}
    study = STUDY | {"matrix": [block]}
    with pytest.raises(Error, match=r"put imagenet into data\.terms_accepted"):
        planning.make_plan(study)
    accepted = STUDY["data"] | {"terms_accepted": ["imagenet"]}
    assert planning.make_plan(study | {"data": accepted}).datasets == ["imagenet"]
    Path("results/data/imagenet").mkdir(parents=True)
    Path("results/data/imagenet/source.json").write_text("{}")  # fetched, by one who had
    assert planning.make_plan(study).datasets == ["imagenet"]


def test_a_file_of_published_numbers_that_cannot_be_read_is_named(alone):
    Path("references.csv").write_text("point,value\n")
    with pytest.raises(Error, match=r"references\.csv, line 1: expected the columns point,"):
        planning.make_plan(STUDY | {"references": [{"path": "references.csv"}]})


@pytest.mark.parametrize(
    ("free_files", "free_blocks", "message"),
    [(3, 10_000, "3 more files can be made"), (1000, 0, "0 bytes are free")],
)
def test_a_start_on_a_full_disk_says_so_before_anything_is_written(
    here, monkeypatch, free_files, free_blocks, message
):
    planning.check_folders(writes=True)
    full = list(os.statvfs(here))
    full[4], full[5], full[7] = free_blocks, 4000, free_files  # f_bavail, f_files, f_favail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*full[:6], 0, *full[7:]]))
    with pytest.raises(Error, match=f"the disk of {here} is full: {message}.*nothing was"):
        planning.check_folders(writes=False)


def test_results_that_are_no_folder_are_refused_and_a_link_to_one_is_used(here):
    results, disk = Path("results"), here / "disk"
    results.symlink_to(disk)
    refused = rf"{here}/results \(a link to {disk}\) is no folder .*\(ln -s .*nothing was started"
    with pytest.raises(Error, match=refused):  # nothing is there
        planning.check_folders(writes=False)
    disk.write_text("")
    with pytest.raises(Error, match=refused):
        planning.check_folders(writes=True)
    disk.unlink()
    disk.mkdir()
    planning.check_folders(writes=True)
    results.unlink()
    results.write_text("")
    with pytest.raises(Error, match=f"{here}/results is no folder that this user can reach"):
        planning.check_folders(writes=False)


PATTERNS = {
    "step": r"time (?P<step_time_ms>\S+)ms",
    "metrics": {"busbw_gb_per_s": r"bandwidth: (\S+)"},
}
BLOCK = {
    **{"name": "all", "trainer": "theirs", "framework": "own", "model": "m", "dataset": "none"},
    **{"batch_per_device": 8, "strategy": ["single", "mirrored"], "steps": 9},
}


def make(log, **changes):
    trainers = {"theirs": {"command": ["true"], "log": log}}
    changes = {"matrix": [BLOCK], "repeats": 1, "compare": []} | changes
    return planning.make_plan(STUDY | {"trainers": trainers} | changes)


def compared(metric):
    return {"compare": [{"field": "strategy", "base": "single", "metric": metric}]}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (compared("busbw_gb_per"), r"compare\[0\].metric"),
        (
            {"repeats": {"target_interval": 0.1, "min": 2, "max": 3, "metric": "busbw_gb_per"}},
            "repeats.metric",
        ),
        ({"matrix": [BLOCK | {"must_reach": {"metrics": {"busbw_gb_per": 1}}}]}, "must_reach"),
    ],
)
def test_a_metric_that_no_pattern_names_is_refused_with_the_nearest(alone, changes, where):
    with pytest.raises(Error, match=f"{where}.*: .*did you mean 'busbw_gb_per_s'"):
        make(PATTERNS, **changes)


def test_metrics_of_patterns_and_columns_of_runs_and_what_other_logs_name_can_be_compared(alone):
    for metric in ("busbw_gb_per_s", "step_time_p95_s"):
        assert make(PATTERNS, **compared(metric)).runs
    for log in ("auto", "dlbench"):  # not known before a program has run
        assert make(log, **compared("busbw_gb_per")).runs


def test_files_of_patterns_name_their_metrics_too(alone):
    with pytest.raises(Error, match="under metrics, which are: none, or a column of the table"):
        make("nanogpt", **compared("busbw_gb_per"))


COMMAND = {"command": ["train"]}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<=x)(?P<step_time_s>\d+)", "lookaround"),
        (r"(?P<step_time_s>\d+)(?= s)", "lookaround"),
        (r"(?P<loss>.) \1 (?P<step_time_s>\d+)", "reference to a group"),
        (r"(?:x{1000}){1000} (?P<step_time_s>\d+)", "1000"),
    ],
)
def test_a_pattern_that_could_take_forever_is_refused_before_anything_is_started(pattern, why):
    with pytest.raises(Error, match=why) as error:
        planning.check_log_patterns({"theirs": COMMAND | {"log": {"step": pattern}}})
    assert "trainers.theirs.log.step" in str(error.value)


def test_patterns_that_only_slow_engines_cannot_read_are_fine():
    step = r"(?:(?:a+)+)+b (?P<step_time_s>\S+)"
    planning.check_log_patterns(
        {"theirs": COMMAND | {"log": {"step": step}}, "ours": {"log": "auto"}}
    )
