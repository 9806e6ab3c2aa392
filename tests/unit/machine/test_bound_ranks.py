"""bound_ranks: the bindings in a record, and their description."""

import json

from dlbench.log import event_log
from dlbench.machine import binding
from support.runs.parsed_runs import parsed, write

GPU = {"uuid": "GPU-1", "pci": "0000:1b:00.0", "numa_node": 0}


def start(cpus, far, node=0, host="n1", gpu=GPU, **more):
    return {
        "host": host,
        "cores": cpus,
        "binding": {
            **{"mode": "auto", "threads": len(cpus or range(4)), "numa_nodes": [node]},
            **{"gpus": [gpu], "far_cpus": far, "left_over_cpus": 0, **more},
        },
    }


def ranks(*starts):
    return binding.from_starts(starts)


def test_cores_numa_node_and_address_of_each_rank_are_named():
    other = {**GPU, "pci": "0000:43:00.0", "numa_node": None}
    known = ranks(start([0, 1, 8, 9], 0), start([2, 3, 4], 0, gpu=other, left_over_cpus=1))
    assert binding.describe_ranks(known) == (
        "rank 0: CPUs 0-1,8-9 at NUMA node 0, GPU 0000:1b:00.0 at NUMA node 0; "
        "rank 1: CPUs 2-4 at NUMA node 0, GPU 0000:43:00.0; 1 CPU of a node left over"
    )
    assert binding.describe_ranks(ranks(start(None, 0))).startswith("rank 0: not bound, 4 threads")
    assert binding.describe_ranks(ranks({"cores": [0]})) == ""


def test_ranks_with_far_cores_are_counted():
    said = binding.caveat(ranks(start([0, 1], 0), start([2, 3], 2, node=1)))
    assert said.startswith("1 of 2 ranks had cores far from their GPUs (rank 1: CPUs 2-3 at NUMA")


def test_half_of_the_cores_may_be_far_and_one_alone_may_have_the_whole_node():
    assert binding.caveat(ranks(start([0, 1], 1), start([2, 3], 1))) == ""
    assert binding.caveat(ranks(start(list(range(8)), 7))) == ""
    assert binding.caveat(ranks(start(list(range(8)), 8))) != ""
    assert binding.caveat(ranks(start([0, 1], None))) == ""
    assert binding.caveat(ranks(start(None, 4), start(None, 4))) == ""


def test_a_record_has_the_binding_of_its_rank(tmp_path):
    write(tmp_path, [1.0, 0.5, 0.5])
    path = tmp_path / "train.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    events[0] |= start([0, 1], 0)
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert next(event["event"] for event in event_log.read(path)) == "run_start"
    (kept,) = parsed(tmp_path)["provenance"]["bindings"]
    assert (kept["cpus"], kept["host"], kept["gpus"]) == ([0, 1], "n1", [GPU])
