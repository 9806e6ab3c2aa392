"""The picture of docs/history.md: an invented history of a machine, drawn."""

import json
from pathlib import Path

import numpy as np

from dlbench.history import analyse_history, draw_history
from support.history import made_histories as made

# (model, batch): its throughput.
CONDITIONS = {("resnet50", 64): 1400, ("resnet50", 256): 2710, ("gpt2_small", 8): 312}
CONDITIONS |= {("vit_b16", 64): 880, ("lenet5", 512): 91_000}
WEEKS, NEW_FRAMEWORK, NEW_DRIVER, OUTLIER = 28, 9, 16, 20


def draw(place):
    """Draw it below a folder. Returns the path without its suffix."""
    place, chance = Path(place), np.random.default_rng(3)
    keys = {one: made.fields(one[0], batch_per_device=one[1]) for one in CONDITIONS}
    labels = {
        key: f"{model} synthetic batch {batch}, bfloat16, mirrored on 4 devices"
        for (model, batch), key in keys.items()
    }
    for week in range(WEEKS):
        facts = {"GPU driver": "560.35" if week >= NEW_DRIVER else "550.54"}
        facts |= {"framework pytorch": "2.15.0" if week >= NEW_FRAMEWORK else "2.14.1"}
        rates = {
            keys[one]: (rate * _factor(*one, week) * _noise(chance)).tolist()
            for one, rate in CONDITIONS.items()
        }
        made.add(place / "history", week, rates, labels=labels, facts=json.dumps(facts))
    analyse_history.write(analyse_history.analyse(place / "history", {}), place / "tables")
    (stem,) = draw_history.draw(place / "tables", place / "figures")
    return stem


def _factor(model, _, week):
    factor = 0.957 if week >= NEW_DRIVER else 1.0
    if model == "gpt2_small" and week >= NEW_FRAMEWORK:
        factor *= 1.06
    if model == "lenet5":
        factor *= {OUTLIER: 0.93, WEEKS - 1: 0.9}.get(week, 1.0)
    return factor


def _noise(chance):
    return np.exp(chance.normal(0, 0.003) + chance.normal(0, 0.006, 4))
