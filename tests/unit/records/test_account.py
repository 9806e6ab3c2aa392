"""The account of a run's wall time: parts that add up, each what was really done."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.log import event_log
from dlbench.records import account, parse_run
from support.runs.parsed_runs import RUN

LAUNCHED = "2026-11-21T01:00:00.000000Z"


class MadeLog:
    """A log of a run, written as its parts pass; `expected` has the seconds of each."""

    def __init__(self, job=None):
        self.expected = dict.fromkeys(account.PARTS, 0.0)
        self._date, self._clock, self._step = LAUNCHED, None, 0
        self.events = [{"event": "launch", "t_utc": LAUNCHED, **({"job": job} if job else {})}]

    def spend(self, part, seconds):
        self.expected[part] += seconds
        self._date = event_log.shifted(self._date, seconds)
        if self._clock is not None:
            self._clock += seconds
        return self

    def write(self, event, **fields):
        self.events.append({"event": event, **fields})
        return self

    def dated(self, event, **fields):
        return self.write(event, t_utc=self._date, **fields)

    def timed(self, event, **fields):
        return self.write(event, t_s=self._clock, **fields)

    def begin(self, trace=0.5, page_cache=0.0):
        self.spend("start", 1.0).dated("begin")
        self.spend("imports", 2.0).dated("stage", name="imports")
        if page_cache:
            self.write("page_cache", asked="cold", spent_s=page_cache, kept_before=0.5, kept=0.0)
            self.spend("other", page_cache).dated("stage", name="other")
        self.spend("data", 0.25).dated("stage", name="data")
        self.spend("build", 0.5).dated("run_start", spec=RUN.values())
        self._clock = 0.0
        self.spend("data", 0.125)
        self.spend("compile", trace).timed("compile", trace_s=trace)
        return self

    def steps(self, times, warm_up=1, more=0.0, window=1):
        """Steps of these times, the first of which takes so much longer because it compiles."""
        for number, time in enumerate(times):
            part = "warm_up" if number < warm_up else "steps"
            first = more if number == 0 else 0.0
            self.spend("compile", first).spend(part, time * window)
            self._step += window
            fields = {"window_steps": window, "losses": [1.0] * window} if window > 1 else {}
            fields |= {"step_time_s": time + first / window, "warm_up": number < warm_up}
            self.timed("step", step=self._step, loss=1.0, learning_rate=0.1, epoch=1, **fields)
        return self

    def evaluate(self, seconds, barrier=0.0):
        self.spend("evaluation", seconds)
        self.timed("eval", epoch=1, step=self._step, split="validation", loss=1.0)
        return self.spend("evaluation", barrier)

    def checkpoint(self, agreeing, writing):
        self.spend("checkpoints", agreeing).timed("checkpoint", step=self._step)
        return self.spend("checkpoints", writing)

    def resume(self, lost):
        """Go on from the checkpoint before, so many seconds after it was begun."""
        at = next(e["t_s"] for e in reversed(self.events) if e["event"] == "checkpoint")
        written = self._clock - at
        self.expected["checkpoints"] -= written
        self.expected["restarts"] += written + lost
        self._date = event_log.shifted(self._date, lost)
        self._clock = at
        for event, fields in (("launch", {}), ("begin", {}), ("stage", {"name": "imports"})):
            self.dated(event, **fields)
        return self.dated("resume", step=self._step, t_s=at)

    def end(self, calibration=0.0, profile=0.0, status="ok"):
        fields = {"status": status, "message": "", "t_s": self._clock, "weights_sha256": ["0"]}
        self.spend("shutdown", 0.5).dated("run_end", **fields)
        if profile:
            self.spend("profile", profile)
            self.write("profile", spent_s=profile, unknown="made")
        if calibration:
            self.spend("calibration", calibration)
            self.write("calibration", tflops=1.0, gb_per_s=1.0, spent_s=calibration)
        return self.spend("shutdown", 0.25).dated(
            "neighbours", span_s=1.0, host="here", waited_for_quiet_s=0.0, unknown={}
        )

    def account(self, folder):
        start = next(event for event in self.events if event["event"] == "run_start")
        start["total_steps"] = self._step
        log = folder / "train.jsonl"
        log.write_text("".join(f"{json.dumps(event)}\n" for event in self.events))
        return account.summary(parse_run.RankLog(log))


def check(made, folder):
    """See that each part is as it was made, and that all add up. Returns the summary."""
    found = made.account(folder)
    wanted = {name: pytest.approx(s, abs=2e-6) for name, s in made.expected.items()}
    assert found["account_s"] == wanted
    assert math.fsum(found["account_s"].values()) == pytest.approx(found["wall_s"], abs=1e-4)
    return found


def test_each_part_of_a_run_is_where_its_time_went(tmp_path):
    made = MadeLog().begin().evaluate(0.75, barrier=0.125)
    made.steps([0.25] * 3, more=3.0).evaluate(1.0).steps([0.25] * 4, warm_up=0)
    found = check(made.checkpoint(0.0625, 0.5).steps([0.25], warm_up=0).end(), tmp_path)
    steps_s = 8 * 0.25
    assert found["goodput"] == pytest.approx(steps_s / found["wall_s"])


def test_the_queue_is_counted_where_the_scheduler_knows_it(tmp_path):
    job = {"scheduler": "slurm", "id": "7", "submitted_at": "2026-11-21T00:30:00.000000Z"}
    job["started_at"] = "2026-11-21T00:45:00.000000Z"
    made = MadeLog(job).begin().steps([0.5] * 3).end()
    made.expected["queue"] = 900.0
    check(made, tmp_path)


def test_work_after_the_checkpoint_and_the_time_until_it_goes_on_are_lost(tmp_path):
    made = MadeLog().begin().steps([0.25] * 4, more=1.0).checkpoint(0.125, 0.25)
    made.resume(lost=60.0).spend("data", 0.25).spend("compile", 0.5)
    made.timed("compile", trace_s=0.5).steps([0.25] * 3, more=2.0)
    check(made.end(), tmp_path)


def test_copies_that_wait_for_each_other_are_told_from_steps(tmp_path):
    made = MadeLog().begin().timed("ready").spend("waiting", 4.0)
    check(made.timed("met", waited_s=4.0).steps([0.25] * 4).end(), tmp_path)


def test_dropping_a_dataset_from_memory_is_no_part_of_imports_nor_of_opening_it(tmp_path):
    check(MadeLog().begin(page_cache=40.0).steps([0.25] * 4).end(), tmp_path)
    found = parse_run.content(RUN, parse_run.rank_logs(tmp_path / "train.jsonl"))["summary"]
    assert found["import_s"] == pytest.approx(2.0 + 0.25 + 0.5)
    assert found["page_cache_share"] == 0.0


def test_the_first_step_of_a_run_without_a_model_compiles_nothing(tmp_path):
    made = MadeLog().begin(trace=0.0).steps([0.75, 0.25, 0.25, 0.25], warm_up=1)
    made.events[-5 - 1]["spec"]["mode"] = "input"
    check(made.end(), tmp_path)


def test_a_window_of_steps_counts_whole(tmp_path):
    check(MadeLog().begin().steps([0.25] * 4, more=2.0, window=8).end(), tmp_path)


def test_calibrating_and_tracing_further_steps_are_no_part_of_shutting_down_and_no_steps(tmp_path):
    made = MadeLog().begin().steps([0.25] * 4).end(profile=3.0, calibration=5.0)
    parts_s = check(made, tmp_path)["account_s"]
    assert (parts_s["profile"], parts_s["steps"]) == (3.0, pytest.approx(0.75))


def test_a_run_without_a_measured_step_has_no_compiling_in_its_steps(tmp_path):
    made = MadeLog().begin().steps([2.0], warm_up=1).end(status="failed")
    assert check(made, tmp_path)["account_s"]["warm_up"] == 2.0


@pytest.mark.parametrize("missing", ["launch", "begin", "run_end"])
def test_without_a_date_nothing_is_known(tmp_path, missing):
    made = MadeLog().begin().steps([0.25] * 4).end()
    made.events = [event for event in made.events if event["event"] != missing]
    assert made.account(tmp_path) == {}


def test_of_a_clock_that_was_set_meanwhile_nothing_is_said(tmp_path):
    made = MadeLog().begin().steps([0.25] * 4).end()
    for event in made.events[-2:]:
        event["t_utc"] = LAUNCHED
    assert made.account(tmp_path) == {}


SECONDS = st.integers(0, 4000).map(lambda ms: ms / 1000)
TIMED = st.tuples(st.sampled_from(["evaluate", "checkpoint"]), SECONDS, SECONDS)
ACTIVITIES = st.lists(TIMED | st.just(("steps", [0.25], 0)), max_size=12)


@settings(max_examples=60)
@given(ACTIVITIES, SECONDS, SECONDS)
def test_the_parts_of_any_run_add_up_to_its_wall_time(tmp_path_factory, activities, more, lost):
    made = MadeLog().begin().steps([0.25] * 3, more=more)
    for name, *arguments in activities:
        getattr(made, name)(*arguments)
        made.steps([0.25], warm_up=0)
    made.checkpoint(0.5, 0.5).resume(lost).timed("compile", trace_s=0.0)
    found = made.steps([0.25] * 2, more=more).end().account(tmp_path_factory.mktemp("log"))
    assert math.fsum(found["account_s"].values()) == pytest.approx(found["wall_s"], rel=1e-6)
