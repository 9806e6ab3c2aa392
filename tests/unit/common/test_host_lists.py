"""networks: names of nodes become one list and come back; trainer/test_cluster.py has others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import networks

# Few prefixes and numbers, so that ranges, leading zeros and gaps come up.
NUMBERS = st.integers(0, 30).map(str) | st.integers(0, 120).map(lambda n: f"{n:03d}")
NAMES = st.builds(str.__add__, st.sampled_from(["n", "gpu-", "r1n", "9x.", "n0a"]), NUMBERS)
OTHERS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z")


@given(st.lists(NAMES | OTHERS))
def test_names_that_became_a_list_come_back_each_once(names):
    text = networks.compact_hosts(names)
    found = networks.expand_hosts(text)
    assert sorted(found) == sorted(set(names))
    assert networks.compact_hosts(reversed(found)) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n10", "n9", "n8"], "n[8-10]"),
        (["n09", "n10", "n12"], "n[09-10,12]"),
        (["n1", "n01"], "n[1,01]"),
        (["r1n2", "r1n1", "r2n1"], "r1n[1-2],r2n1"),
        (["17", "18"], "17,18"),
        (["n1.cluster.org", "n2.cluster.org"], "n1.cluster.org,n2.cluster.org"),
        (["n", "n1", "n2"], "n,n[1-2]"),
        ([f"gpu{n:03d}" for n in range(1, 501)], "gpu[001-500]"),
    ],
)
def test_a_list_is_as_short_as_slurms(names, text):
    assert networks.compact_hosts(names) == text


@pytest.mark.parametrize("name", ["", "n[1-2]", "n1,n2", "-x", "n 1", "n1\n"])
def test_what_is_no_name_of_a_node_is_refused(name):
    with pytest.raises(Error, match=re.escape(f"as in n1, found {name!r}")):
        networks.compact_hosts(["n1", name])
