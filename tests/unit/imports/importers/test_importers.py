"""Properties of all importers."""

import functools
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlbench.imports import import_logs, kinds, table_rows
from dlbench.imports.importers import Steps
from dlbench.imports.log_file import LogError, LogFile
from dlbench.tables import parquet_files, table_columns
from support.logs.log_samples import GLOBAL_BATCH, KINDS, NO_STEP_TIMES, ROUNDING_S, STEP_TIMES_S

NAMES = kinds.names()
FIELDS = {"global_batch": GLOBAL_BATCH}
WITH_STEP_TIMES = [name for name in NAMES if name not in NO_STEP_TIMES]
# What tends to break readers, beside what hypothesis thinks of.
TOKENS = (
    *(b"nan", b"-1", b"0", b"1e400", b"null", b'"', b"\0", b"9" * 400, b"{", b"[" * 3000, b"\n"),
    *(b"\r", b"\xff\xfe", b" " * 20000, b":::MLLOG ", b"\t", b",", b"true", b"1.5", b"-inf", b"}"),
)


@functools.cache
def sample(name, step_time_s=0.125, steps=12):
    content = KINDS[name](step_time_s, steps)
    return content.encode() if isinstance(content, str) else content


def runs(name, path):
    """The runs that an importer reads from a file, with their rows in all tables."""
    importer, log = kinds.load(name), LogFile(path)
    assert importer.recognise(log) in (True, False)
    found = []
    for imported in importer.read(log):
        run = table_rows.merge([table_rows.Source(imported, name, "log", "0" * 64)])
        table_rows.complete(run, {}, "log")
        row = table_rows.run_row(run, "run", "0" * 64, None)
        parquet_files.table([row], table_columns.RUNS)
        list(table_rows.run_tables(run, "run"))
        found.append(run)
    return found


def tried(name, content):
    """`runs` of a content; None if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        try:
            return runs(name, path)
        except LogError as error:
            assert str(path) in str(error)
            return None


@st.composite
def damaged(draw, content):
    """A log with random parts removed, repeated or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 200)))
        part = draw(st.sampled_from(TOKENS) | st.binary(max_size=20) | st.just(content[start:end]))
        content = content[:start] + part * draw(st.integers(1, 2)) + content[end:]
    return content


def cuts(content, most):
    """About so many places, from the beginning to the end; lines are cut at different ones."""
    return range(0, len(content), max(1, len(content) // most))


def test_every_importer_has_a_sample_and_says_what_its_numbers_mean():
    assert sorted(KINDS) == NAMES
    for name in NAMES:
        module = kinds.load(name)
        assert len(getattr(module, "about", module.__doc__)) > 80
        assert module.FAMILY or module.ATTACHES


@pytest.mark.parametrize("name", NAMES)
def test_a_log_is_known_by_its_importer_alone(tmp_path, name):
    (tmp_path / "log").write_bytes(sample(name))
    log = LogFile(tmp_path / "log")
    assert [n for n in NAMES if kinds.load(n).recognise(log)] == [name]


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=5000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_log_is_read_or_refused(name, data):
    tried(name, data.draw(damaged(sample(name))))


@pytest.mark.parametrize("step_time_s", STEP_TIMES_S)
@pytest.mark.parametrize("name", WITH_STEP_TIMES)
def test_constant_step_times_give_their_mean_exactly_and_no_scatter(tmp_path, name, step_time_s):
    for steps in (10, 30):
        (tmp_path / "log").write_bytes(sample(name, step_time_s, steps))
        (row,) = import_logs.import_paths([tmp_path / "log"], FIELDS).rows
        near = pytest.approx(step_time_s, abs=ROUNDING_S.get(name, 0), rel=0)
        assert row["step_time_mean_s"] == near
        assert GLOBAL_BATCH / row["images_per_second"] == near
        assert row.get("step_time_sd_s") in (None, 0)
        assert row.get("step_time_mad_s") in (None, 0)
        assert row.get("step_time_median_s") in (None, near)


@pytest.mark.parametrize("name", ["mlperf", "mxnet"])
def test_constant_step_times_give_their_throughput_where_only_that_is_known(tmp_path, name):
    (tmp_path / "log").write_bytes(sample(name, 0.125, 30))
    assert import_logs.import_paths([tmp_path / "log"]).rows[0]["images_per_second"] == 512


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_a_log_that_was_cut_anywhere_has_what_the_whole_one_begins_with_or_is_refused(name):
    """The same rows up to there, and no speed that the whole one does not have."""
    content = sample(name, 0.125, 30)
    whole = tried(name, content)
    rows, speeds = list(map(_steps, whole)), _speeds(whole[0])
    for end in cuts(content, 35):
        cut = tried(name, content[:end]) or []
        assert len(cut) <= len(whole)
        for expected, run in zip(rows, cut, strict=False):
            found = _steps(run)
            assert found == expected[: len(found)], f"cut after {end} bytes"
            near = pytest.approx(
                {column: speeds.get(column) for column in _speeds(run)},
                rel=0.01 if name in ROUNDING_S else 0,
                abs=0,
            )
            assert _speeds(run) == near, f"{end} of {len(content)} bytes"


def _steps(run):
    """Steps with their losses, as texts, so that nan equals nan."""
    return [f"{step} {loss}" for step, loss in zip(run.steps.step, run.steps.loss, strict=True)]


def _speeds(run):
    row = table_rows.run_row(run, "run", "0" * 64, None)
    columns = ("step_time_mean_s", "images_per_second", "step_time_median_s")
    return {column: row[column] for column in columns if row.get(column) is not None}


def test_a_row_of_steps_is_one_step_without_a_loss_unless_the_log_says_more():
    steps = Steps()
    steps.add(1, 0.5)
    steps.add(11, 0.25, loss=2.5, window_steps=10, warm_up=True)
    assert len(steps) == 2
    assert (list(steps.window_steps), list(steps.warm_up)) == ([1, 10], [0, 1])
    assert math.isnan(steps.loss[0]) and steps.loss[1] == 2.5
