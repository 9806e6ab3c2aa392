"""checkpoints: files that are complete or absent, and of this run or refused."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dlbench import Error
from dlbench.trainer import checkpoints

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
    checkpoints.complete(folder, 11, 2.0, RUN)
    assert checkpoints.latest(folder, RUN).log(0) == b"again\n"


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
