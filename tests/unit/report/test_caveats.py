"""What a report says of where its numbers are from: machines, caveats, other people's rows."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench.machine import facts
from dlbench.records import run_record
from dlbench.report import build_report, sentences
from support.results import made_tables
from support.results.made_reports import column, made, table


def keep_record(folder, row, provenance):
    """The record of a run, which has its provenance and nothing else."""
    path = folder / "runs" / row["run_id"] / "run.json"
    path.parent.mkdir(parents=True)
    rest = {key: kind() for key, kind in run_record.KINDS.items() if not key.endswith("version")}
    run_record.write(path, rest | {"provenance": provenance}, [])


def test_the_machine_is_shown_as_the_records_of_its_runs_have_it(tmp_path):
    rows = [made_tables.run(repeat=repeat) for repeat in (1, 2)]
    hardware = facts.gather()["hardware"] | {
        "gpus": {"driver": "550.54", "cuda_driver": "12.4", "kinds": []},
        "infiniband": [{"rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}] * 2,
    }
    cpu = {"model": "EPYC", "sockets": 2, "cores": 128, "threads": 256}
    hardware["cpu"] |= cpu | {"governors": ["performance"]}
    software = {"os": "Debian 12", "kernel": "6.1"}
    known = {"hardware": {"a": hardware}, "software": {"b": software}}
    for row, provenance in zip(rows, (known, {"platform": "of before"}), strict=True):
        keep_record(tmp_path, row, provenance)
    shown = dict(made(tmp_path, rows).machine)
    assert shown["processor"] == [
        ("EPYC, 2 sockets, 128 cores, 256 threads, governor performance", 1)
    ]
    assert shown["GPU driver"] == [("550.54, CUDA 12.4", 1)]
    assert shown["network"] == [("200 Gb/sec (4X HDR) (InfiniBand)", 1)]
    assert shown["operating system"] == [("Debian 12", 1)]
    # Of a virtual machine, whose memory is not known, that at the time is shown.
    known["present"] = {"memory_bytes": 24_684_084 * 1024}
    for row, gib, expected in zip(rows, (512, None), ("512 GiB", "24 GiB"), strict=True):
        hardware["memory"] = {"gib": gib}
        row = row | {"run_id": f"with {gib}"}
        keep_record(tmp_path, row, known)
        assert build_report.recorded_facts(tmp_path / "runs" / row["run_id"])["memory"] == expected


def test_caveats_name_other_hardware_changed_software_and_repeats_that_differ(tmp_path):
    difference = "hardware gpus driver 560.35, not 550.54"
    rows = [
        made_tables.run(
            repeat=1, hardware_sha256="a" * 64, software_sha256="c" * 64, release="0.1.0+sha256.aa"
        ),
        made_tables.run(
            repeat=2, hardware_sha256="b" * 64, software_sha256="d" * 64, repeats_differ=difference
        ),
        made_tables.run(repeat=3, release="0.1.0+sha256.bb.changed"),
        made_tables.run(environment="train-b", software_sha256="e" * 64),
    ]
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert f"Runs are of 2 fingerprints of hardware: {'a' * 12}, {'b' * 12}." in caveats
    assert "2 runs: of environment train (bare), whose software changed between them." in caveats
    assert "train-b" not in caveats
    releases = "0.1.0+sha256.aa, 0.1.0+sha256.bb.changed"
    assert f"Runs are of 2 releases of dlbench: {releases}." in caveats
    assert "1 run: of files that differ from their commit or release" in caveats
    assert f"1 run: unlike the first repeat of their combination ({difference})." in caveats


def test_caveats_name_single_runs_borrowed_bases_and_other_versions(tmp_path):
    rows = made_tables.study(devices=[1, 2], repeats=1)
    rows[1]["framework_version"] = "2.22.0"
    rows.append(made_tables.run(repeat=9, status="unstable", batch_per_device=8))
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert "3 combinations: measured by a single run" in caveats
    assert "1 run: unstable" in caveats
    assert "Runs are of 2 versions: tensorflow 2.21.0, tensorflow 2.22.0." in caveats
    assert "point and base differ in framework_version" in caveats


def test_runs_that_other_processes_disturbed_are_no_part_of_those_that_stalled(tmp_path):
    words = "others used 0.08 of 2 cores"
    rows = [
        made_tables.run(repeat=i, status="unstable", disturbed=words if i < 3 else None)
        for i in (1, 2, 3)
    ]
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert (
        "2 runs: disturbed; no statement about speed that uses them is labelled shown (other "
        "processes used 0.08 of 2 cores)."
    ) in caveats
    assert "1 run: unstable, not disturbed; steps stalled, so" in caveats
    quota = [made_tables.run(repeat=i, quota_throttled_percent=p) for i, p in ((1, 4), (2, 35))]
    assert (
        "1 run: stopped by a quota of CPU time in up to 35 % of its periods; their rates are those "
        "of the quota."
    ) in made(tmp_path, quota).caveats


def test_a_report_says_which_runs_contradict_themselves_and_has_no_mean_of_them(tmp_path):
    reason = "images_per_second is 512, global_batch / step_time_mean_s is 64 / 1 s = 64"
    rows = [made_tables.run(repeat=1), made_tables.run(repeat=2, contradicts=reason)]
    report = made(tmp_path, rows)
    words = "1 run: numbers contradict one another, so that nothing is compared with them"
    assert f"{words} ({reason})." in report.caveats
    (rate,) = column(report, "images per second", of="results").values
    assert rate == pytest.approx(rows[0]["images_per_second"], rel=1e-3)


def test_what_frameworks_do_in_their_own_way_is_said_where_they_are_compared():
    row = {"field": "framework", "base": "tensorflow", "framework": "jax"}
    (sentence,) = sentences.caveats([], [], [row, row], [], [])
    assert sentence.startswith("Frameworks differ by design (docs/training.md): jax compiles ")
    assert "; tensorflow runs a graph of operations" in sentence
    alone = {"field": "strategy", "base": "single", "framework": "jax"}
    another = {"field": "framework", "base": "mxnet", "framework": "tensorflow"}
    assert sentences.caveats([], [], [alone, another], [], []) == []


def test_versions_are_named_in_which_compared_environments_differ(tmp_path):
    rows = []
    for environment, version in (("train", "2.18.1"), ("train-latest", "2.21.0"), ("old", "1.0")):
        rows.append(made_tables.run(environment=environment))
        known = {"python": "3.11.7", "tensorflow": version, "keras": "3.15.1"}
        keep_record(tmp_path, rows[-1], {"hardware": {}, "versions": known})
    compared = {"field": "environment", "base": "train", "environment": "train-latest"}
    recorded = [build_report.recorded_facts(tmp_path / "runs" / row["run_id"]) for row in rows]
    said = sentences.caveats(rows, [], [compared, compared], [], recorded)
    (sentence,) = (one for one in said if one.startswith("Environments"))
    assert sentence == "Environments differ in tensorflow: train 2.18.1; train-latest 2.21.0."
    others = sentences.caveats(rows, [], [compared | {"field": "strategy"}], [], recorded)
    assert others == [one for one in said if one != sentence]


def test_frameworks_that_loaded_other_versions_of_cuda_are_named_where_they_are_compared(tmp_path):
    rows, frameworks = [], {"tensorflow": "12.5", "jax": "12.9", "pytorch": "13.0"}
    for framework, version in frameworks.items():
        rows.append(made_tables.run(framework=framework, device_kind="gpu"))
        known = {"hardware": {}, "libraries": {"cudart": version, "cudnn": "9.10"}}
        keep_record(tmp_path, rows[-1], known)
    report = made(tmp_path, rows)
    on_cuda = [caveat for caveat in report.caveats if "CUDA" in caveat]
    assert on_cuda == []  # nobody compares them
    assert dict(report.machine)["CUDA runtime"] == [("12.5", 1), ("12.9", 1), ("13.0", 1)]
    row = {"field": "framework", "base": "tensorflow", "framework": "jax", "base_flags": ""}

    def on_cuda_of(versions):
        recorded = [{"CUDA runtime": version} for version in versions]
        return [w for w in sentences.caveats(rows, [], [row], [], recorded) if "CUDA" in w]

    assert on_cuda_of(frameworks.values()) == [
        "Frameworks have loaded different CUDA runtimes: jax 12.9; tensorflow 12.5."
    ]
    assert on_cuda_of(("12.9", "12.9", "13.0")) == []


def test_published_and_imported_rows_say_where_they_are_from(tmp_path):
    rows = made_tables.study(devices=[1, 2])
    published = {"timing_source": "published", "source": "a paper, p. 3"}
    rows += made_tables.study(devices=[1, 2], repeats=1, **published)
    rows += made_tables.study(devices=[4], timing_source="keras_csv", source="log.csv")
    rows += made_tables.study(devices=[8], repeats=1, timing_source="keras_csv", site="here")
    found = made(tmp_path, rows)
    assert "Measured on here" in found.lead and "Beside them: 3 imported runs and " in found.lead
    caveats = "\n".join(found.caveats)
    published = "2 rows: published, not measured here; no finding rests on them (a paper, p. 3)."
    assert published in caveats
    assert "3 runs: imported from logs of keras_csv (log.csv)." in caveats
    assert "1 run: timed by the program itself, in a log of keras_csv." in caveats
    assert set(column(found, "source").values) == {None, "a paper, p. 3", "log.csv"}
    assert column(found, "metric", "published").values
    assert all("published" not in finding.text for finding in found.findings)


def test_a_table_that_was_put_beside_the_others_is_shown_with_its_units(tmp_path):
    made_tables.write(tmp_path, made_tables.study(devices=[1, 2]), steps_each=0)
    speed = pa.field("speed", pa.float64(), metadata={"unit": "items/s", "description": "so fast"})
    schema = pa.schema([pa.field("who", pa.string()), speed])
    rows = [{"who": "A", "speed": 1.5}, {"who": "B", "speed": 2.5}]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "from_papers.parquet")
    found = build_report.read(tmp_path, tmp_path / "runs", tmp_path, ())
    assert table(found, "from_papers").heading == "From papers"
    shown = column(found, "speed", "from_papers")
    assert (shown.unit, shown.note, shown.values) == ("items/s", "so fast", [1.5, 2.5])
