"""fingerprints: what they depend on, and where runs of different ones are flagged."""

import copy
import json

import pytest

from dlbench.analysis import campaigns
from dlbench.common.files import json_digest
from dlbench.log import event_log
from dlbench.machine import facts, fingerprints, limits
from dlbench.records import costs, judgement, parse_run, run_record
from dlbench.results import collect_runs
from dlbench.study import config
from dlbench.tables import parquet_files, table_columns
from support.runs.made_runs import SETTINGS

MACHINE = {
    "hardware": {
        "cpu": {"model": "Xeon", "sockets": 2, "cores": 64, "threads": 128, "governors": None},
        "memory": {"gib": 512},
        "gpus": {"driver": "550.54.15", "cuda_driver": "12.4", "kinds": [{"name": "H100"}]},
        "infiniband": [],
    },
    "software": {
        "os": "Debian 12",
        "kernel": "6.1",
        "glibc": "2.36",
        "packages_sha256": None,
        "origin": {
            "module": {"CUDA": "12.1"}, "modulefiles": "", "spack": {"zlib": "1-a"},
            "EESSI_VERSION": "2023.06", "EBROOTCUDA": "/apps/CUDA/12.1",
        },
    },
    "limits": {"cpus": 8, "memory_bytes": "unlimited"},
    "libraries": {"mpi": "Open MPI v4.1.8"},
    "variables": {"OMP_NUM_THREADS": "4"},
    "present": {"host": "node1", "cpus": [0, 1], "gpus": []},
    "unknown": {},
    "gathered_s": 0.05,
}  # fmt: skip


def changed(**parts):
    """MACHINE with some values of some parts changed: hardware_gpus={"driver": ...}"""
    found = copy.deepcopy(MACHINE)
    for path, values in parts.items():
        place = found
        for name in path.split("_"):
            place = place[name]
        place |= values
    return found


def known(*machines):
    """The provenance of a record, as it is read back; each machine is that of one rank."""
    return json.loads(json.dumps(fingerprints.provenance([[m] for m in machines])))


@pytest.fixture
def study(project, request):
    """A function that makes a study, in a folder of its own."""
    return lambda **matrix: config.study(
        SETTINGS | {"matrix": [SETTINGS["matrix"][0] | {"batch_per_device": 8} | matrix]}
    )


def finished(run, *machines, **launch):
    log = event_log.EventLog(run_record.folder(run.id) / "train.jsonl")
    log.write("launch", t_utc=event_log.utc_now(), made_from=judgement.made_from(run), **launch)
    for said in machines:
        log.write("machine", **said)
    log.start(spec=run.values(), devices=["CPU"] * run.devices, total_steps=2, host="node1")
    for step in (1, 2):
        log.step(step, step * 0.5, 0.5, 2.0, 0.01, False, 1)
    log.write(
        "run_end", t_s=1.0, t_utc=event_log.utc_now(), status="ok", message="", weights_sha256=["0"]
    )
    log.close()
    place = run_record.folder(run.id)
    parse_run.parse(run, place / "train.jsonl", place / "run.json")


def collected(made, name="runs"):
    collect_runs.collect(made, "cpu", "tables")
    columns = getattr(table_columns, name.upper())
    return parquet_files.read(f"tables/{name}.parquet", columns).to_pylist()


def test_a_fingerprint_changes_with_the_driver_and_not_with_process_host_or_moment():
    here = fingerprints.columns(known(MACHINE))
    elsewhere = changed(present={"host": "node2", "cpus": [5], "memory_available_bytes": 1})
    assert fingerprints.columns(known(elsewhere | {"gathered_s": 9})) == here
    driver = fingerprints.columns(known(changed(hardware_gpus={"driver": "560.35"})))
    assert driver["hardware_sha256"] != here["hardware_sha256"]
    assert driver["software_sha256"] == here["software_sha256"]
    kernel = fingerprints.columns(known(changed(software={"kernel": "6.2"})))
    assert kernel["software_sha256"] != here["software_sha256"]


def test_this_machine_has_the_same_fingerprint_twice():
    first, second = (fingerprints.columns(known(facts.gather())) for _ in range(2))
    assert first == second and all(first[name] for name in fingerprints.COLUMNS)


def test_equal_nodes_have_the_fingerprint_of_one_and_others_that_of_their_set():
    old = changed(hardware_gpus={"driver": "535"})
    one = fingerprints.columns(known(MACHINE))
    assert fingerprints.columns(known(MACHINE, changed(present={"host": "node2"}))) == one
    both = fingerprints.columns(known(MACHINE, old))
    assert both["hardware_sha256"] not in (one["hardware_sha256"], None)
    assert fingerprints.columns(known(old, MACHINE)) == both
    assert both["software_sha256"] == one["software_sha256"]


def test_unlike_nodes_of_one_run_are_named_with_what_differs():
    other = changed(hardware_cpu={"cores": 32}) | {"present": {"host": "node2", "cpus": [0]}}
    other["present"]["gpus"] = []
    said = fingerprints.unlike_nodes(known(MACHINE, MACHINE, other))
    assert said == "it ran on unlike nodes: node2 has hardware cpu cores 32, not 64 as node1"
    like = changed() | {"present": other["present"]}
    assert fingerprints.unlike_nodes(known(MACHINE, like)) == ""
    assert fingerprints.unlike_nodes({}) == ""


def test_a_record_keeps_equal_facts_once_and_each_ranks_host_and_digests():
    found = known(MACHINE, changed(present={"host": "node2"}), changed(software={"kernel": "5"}))
    assert (len(found["hardware"]), len(found["software"])) == (1, 2)
    assert [rank["host"] for rank in found["ranks"]] == ["node1", "node2", "node1"]
    assert len({rank["software_sha256"] for rank in found["ranks"]}) == 2
    assert found["limits"] == MACHINE["limits"]
    for part in ("hardware", "software"):
        assert all(json_digest(facts) == name for name, facts in found[part].items())


def test_records_of_before_have_no_fingerprint_and_differ_from_nothing(study):
    assert fingerprints.provenance([[], []]) == {}
    assert set(fingerprints.columns({}).values()) == {None}
    made = study()
    first, second = made.runs
    finished(first)
    finished(second, MACHINE)
    rows = collected(made)
    assert [row["repeats_differ"] for row in rows] == [None, None]
    assert sorted(row["hardware_sha256"] is None for row in rows) == [False, True]
    assert judgement.state(first)[0] == judgement.State.CURRENT


def test_a_tables_fingerprint_is_that_of_the_record_and_of_the_campaign(study):
    made = study()
    for run in made.runs:
        finished(run, MACHINE)
    expected = fingerprints.columns(known(MACHINE))
    assert expected["software_origin"] == "EESSI_VERSION 2023.06, module CUDA 12.1, spack zlib 1-a"
    for row in collected(made):
        assert {name: row[name] for name in expected} == expected
    for run in campaigns.read("results").runs:
        assert {name: run.facts[name] for name in expected} == expected


def test_repeats_that_differ_are_named_with_what_differs(study, capsys):
    made = study()
    first, second = sorted(made.runs, key=lambda run: run.repeat)
    finished(first, MACHINE)
    others = {"hardware_gpus": {"driver": "560.35"}, "software_origin_module": {"CUDA": "12.4"}}
    finished(second, changed(**others, variables={"OMP_NUM_THREADS": 2}))
    rows = {row["run_id"]: row for row in collected(made)}
    words = (
        "hardware gpus driver 560.35, not 550.54.15; software origin module CUDA 12.4, not 12.1; "
        "variables OMP_NUM_THREADS 2, not 4"
    )
    assert rows[second.id]["repeats_differ"] == words
    assert rows[first.id]["repeats_differ"] is None
    assert words in capsys.readouterr().err
    coverage = {row["run_id"]: row["reason"] for row in collected(made, "coverage")}
    assert coverage == {first.id: "", second.id: f"unlike its first repeat: {words}"}


def test_what_each_process_has_of_its_own_is_no_difference_and_many_differences_are_counted():
    own = {"CUDA_VISIBLE_DEVICES": "3", "HOROVOD_RANK": "1", "OMPI_MCA_ess_base_jobid": "77"}
    other = known(changed(variables=own, present={"cpus": [7]}))
    facts = fingerprints.comparable(known(MACHINE)), fingerprints.comparable(other)
    assert fingerprints.differences(*facts) == ""
    one, other = ({"limits": dict.fromkeys("abcdef", value)} for value in (1, 2))
    assert fingerprints.differences(one, other).endswith("limits d 2, not 1 and 2 more")


def test_packages_that_differ_are_named_where_their_lists_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "PACKAGES", tmp_path)
    lists = ["keras==3.8", "numpy==2.0.1"], ["keras==3.8", "numpy==2.0.2", "ucx==1"]
    one, other = (
        fingerprints.comparable(known(changed(software={"packages_sha256": name})))
        for name in [facts.keep_list(lines, tmp_path) for lines in lists]
    )
    said = fingerprints.differences(one, other, fingerprints.read_packages)
    assert said == "package numpy 2.0.2, not 2.0.1; package ucx 1, not missing"
    for path in tmp_path.iterdir():
        path.write_text("numpy==9\n")  # not what its name says
    said = fingerprints.differences(one, other, fingerprints.read_packages)
    assert said == "software packages differ (a list of them is missing)"


def test_a_speedup_over_a_base_of_other_hardware_is_flagged(study):
    made = study(strategy="mirrored", devices_per_node=[1, 2])
    for run in made.runs:
        finished(run, changed(hardware_gpus={"driver": "560"}) if run.devices == 2 else MACHINE)
    one, two = collected(made, "speedups")
    assert (one["base_mismatch"], two["base_mismatch"]) == ("", "hardware_sha256")


def test_limits_that_a_container_hides_are_those_of_who_started_it(study):
    (run, *_) = study().runs
    hidden = {"cpus": 1, "group_cpus": None, "cpu_time_cores": None, "memory_bytes": None}
    unknown = {f"limits.{name}": "hidden" for name in limits.OF_GROUPS} | {"cpu.boost": "x"}
    outside = {"cpus": 8, "group_cpus": 8, "cpu_time_cores": None, "memory_bytes": "unlimited"}
    finished(run, MACHINE | {"limits": hidden, "unknown": unknown}, limits=outside)
    found = run_record.read(run_record.folder(run.id) / "run.json")["provenance"]
    assert found["limits"] == outside | {"cpus": 1}
    assert found["unknown"] == {"limits.cpu_time_cores": "hidden", "cpu.boost": "x"}


@pytest.mark.parametrize("first", [("begin", "machine"), ("machine", "begin")])
def test_progress_is_read_from_logs_of_ours_and_of_other_trainers(tmp_path, first):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    log.write("launch", t_utc=event_log.utc_now())
    for event in first:
        log.write(event, **MACHINE if event == "machine" else {"t_utc": event_log.utc_now()})
    spec = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}
    log.start(spec=spec, total_steps=9)
    log.step(1, 0.5, 0.5, 2.0, 0.01, False, 1)
    log.close()
    assert costs.describe(tmp_path / "train.jsonl") == "step 1/9, loss 2, 16 items/s"


def test_a_run_that_went_on_elsewhere_has_the_facts_of_both_parts(study):
    (run, *_) = study().runs
    finished(run, MACHINE, changed(hardware_gpus={"driver": "560"}, present={"host": "node2"}))
    found = run_record.read(run_record.folder(run.id) / "run.json")["provenance"]
    assert [rank["host"] for rank in found["ranks"]] == ["node1", "node2"]
    assert len(found["hardware"]) == 2
