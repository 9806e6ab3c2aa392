"""Tables of studies that were never run, with the schemas of real ones and plausible numbers.

Every study of CASES is an edge case of figures; `write` puts one into a folder, from which
`Tables` reads it as figures do.
"""

import csv
import itertools
import json
import zlib
from types import SimpleNamespace

import numpy as np
import pandas as pd

from dlbench.analysis import drift, estimates, nodes, published_numbers, scaling_series
from dlbench.analysis.frames import Tables
from dlbench.common import plugins
from dlbench.report import build_report
from dlbench.results import published_beside_own, run_rows
from dlbench.tables import parquet_files, table_columns
from support.comparisons.judged import family
from support.results import made_run_tables, made_use

ROW = {
    "study": "made", "site": "here", "framework": "tensorflow", "framework_version": "2.21.0",
    "model": "resnet50", "dataset": "synthetic", "precision": "float32", "mode": "train",
    "strategy": "mirrored", "strategy_options": "", "launcher": "none", "runtime": "bare",
    "runtime_options": "", "environment": "train", "optimizer": "sgd",
    "learning_rate_scaling": "none", "device_kind": "gpu", "device_model": "A100",
    "status": "ok", "timing_source": "dlbench", "xla": False, "compile": False,
    "deterministic": False, "nodes": 1,
    "threads_per_device": 1, "copies_per_node": 1, "seed": 1, "batch_per_device": 64,
    "evaluate": "auto", "cache": "auto", "augment": True, "steps": 90, "warmup_steps": 10,
    "steps_per_sync": None,
    "learning_rate": 0.01, "learning_rate_batch": 256, "learning_rate_warmup_steps": 0,
    "steps_measured": 90, "burn_in_steps": 10,
}  # fmt: skip
MADE = SimpleNamespace(name="made", equivalence_margin=0.01)
SPEED = {"resnet50": 400.0, "lenet5": 9000.0, "vgg16": 170.0, "alexnet": 2500.0}
SHAPES = {"lenet5": "32x32x1"} | dict.fromkeys(("resnet50", "vgg16", "alexnet"), "224x224x3")
SUMMARY = ("images_per_second", "step_time_median_s", "step_time_p95_s", "duration_s", "wall_s",
           "goodput")  # fmt: skip
ENERGY = ("energy_j", "energy_per_image_j")


def run(devices=1, repeat=1, scale=1.0, **changes):
    """A row of the runs table; the throughput is drawn at random, always the same."""
    row = ROW | {"devices": devices, "devices_per_node": devices, "repeat": repeat} | changes
    row.setdefault("global_batch", row["batch_per_device"] * devices)
    text = "-".join(str(row[name]) for name in sorted(row))
    row["run_id"] = f"made-{zlib.crc32(text.encode()):08x}"
    row.setdefault("item_shape", SHAPES.get(row["model"]))
    if row["status"] in ("ok", "unstable"):
        row = _measured(row, scale) | changes
    else:
        row |= {"message": "the devices ran out of memory", "steps_measured": 0}
    return row


def _measured(row, scale):
    chance = np.random.default_rng(int(row["run_id"][5:], 16))
    devices, batch = row["devices"], row["batch_per_device"]
    speed = SPEED.get(row["model"], 800.0) * (0.93 if row["dataset"] != "synthetic" else 1)
    speed *= {"forward": 3.2, "forward_backward": 1.06}.get(row["mode"], 1)
    speed *= {"horovod": 1.04}.get(row["strategy"], 1) * {"float16": 2.1}.get(row["precision"], 1)
    speed *= devices / (1 + 0.03 * (devices - 1)) * batch / (batch + 14)
    rate = float(scale * speed * np.exp(chance.normal(0, 0.012)))
    step_s = devices * batch / rate
    steps = row["steps_measured"] + row["burn_in_steps"]
    account = made_run_tables.account(row, step_s, steps)
    wall_s = sum(account.values())
    of_mean = {"mean": 1, "sd": 0.02, "median": 0.985, "p95": 1.06, "mad": 0.01}
    return (
        row
        | made_use.of_device(row, rate)
        | {"wall_s": wall_s, "goodput": (account["steps"] + account["warm_up"]) / wall_s}
        | made_use.of_memory(row)
        | {"images_per_second": rate}
        | {f"step_time_{name}_s": factor * step_s for name, factor in of_mean.items()}
        | {"duration_s": steps * step_s + 4, "final_loss": 0.4}
        | {"start_s": 0.4, "import_s": 3.0, "first_batch_s": 4.0}
    )


def study(repeats=3, **values):
    """All combinations of lists, `repeats` times each."""
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    return [
        run(repeat=repeat, **dict(zip(values, chosen, strict=True)))
        for chosen in itertools.product(*lists)
        for repeat in range(1, repeats + 1)
    ]


def learning(**values):
    """Runs that train for epochs and are evaluated, with energy."""
    rows = study(epochs=[20], dataset="digits", model="lenet5", **values)
    for row in rows:
        if row["status"] in ("ok", "unstable"):
            chance = np.random.default_rng(int(row["run_id"][5:], 16))
            row["top1"] = 0.975 - 0.002 * min(row["devices"], 16) + chance.normal(0, 0.002)
            row["top5"] = 0.999
    return rows


def with_energy(rows, watts=250.0):
    made = []
    for row in rows:
        if "duration_s" in row:
            energy = watts * row["devices"] * row["duration_s"]
            items = row["global_batch"] * (row["steps_measured"] + row["burn_in_steps"])
            row = row | {"energy_j": energy, "energy_per_image_j": energy / items}
        made.append(row)
    return made


def failing(rows, chosen, status="oom"):
    lacking = {name for name in table_columns.RUNS.names if name.startswith("step_time")}
    lacking |= {*SUMMARY, *made_use.USE, *made_use.MEMORY, "top1", "top5", *ENERGY}
    end = {"status": status, "message": "it failed", "steps_measured": 0}
    return [
        {k: v for k, v in row.items() if k not in lacking} | end if chosen(row) else row
        for row in rows
    ]


def usual():
    """A study for every figure, with a few failures."""
    scaling = study(devices=[1, 2, 4, 8, 16], strategy=["mirrored", "horovod"])
    real = study(devices=[1, 4], dataset="imagenet", model=["resnet50", "alexnet"])
    partner = study(devices=[1, 4], model="alexnet")
    batches = study(
        batch_per_device=[16, 32, 64, 128, 256],
        model=["vgg16", "alexnet"],
        mode=["forward", "forward_backward"],
        precision=["float32", "float16"],
        strategy="single",
    )

    def is_large(row):
        of_vgg = row["batch_per_device"] == 256 and row["model"] == "vgg16"
        return of_vgg and (row["precision"] == "float32" or row["repeat"] == 1)

    def is_mixed(row):
        return row["strategy"] == "horovod" and row["devices"] == 16

    rows = scaling + real + partner + failing(batches, is_large) + learning(devices=[1, 2, 4])
    containers = study(runtime=["apptainer", "udocker"], repeats=5) + study(repeats=5)[3:]
    return with_energy(failing(rows + containers[:-2], is_mixed, "timeout"))


def sessions(lengths=(6, 2, 3), factors=(1.0, 0.96, 1.05), devices=(1, 2)):
    """A study that grew: conditions of several sessions, each after the first with sentinels.

    Args:
        lengths: conditions that each session adds. factors: how fast the machine is in each.
    """
    chance, rows, begin = np.random.default_rng(1), [], pd.Timestamp("2026-11-02T08:00Z")
    for number, (count, factor) in enumerate(zip(lengths, factors, strict=True)):
        session = f"{begin:%Y%m%dT%H%M%SZ}-00000{number}"
        new = [
            {"batch_per_device": 64 * (number + 1), "learning_rate": 0.01 * (i + 1)}
            for i in range(count)
        ]
        old = [{"batch_per_device": 64, "learning_rate": 0.01, "sentinel": number}] * bool(number)
        made = [
            run(devices=n, repeat=repeat, session=session, scale=factor, **values)
            for repeat in (1, 2, 3)
            for n in devices
            for values in chance.permutation(np.array([*new, *old], dtype=object))
        ]
        for row in made:
            row["started_at"], row["duration_s"] = begin.to_pydatetime(), 40.0
            row["others_cpu_cores"] = float(chance.exponential(0.03)) + (number == 2)
            begin += pd.Timedelta(seconds=55)
        rows += made
        begin += pd.Timedelta(hours=3 + 40 * number)
    return rows


CASES = {
    "nothing": lambda: [],
    "one run": lambda: study(repeats=1),
    "one run for epochs": lambda: learning(repeats=1, devices=1),
    "one repeat": lambda: study(repeats=1, devices=[1, 2, 4], batch_per_device=[16, 64])
    + learning(repeats=1, devices=[1, 2]),
    "all failed": lambda: failing(usual(), lambda row: True),
    "all skipped": lambda: failing(usual(), lambda row: True, "skipped"),
    "some failed": usual,
    "one device count": lambda: study(devices=4, batch_per_device=[16, 64])
    + learning(devices=[4]),
    "12 series": lambda: study(
        devices=[1, 2, 4, 8, 16], batch_per_device=[32, 64, 128], xla=[False, True],
        precision=["float32", "float16"],
    ) + learning(devices=[1, 2, 4], optimizer=["sgd", "adam"], learning_rate=[0.1, 0.2, 0.3]),
    "40 series": lambda: study(
        devices=[1, 2, 4, 8, 16], batch_per_device=[16, 32, 64, 128], xla=[False, True],
        precision=["float32", "float16", "bfloat16", "tf32", "float64"], repeats=1,
    ) + learning(devices=[1, 2, 4], optimizer=["sgd", "adam"],
                 learning_rate=[i / 20 for i in range(1, 21)], repeats=1),
    "huge numbers": lambda: with_energy(study(
        devices=[1, 2, 4, 8, 16], scale=1e9, batch_per_device=[16, 10**6])
        + learning(devices=[1, 2048], scale=1e8)),
    "tiny numbers": lambda: with_energy(study(
        devices=[1, 2, 4, 8, 16], scale=1e-7, batch_per_device=[1, 2])
        + learning(devices=[1, 2], scale=1e-6), 1e-5),
    "missing base": lambda: study(devices=[2, 4, 8], strategy="horovod", batch_per_device=[16, 64])
    + study(dataset="imagenet", model="alexnet") + learning(devices=[2, 4]),
    "sessions": sessions,
    "20 sessions": lambda: sessions([1] * 20, 1 + 0.02 * np.sin(range(20)), devices=[1]),
    "published": lambda: study(devices=[1, 2, 4, 8, 16], batch_per_device=[16, 64])
    + study(devices=[1, 4, 16], batch_per_device=[16, 64], repeats=1, site="paper",
            timing_source="published", device_model="K80", scale=0.1),
}  # fmt: skip


def write(folder, rows, steps_each=100):
    """Write all tables of these runs, and each run's steps and samples. Returns `Tables`.

    Args:
        steps_each: how many; 0 for no evaluations and no files of a run.
    """
    repeated = [row for row in rows if row.get("sentinel")]
    rows = [row for row in rows if not row.get("sentinel")]
    apart = [row | {"apart": "sentinel"} for row in repeated]
    complete = [dict.fromkeys(table_columns.RUNS.names) | row for row in rows]
    evals = [event for row in rows for event in made_run_tables.evals(row)] if steps_each else []
    for name, content, schema in (
        ("runs", [*filter(run_rows.is_result, complete), *apart], table_columns.RUNS),
        ("evals", evals, table_columns.EVALS),
        ("comparisons", _comparisons(rows), table_columns.COMPARISONS),
        ("accounts", list(made_run_tables.accounts(rows)), table_columns.ACCOUNTS),
        ("coverage", _coverage(rows), table_columns.COVERAGE),
        ("speedups", scaling_series.speedup_rows(MADE, complete, repeated), table_columns.SPEEDUPS),
        ("published", _published(folder, complete), table_columns.PUBLISHED),
        ("drift", drift.rows(MADE, complete, repeated), table_columns.DRIFT),
        ("nodes", nodes.rows(MADE, complete), table_columns.NODES),
        ("metrics", [m for row in rows for m in row.get("metrics", ())], table_columns.METRICS),
    ):
        content = [{k: v for k, v in row.items() if k in schema.names} for row in content]
        parquet_files.write(folder / f"{name}.parquet", content, schema)
    for row in rows if steps_each else ():
        place = folder / "runs" / row["run_id"]
        parquet_files.write(
            place / "steps.parquet", made_run_tables.steps(row, steps_each), table_columns.STEPS
        )
        parquet_files.write(
            place / "samples.parquet", made_run_tables.samples(row), table_columns.SAMPLES
        )
    return Tables(folder, folder / "runs")


def write_report(folder, shown, coverage, figures=("scaling", "coverage")):
    """Draw some figures of tables that `write` wrote, and write their report. Returns its path.

    Args:
        coverage: the rows that the table `coverage` is to have.
    """
    parquet_files.write(folder / "coverage.parquet", coverage, table_columns.COVERAGE)
    for name in figures:
        plugins.load("figures", name).draw(shown, folder / "figures" / name)
    found = build_report.read(folder, folder / "runs", folder / "figures", figures)
    page = folder / "report.html"
    page.write_text(build_report.html_page(found), encoding="utf-8")
    return page


def plain(frame):
    """The rows of a table that was read, as `tables.write` takes them."""
    rows = frame.to_dict("records")
    return [{k: None if v != v else v for k, v in row.items()} for row in rows]


def _published(folder, rows):
    """Throughputs and speedups of the runs that were published, with our own beside them."""
    found = [row for row in rows if row["timing_source"] == published_beside_own.PUBLISHED]
    path = folder / "paper" / "references.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, published_numbers.COLUMNS)
        lines.writeheader()
        for row in found:
            first = f"b{row['batch_per_device']}"
            point = {name: row[name] for name in published_numbers.SETTINGS}
            point |= {"point": f"{first}-{row['devices']}", "quality": "printed"}
            point |= {"source": row.get("source") or "P 1"}
            rate = {"metric": "images_per_second", "value": f"{row['images_per_second']:.1f}"}
            lines.writerow(point | rate)
            if row["devices"] > 1:
                printed = row.get("printed_speedup") or row["devices"] - 0.5
                base = {"metric": "speedup", "base": f"{first}-1", "value": printed}
                lines.writerow(point | base)
    match = ("model", "dataset", "devices", "batch_per_device")
    references = [{"path": path, "match": match}] if found else []
    return published_beside_own.numbers(SimpleNamespace(name="made", references=references), rows)


def _coverage(rows):
    made = [
        {"run_id": row["run_id"], "status": row["status"], "reason": row.get("message", "")}
        | {"combination": f"{row['model']} {row['dataset']}, {row['devices']} devices"}
        for row in rows
    ]
    left_out = {"model": "vgg16", "dataset": "imagenet", "batch_per_device": 512, "steps": 100}
    excluded = {"combination": json.dumps(left_out), "status": "excluded"}
    excluded["reason"] = "vgg16: a batch of 512 does not fit"
    return [*made, excluded] if made else []


def _comparisons(rows):
    """Containers against bare metal, all else as in ROW."""
    same = [name for name in ROW if name not in ("runtime", "status") and name != "study"]
    alike = [r for r in rows if r["devices"] == 1 and all(r[k] == ROW[k] for k in same)]
    sides = {}
    for row in alike:
        if row["status"] == "ok":
            sides.setdefault(row["runtime"], []).append(row)
    base = sides.pop("bare", [])
    sides = sides if base else {}
    own = [row["images_per_second"] for row in base]
    rates = ([row["images_per_second"] for row in runs] for runs in sides.values())
    judged = family([(rate, own) for rate in rates], 0.01)
    return [_compared(*one, base, found) for one, found in zip(sides.items(), judged, strict=True)]


def _compared(name, a, b, found):
    judged = {"verdict": found.verdict, "margin": found.margin, "base_flags": ""}
    made = {"study": "made", "settings_of": a[0]["run_id"], "n_a": len(a), "n_b": len(b)}
    made |= {"metric": "images_per_second", "unit": "items/s", "better": "higher"} | found.columns
    made |= judged | {"field": "runtime", "condition": name, "base": "bare"}
    for side, rows in (("a", a), ("b", b)):
        rates = [row["images_per_second"] for row in rows]
        made[f"value_{side}"] = estimates.mean(rates).value
        for phase in ("start", "import", "first_batch"):
            made[f"{phase}_{side}_s"] = rows[0][f"{phase}_s"]
    return made
