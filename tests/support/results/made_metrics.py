"""Runs whose programs name metrics, with plausible numbers."""

import numpy as np

from support.results import made_tables


def with_metrics(rows, **metrics):
    """Rows whose programs name metrics: {name: (value of a row, unit, better)}, 1 % of scatter."""
    chance, made = np.random.default_rng(7), []
    for row in rows:
        named = []
        for name, (value, unit, better) in metrics.items():
            if row["status"] in ("ok", "unstable"):
                number = float(value(row) * chance.normal(1, 0.01))
                one = {"run_id": row["run_id"], "name": name, "value": number}
                named.append(one | {"unit": unit, "better": better})
        made.append(row | {"metrics": named})
    return made


def named_metrics():
    """Runs on two GPUs and more, whose program names a bandwidth, a latency and a difference."""
    found = made_tables.study(
        devices=[2, 4, 8], strategy=["ddp", "fsdp"], framework="pytorch", repeats=4
    )
    found = made_tables.failing(
        found, lambda row: row["devices"] == 8 and row["strategy"] == "fsdp"
    )
    return with_metrics(
        found,
        busbw_gb_per_s=(lambda row: 230 - 9 * row["devices"], "GB/s", "higher"),
        latency_us=(lambda row: 12 + 3 * row["devices"] ** 1.5, "us", "lower"),
        skew_percent=(lambda row: row["devices"] - 4.0, "%", ""),
    )
