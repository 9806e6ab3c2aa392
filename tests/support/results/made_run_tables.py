"""Tables of single runs that were never run: their steps, samples and evaluations."""

import numpy as np


def steps(row, count=100):
    """Steps of a run that add up to about its summary, with a few stalls."""
    if "step_time_median_s" not in row:
        return []
    chance = np.random.default_rng(int(row["run_id"][5:], 16))
    times = row["step_time_median_s"] * np.exp(chance.normal(0, 0.03, count))
    times[chance.random(count) < 0.01] *= 12
    times[0] *= 20
    loss = 0.15 + 2.2 * np.exp(-4 * np.arange(count) / count) * np.exp(
        chance.normal(0, 0.15, count)
    )
    return [
        {"run_id": row["run_id"], "rank": 0, "step": i + 1, "epoch": 1 + i * 20 // count}
        | {"t_s": float(t), "step_time_s": float(s), "loss": float(loss[i])}
        | {"learning_rate": 0.01, "warm_up": i < 10}
        for i, (t, s) in enumerate(zip(np.cumsum(times), times, strict=True))
    ]


def samples(row, count=60):
    """Utilisation of the process and of each of its GPUs, which wait for data now and then."""
    if "duration_s" not in row:
        return []
    chance = np.random.default_rng(int(row["run_id"][5:], 16))
    made = []
    for t_s in np.linspace(0, row["duration_s"], count):
        process = {"run_id": row["run_id"], "rank": 0, "t_s": float(t_s), "cpu_percent": 95.0}
        made.append(process)
        if row["device_kind"] == "gpu":
            waits = chance.random() < 0.1 or t_s < 0.1 * row["duration_s"]
            for gpu in range(row["devices"]):
                percent = float((20 if waits else 93) + chance.normal(0, 2))
                of_gpu = {"gpu": str(gpu), "power_w": 250.0, "utilisation_percent": percent}
                made.append(process | {"cpu_percent": None} | of_gpu)
    return made


def evals(row):
    """Held-out scores before training and after each epoch."""
    if "top1" not in row:
        return []
    chance = np.random.default_rng(int(row["run_id"][5:], 16))
    log = steps(row)
    return [
        {"run_id": row["run_id"], "epoch": epoch, "step": 5 * epoch, "split": "validation"}
        | {"t_s": log[max(0, 5 * epoch - 1)]["t_s"], "examples": 360}
        | {"loss": (0.25 + 2 * 0.75**epoch) * float(np.exp(chance.normal(0, 0.08)))}
        | {"top1": row["top1"] - 0.8 * 0.7**epoch}
        for epoch in range(0, 21, 2)
    ]


def account(row, step_s, steps):
    """Seconds of each part of a run, most of them the same for all."""
    measured_s = step_s * row["steps_measured"]
    data_s = 0.5 if row["dataset"] == "synthetic" else 2.0
    before = {"start": 0.4, "imports": 3.0, "data": data_s, "build": 1.2, "compile": 4.0}
    trained = {"warm_up": step_s * (steps - row["steps_measured"]), "steps": measured_s}
    evaluation = 0.12 * measured_s if row.get("epochs") else 0.0
    return before | trained | {"evaluation": evaluation, "shutdown": 0.6}


def accounts(rows):
    """The rows of the table of accounts, of runs that were measured."""
    for row in rows:
        if not row.get("wall_s"):
            continue
        steps = row["steps_measured"] + row["burn_in_steps"]
        for part, spent_s in account(row, row["step_time_mean_s"], steps).items():
            if spent_s:
                share = {"spent_s": spent_s, "share": spent_s / row["wall_s"]}
                yield {"study": row["study"], "run_id": row["run_id"], "part": part, **share}
