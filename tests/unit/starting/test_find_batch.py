"""find_batch: doubling, bisection, and what is never tried."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.starting import find_batch
from dlbench.starting.find_batch import RESERVE, Try
from dlbench.study import batch_searches
from dlbench.study.batch_searches import SearchResult
from dlbench.study.runs import Run

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=3)
LIMIT = 1 - RESERVE


def linear(base, each, tried):
    """Tries of a run whose memory grows by `each` with every item."""

    def attempt(batch):
        share = base + each * batch
        tried.append((batch, share))
        return Try(batch, share <= LIMIT, share, f"batch {batch} holds {share}")

    return attempt


@given(st.floats(0.01, 0.8), st.floats(1e-5, 0.09))
def test_the_batch_is_within_a_sixteenth_of_the_largest_and_no_try_passes_the_limit(base, each):
    tried = []
    batch, _ = find_batch.largest(linear(base, each, tried))
    best = int((LIMIT - base) / each)
    assert best - max(1, batch // 16) <= batch <= best + 1
    assert all(share <= LIMIT + 2 * each for _, share in tried)
    assert len(tried) == len({number for number, _ in tried})


@pytest.mark.parametrize("unit", [1, 4])
def test_what_ends_out_of_memory_ends_doubling_and_every_batch_is_a_multiple_of_its_parts(unit):
    tried = []

    def attempt(batch):
        tried.append(batch)
        return Try(batch, batch <= 37, None, "out of memory")

    assert find_batch.largest(attempt, unit) == (36, "out of memory")
    assert all(batch % unit == 0 for batch in tried)


def test_there_are_no_larger_batches_than_items():
    attempt = linear(0.1, 1e-4, tried := [])
    batch, why = find_batch.largest(lambda batch: attempt(batch)._replace(max_items=20))
    assert (batch, why) == (20, "a step takes no more than 20 items of the dataset")
    assert max(number for number, _ in tried) == 20


def test_a_guess_of_the_first_tries_is_given_up_when_later_ones_let_the_batch_fit():
    shares = {1: 0.1, 2: 0.4}  # what is taken once, by the second try

    def attempt(batch):
        share = shares.get(batch, 0.4 + 0.005 * batch)
        return Try(batch, share <= LIMIT, share, f"batch {batch} holds {share}")

    batch, _ = find_batch.largest(attempt)
    assert 94 <= batch <= 100


def test_where_not_even_the_least_one_fits_nothing_else_is_tried():
    attempt = linear(0.95, 0.01, tried := [])
    assert find_batch.largest(attempt)[0] == 0
    assert len(tried) == 1


def record(status="ok", **summary):
    return {"status": status, "message": "why", "summary": summary}


def test_all_processes_of_a_node_share_its_memory_and_each_has_a_device():
    ended = record(peak_memory_bytes=20, peak_reserved_bytes_per_device=50, memory_limit_bytes=100)
    assert find_batch.judge(RUN, ended, processes=2, free=100).share == 0.5
    assert find_batch.judge(RUN, ended, processes=4, free=100).share == 0.8
    assert not find_batch.judge(RUN, ended, processes=5, free=100).fits
    unknown = find_batch.judge(RUN, record(), 1, 100)
    assert unknown.fits and unknown.share is None


def test_what_an_allocator_keeps_in_reserve_is_not_held():
    ended = record(
        peak_allocated_bytes_per_device=50,
        peak_reserved_bytes_per_device=95,
        peak_used_bytes_per_device=99,
        memory_limit_bytes=100,
    )
    assert find_batch.judge(RUN, ended, processes=1, free=None).share == 0.5


@pytest.mark.parametrize("status", ["oom", "timeout"])
def test_a_try_that_ends_out_of_memory_or_takes_too_long_does_not_fit(status):
    tried = find_batch.judge(RUN, record(status), 1, 100)
    assert not tried.fits and tried.message == "batch 8: why"


def test_a_try_that_fails_for_another_reason_ends_the_search():
    with pytest.raises(find_batch.Failed, match="batch 8 was tried and failed: why"):
        find_batch.judge(RUN, record("failed"), 1, 100)


def test_of_a_search_that_this_machine_cannot_do_the_reason_is_kept(here):
    search = batch_searches.search_for(RUN)
    find_batch.skip(search, search.output, "needs 4 devices")
    assert batch_searches.read_result(search.id) == SearchResult(
        None, "needs 4 devices", skipped=True
    )


def test_a_node_has_what_is_free_or_less_where_the_site_allows_less():
    free = find_batch.node_memory()
    assert free > 2**20
    assert find_batch.node_memory(1) == 2**20


def test_the_words_of_a_try_are_those_of_its_batch(tmp_path):
    arguments = ["--label=x", "--position=try 1", "--spec={}", "--", "python", "train.py"]
    arguments += ["{flags}", "--log", "elsewhere", "--device", "cpu"]
    changed = find_batch.arguments_for_batch(arguments, RUN, tmp_path / "train.jsonl", 3)
    specs = [word for word in changed[: changed.index("--")] if word.startswith("--spec=")]
    assert json.loads(specs[-1].removeprefix("--spec=")) == RUN.values()
    positions = [word for word in changed if word.startswith("--position=")]
    assert positions == ["--position=try 1", "--position=try 3"]
    log = str(tmp_path / "train.jsonl")
    assert changed[-5:] == ["{flags}", "--log", log, "--device", "cpu"]
