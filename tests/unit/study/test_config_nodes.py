"""config: runs that name the node on which they are trained."""

import pytest

from support.studies.made_studies import BLOCK, refused, study

SHORT = BLOCK | {"steps": 5}


def test_a_list_of_nodes_as_slurm_writes_it_is_one_run_a_node():
    runs = study(SHORT | {"node": ["gpu[08-10]", "login"]}).runs
    assert sorted(run.node for run in runs) == ["gpu08", "gpu09", "gpu10", "login"]
    assert len({run.id for run in runs}) == 4
    assert study(SHORT).runs[0].node is None


def test_some_of_the_nodes_can_be_excluded():
    runs = study(SHORT | {"node": "n[1-3]", "exclude": [{"node": "n2"}]}).runs
    assert sorted(run.node for run in runs) == ["n1", "n3"]


def test_the_nodes_of_a_run_on_several_are_one_text_and_one_run_however_they_are_written():
    pairs = SHORT | {"strategy": "horovod", "launcher": "srun", "nodes": 2}
    (one,) = study(pairs | {"node": "n[1-2]"}).runs
    (same,) = study(pairs | {"node": "n[2,1]"}).runs
    assert (one.node, one.nodes, one.id) == ("n[1-2]", 2, same.id)
    both = study(pairs | {"node": ["n[1-2]", "n[3,5]"]}).runs
    assert sorted(run.node for run in both) == ["n[1-2]", "n[3,5]"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node": "n[1-3"}, "node: expected a list of nodes as in n[1-3,5], found 'n[1-3'"),
        ({"node": ["n[1-3]", "n2"]}, "node: expected each node once, found twice: n2"),
        ({"node": "n1", "nodes": 2, "strategy": "horovod"}, "n1 is one node, and the run has 2"),
        (
            {"node": "n[1-3]", "nodes": 2, "strategy": "horovod", "launcher": "srun"},
            "n[1-3] is 3 nodes, and the run has 2: name as many as nodes says",
        ),
        ({"node": "n1; reboot"}, "node: expected"),
        ({"node": "--help"}, "node: expected"),
    ],
    ids=["open bracket", "twice", "several nodes", "three", "shell", "option"],
)
def test_what_names_no_node_is_refused(changes, words):
    assert words in refused(SHORT | changes)
