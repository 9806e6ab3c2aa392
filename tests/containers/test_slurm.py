"""Apptainer inside the jobs of a real Slurm: by directive on one node, by command on two."""

import yaml

from support.campaigns.campaign import TRAINED
from support.machines.slurm_cluster import FACTS

RUN = {
    "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "warmup_steps": 1, "steps": 3,
    "runtime": "apptainer",
}  # fmt: skip
MATRIX = [
    {"name": "one node", **RUN},
    {"name": "two nodes", **RUN, "strategy": "horovod", "launcher": ["srun", "mpirun"], "nodes": 2},
    {"name": "TF_CONFIG", **RUN, "strategy": "multiworker", "launcher": "srun", "nodes": 2},
]


def test_containers_run_on_one_node_and_across_nodes_each_rank_inside(
    campaign, folder, slurm, tmp_path
):
    copy = campaign.copied(tmp_path / "project", **slurm.variables)
    (copy.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS}))
    copy.configure(images={"train": {"source": str(folder)}}, matrix=MATRIX, figures=[])
    copy.succeed("--profile", "profiles/slurm")
    records = copy.records().values()
    messages = [record["message"] for record in records]
    assert {record["status"] for record in records} <= set(TRAINED), messages
    ways = sorted(
        (
            record["spec"].get("launcher", "none"),
            record["provenance"]["container"]["start"],
            len(record["provenance"]["hosts"]),
            len(record["provenance"]["containment"]),
        )
        for record in records
    )
    assert ways == [
        ("mpirun", "command", 2, 2),
        ("none", "directive", 1, 1),
        ("srun", "command", 2, 2),
        ("srun", "command", 2, 2),
    ]
    assert all(all(record["provenance"]["containment"]) for record in records)
    assert len({record["provenance"]["container"]["digest"] for record in records}) == 1
