"""checkpoints: files that are complete or absent, and of this run or refused."""

import threading
import types
from concurrent import futures

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dlbench import Error
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.trainer import checkpoints
from dlbench.trainer.checkpoints import Checkpointer
from dlbench.trainer.engine import CheckpointState

RUN = {"spec": {"model": "lenet5", "seed": 1}, "versions": {"tensorflow": "2.18.1"}, "size": 1}
ARRAYS = {"w:0": np.arange(6, dtype=np.float32).reshape(2, 3), "n:0": np.int64(7)}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def whole(folder, step=3, run=RUN, ranks=1):
    for rank in range(ranks):
        log = f"log of rank {rank}\n".encode()
        checkpoints.write(folder, rank, step, ARRAYS | {"rank:0": np.int64(rank)}, log)
    checkpoints.complete(folder, step, 1.5, run)


# The files.


def test_each_rank_finds_its_own_arrays_and_log(folder):
    whole(folder, ranks=2)
    found = checkpoints.latest(folder, RUN)
    assert (found.step, found.t_s, found.run) == (3, 1.5, RUN)
    for rank in (0, 1):
        assert found.arrays(rank)["rank:0"] == rank
        assert found.log(rank) == f"log of rank {rank}\n".encode()


@given(
    st.dictionaries(
        st.text("abc/:_", min_size=1, max_size=8).filter(lambda name: name.strip("/:_")),
        arrays.arrays(
            st.sampled_from(["float32", "float64", "float16", "int64", "uint32", "bool"]),
            arrays.array_shapes(min_dims=0, max_dims=3, max_side=4),
        ),
        max_size=4,
    ),
    st.binary(max_size=50),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_arrays_and_bytes_come_back(folder, content, log):
    checkpoints.write(folder, 0, 1, content, log)
    checkpoints.complete(folder, 1, 0.0, {})
    found = checkpoints.latest(folder, {})
    assert found.log(0) == log
    read = found.arrays(0)
    assert read.keys() == content.keys()
    for name, array in content.items():
        np.testing.assert_array_equal(read[name], array, strict=True)


def test_where_there_is_none_or_no_rank_completed_one_there_is_none(folder):
    assert checkpoints.latest(folder, RUN) is None
    checkpoints.write(folder, 0, 3, ARRAYS, b"")
    assert checkpoints.latest(folder, RUN) is None


def test_a_kill_while_the_next_is_written_leaves_the_one_before(folder):
    whole(folder)
    checkpoints.write(folder, 0, 9, {"w:0": np.zeros(1)}, b"later\n")
    found = checkpoints.latest(folder, RUN)
    assert (found.step, found.log(0)) == (3, b"log of rank 0\n")
    np.testing.assert_array_equal(found.arrays(0)["w:0"], ARRAYS["w:0"])


def test_only_the_newest_is_kept_and_may_be_written_again(folder):
    for step in (3, 10, 11):
        whole(folder, step, ranks=2)
    assert sorted(path.name for path in folder.iterdir()) == ["latest.json", "step-11"]
    names = sorted(path.name for path in (folder / "step-11").iterdir())
    assert names == ["rank0.jsonl", "rank0.npz", "rank1.jsonl", "rank1.npz"]
    checkpoints.write(folder, 0, 11, {"w:0": np.zeros(1)}, b"again\n")
    checkpoints.write(folder, 1, 21, {}, b"")  # by a rank that is ahead
    (folder / "step-10 of mine").mkdir()
    checkpoints.complete(folder, 11, 2.0, RUN)
    assert checkpoints.latest(folder, RUN).log(0) == b"again\n"
    assert (folder / "step-21" / "rank1.jsonl").exists() and (folder / "step-10 of mine").exists()


def test_no_part_of_a_file_is_left_where_writing_failed(folder):
    with pytest.raises(TypeError):
        checkpoints.write(folder, 0, 3, ARRAYS, None)
    names = [path.name for path in (folder / "step-3").iterdir()]
    assert names == ["rank0.npz"]


def test_removing_leaves_nothing_and_needs_nothing(folder):
    whole(folder)
    (folder / "stop").touch()
    for _ in range(2):
        checkpoints.remove(folder)
        assert not folder.exists()


# Damage and other runs.


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_a_damaged_latest_is_named_with_what_to_do(folder, content):
    whole(folder)
    (folder / "latest.json").write_bytes(content)
    with pytest.raises(Error) as error:
        checkpoints.latest(folder, RUN)
    assert str(error.value).startswith(f"{folder / 'latest.json'} is damaged (")
    assert str(error.value).endswith(f"delete {folder} to begin anew")


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(5).tobytes())] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), cut, flip])
def test_damaged_arrays_are_named_with_what_to_do(folder, damage):
    whole(folder)
    path = folder / "step-3" / "rank0.npz"
    damage(path)
    with pytest.raises(Error) as error:
        checkpoints.latest(folder, RUN).arrays(0)
    assert str(error.value).startswith(f"{path} cannot be read (")
    assert str(error.value).endswith(f"delete {folder} to begin anew")


def test_arrays_of_objects_are_not_read(folder):
    whole(folder)
    np.savez(folder / "step-3" / "rank0.npz", w=np.array([{}], dtype=object))
    with pytest.raises(Error, match="allow_pickle=False"):
        checkpoints.latest(folder).arrays(0)


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ({"spec": {"model": "cnn12", "seed": 1}}, "model: 'lenet5' there, 'cnn12' here"),
        (
            {"spec": {"model": "lenet5", "seed": 2}, "size": 4},
            "seed: 1 there, 2 here; size: 1 there, 4 here",
        ),
        ({"data_sha256": "a"}, "data_sha256: None there, 'a' here"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_with_what_differs(folder, here, words):
    whole(folder)
    with pytest.raises(Error) as error:
        checkpoints.latest(folder, RUN | here)
    assert str(error.value) == (
        f"{folder / 'latest.json'} is a checkpoint of another run ({words}): name another folder, "
        "or delete it to begin anew"
    )
    assert checkpoints.latest(folder).run == RUN


def test_differences_are_by_name_and_may_be_left_out():
    first, second = {"b": 1, "a": 1, "c": 1}, {"b": 2, "c": 1, "d": 0}
    assert checkpoints.differences(first, second) == [("a", 1, None), ("b", 1, 2), ("d", None, 0)]
    assert checkpoints.differences(first, second, leave_out=("a", "d")) == [("b", 1, 2)]
    assert checkpoints.differences(first, dict(first)) == []


class Variable:
    """The interface of a TensorFlow variable that a Checkpointer uses."""

    def __init__(self, *values):
        self.value = np.array(values, np.float32)

    @property
    def shape(self):
        return self.value.shape

    def numpy(self):
        return self.value.copy()

    def assign(self, array):
        self.value = array


class Ranks:
    """Gathers as the strategies do: none returns before all have called."""

    def __init__(self, size):
        self.size = size
        self._barrier = threading.Barrier(size, timeout=10)
        self._rows = [None] * size

    def strategy(self, rank):
        return types.SimpleNamespace(
            rank=rank, size=self.size, gather=lambda v: self._gather(rank, v)
        )

    def _gather(self, rank, values):
        self._rows[rank] = values
        self._barrier.wait()
        rows = np.array(self._rows, np.float64)
        self._barrier.wait()
        return rows

    def together(self, function):
        """What `function(rank)` returns on each rank, all at once."""
        with futures.ThreadPoolExecutor(self.size) as threads:
            return list(threads.map(function, range(self.size)))


class Rank:
    def __init__(
        self, folder, rank=0, ranks=None, every_s=1e9, run=RUN, asked="", more=(), writer=None
    ):
        self.asked = asked
        self.weights, self.seeds = Variable(1, 2), Variable(rank)
        self.path = event_log.rank_path(folder.parent / "train.jsonl", rank)
        self.log = EventLog(self.path)
        self.checkpointer = Checkpointer(
            folder,
            every_s,
            (ranks or Ranks(1)).strategy(rank),
            self.log,
            run,
            CheckpointState({"weights": [self.weights]}, {"seeds": [self.seeds, *more]}, writer),
            lambda: self.asked,
        )


def alone(folder, **changes):
    one = Rank(folder, **changes)
    one.log.start(spec={})
    assert one.checkpointer.resume() == 0
    return one


def test_a_run_without_a_checkpoint_begins_and_meets_after_its_first_step(folder):
    one = alone(folder)
    assert one.checkpointer.sync_step == 1
    assert one.checkpointer.synchronize(1, 0.1) == ""
    assert not folder.exists()


@pytest.mark.parametrize(("step_time_s", "steps"), [(0.1, 5), (0.25, 2), (30.0, 1), (0.001, 500)])
def test_ranks_meet_about_twice_a_second(folder, step_time_s, steps):
    one = alone(folder)
    one.checkpointer.synchronize(10, step_time_s)
    assert one.checkpointer.sync_step == 10 + steps
    one.checkpointer.synchronize(10, 0.0)  # a step of no time at all is no division by zero
    assert one.checkpointer.sync_step > 10


def test_a_checkpoint_is_written_as_often_as_was_asked(folder, monkeypatch):
    clock = types.SimpleNamespace(monotonic=lambda: clock.now_s, now_s=100.0)
    monkeypatch.setattr(checkpoints, "time", clock)
    one = alone(folder, every_s=60)
    written = []
    for step, now_s in enumerate((101, 159, 160, 161, 219, 221, 400, 401), start=1):
        clock.now_s = now_s
        assert one.checkpointer.synchronize(step, 1.0) == ""
        found = checkpoints.latest(folder)
        written.append(found and found.step)
    assert written == [None, None, 3, 3, 3, 6, 7, 7]


def test_a_resumed_run_has_the_values_and_the_log_of_the_checkpoint(folder):
    one = alone(folder, every_s=0)
    one.weights.assign(np.array([3, 4], np.float32))
    assert one.checkpointer.synchronize(5, 0.1) == ""
    saved, written, _ = one.log.content().partition(b'{"event": "checkpoint_written"')
    one.log.write("step", step=6)
    again = Rank(folder)
    again.log.write("launch", command=["again"])
    assert again.checkpointer.resume(host="there") == 5
    assert again.checkpointer.sync_step == 6
    np.testing.assert_array_equal(again.weights.value, [3, 4])
    np.testing.assert_array_equal(again.seeds.value, [0])
    assert written and again.log.content().startswith(saved)
    events = list(event_log.read(again.path))
    # The log says that it belongs to a checkpoint, and what came after it is gone.
    assert [event["event"] for event in events] == ["run_start", "checkpoint", "resume"]
    assert (events[1]["step"], events[2]["step"], events[2]["host"]) == (5, 5, "there")
    assert events[2]["t_s"] == pytest.approx(checkpoints.latest(folder).t_s, abs=1e-5)


def test_a_write_is_logged_with_its_seconds_and_the_bytes_of_all_ranks(folder):
    one = alone(folder, every_s=0)
    one.checkpointer.synchronize(5, 0.1)
    event = list(event_log.read(one.path))[-1]
    size = (folder / "step-5/rank0.npz").stat().st_size
    assert (event["event"], event["step"], event["bytes"]) == ("checkpoint_written", 5, size)
    assert event["waited_s"] == event["write_s"] > 0


class Slow:
    """A framework's writer, of which the test ends each write."""

    def __init__(self):
        self.futures, self.loaded = [], None

    def save(self, place):
        (place / "part").mkdir(parents=True)
        (place / "part/a").write_bytes(b"12345")
        self.futures.append(futures.Future())
        return self.futures[-1]

    def load(self, place):
        self.loaded = place.name


def test_a_write_that_goes_on_beside_steps_is_the_latest_once_it_has_ended(folder):
    one = alone(folder, every_s=0, writer=Slow())
    slow = one.checkpointer._writer
    one.checkpointer.synchronize(5, 0.1)
    one.checkpointer._every_s = 1e9
    one.checkpointer.synchronize(6, 0.1)
    assert checkpoints.latest(folder) is None and not list(folder.glob("*/*.npz"))
    slow.futures[0].set_result(None)
    ended_s = one.log.now()
    one.checkpointer.synchronize(7, 0.1)
    assert checkpoints.latest(folder, RUN).step == 5
    event = list(event_log.read(one.path))[-1]
    assert (event["step"], event["bytes"]) == (5, 5)
    assert event["waited_s"] < event["write_s"] <= event["t_s"] <= ended_s + 1e-6
    # The next waits for the one before it, and one that fails ends the run.
    one.checkpointer._every_s = 0
    one.checkpointer.synchronize(8, 0.1)
    threading.Timer(0.05, slow.futures[1].set_result, [None]).start()
    one.checkpointer.synchronize(9, 0.1)
    assert checkpoints.latest(folder, RUN).step == 8
    slow.futures[2].set_exception(OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        one.checkpointer.finish()
    again = Rank(folder, writer=Slow())
    again.log.write("launch", command=["again"])
    assert (again.checkpointer.resume(), again.checkpointer._writer.loaded) == (8, "step-8")


def test_who_is_asked_to_stop_by_a_file_leaves_a_checkpoint_and_says_why(folder):
    one = alone(folder)
    folder.mkdir()
    (folder / "stop").touch()
    assert one.checkpointer.synchronize(7, 0.1) == "a file named stop"
    assert checkpoints.latest(folder, RUN).step == 7


def test_all_ranks_stop_in_the_step_in_which_one_is_asked(folder):
    ranks = Ranks(3)
    members = [Rank(folder, rank, ranks) for rank in range(3)]
    ranks.together(lambda rank: members[rank].log.start(spec={}))
    members[1].asked = "SIGUSR1"
    reasons = ranks.together(lambda rank: members[rank].checkpointer.synchronize(4, 0.1))
    other = "another rank was asked to"
    assert reasons == [other, "SIGUSR1", other]
    found = checkpoints.latest(folder, RUN)
    # What is equal everywhere is kept by rank 0 only.
    names = [sorted(found.arrays(rank)) for rank in range(3)]
    assert names == [["seeds:0", "weights:0"], ["seeds:0"], ["seeds:0"]]
    assert [float(found.arrays(rank)["seeds:0"][0]) for rank in range(3)] == [0, 1, 2]


def test_all_ranks_meet_when_rank_0_says_and_write_when_it_is_due_there(folder):
    ranks = Ranks(2)
    members = [Rank(folder, rank, ranks, every_s=(1e9, 0)[rank]) for rank in range(2)]
    ranks.together(lambda rank: members[rank].checkpointer.synchronize(10, (0.1, 0.25)[rank]))
    assert [member.checkpointer.sync_step for member in members] == [15, 15]
    assert checkpoints.latest(folder) is None


def test_each_rank_goes_on_with_its_own_values_and_clock_and_the_common_values(folder):
    ranks = Ranks(2)
    members = [Rank(folder, rank, ranks, every_s=0) for rank in range(2)]
    ranks.together(lambda rank: members[rank].log.start(spec={}))
    for rank, member in enumerate(members):
        member.seeds.assign(np.array([10 + rank], np.float32))
    members[0].weights.assign(np.array([5, 6], np.float32))
    members[1].log._start -= 100  # it began earlier
    ranks.together(lambda rank: members[rank].checkpointer.synchronize(2, 0.1))
    ranks = Ranks(2)
    again = [Rank(folder, rank, ranks) for rank in range(2)]
    assert [member.checkpointer.resume() for member in again] == [2, 2]
    assert [member.weights.value.tolist() for member in again] == [[5, 6], [5, 6]]
    assert [member.seeds.value.tolist() for member in again] == [[10], [11]]
    times = [[e["t_s"] for e in event_log.read(member.path) if "t_s" in e] for member in again]
    assert times[0][-1] < 50 < 100 < times[1][-1]
    assert times == [sorted(each) for each in times]


def test_every_copy_of_a_variable_is_kept(folder):
    one = Rank(folder, every_s=0, more=[Variable(9)])
    one.checkpointer.synchronize(1, 0.1)
    second = Variable(0)
    again = Rank(folder, more=[second])
    assert again.checkpointer.resume() == 1
    assert [copy.value.tolist() for copy in (again.seeds, second)] == [[0], [9]]


def test_a_model_that_changed_is_named(folder):
    alone(folder, every_s=0).checkpointer.synchronize(1, 0.1)
    other_shape, other_name = Rank(folder), Rank(folder)
    other_shape.weights.assign(np.zeros(3, np.float32))
    replicated = other_name.checkpointer._replicated
    replicated["bias"] = replicated.pop("weights")
    for again, said in ((other_shape, "weights of shape (3,)"), (other_name, "bias of shape (2,)")):
        with pytest.raises(Error) as error:
            again.checkpointer.resume()
        assert str(error.value) == (
            f"{folder}: the checkpoint has no variable {said}: the model has changed; delete the "
            "folder to begin anew"
        )


def test_a_run_that_is_done_leaves_no_checkpoint_whichever_rank_is_first(folder):
    ranks = Ranks(2)
    members = [Rank(folder, rank, ranks, every_s=0) for rank in range(2)]
    ranks.together(lambda rank: members[rank].checkpointer.synchronize(2, 0.1))
    members[1].checkpointer.finish()
    assert folder.exists()
    members[0].checkpointer.finish()
    assert not folder.exists()
