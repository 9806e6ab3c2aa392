"""Draw the pictures of docs/figures.md that have synthetic numbers.

    uv run python tests/support/project/page_figures.py [NAME ...]

`scaling` is of measured ones and is left as it is.
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "workflow_scripts")]

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

from dlbench.common import plugins  # noqa: E402
from dlbench.drawing import styles  # noqa: E402
from support.results import (  # noqa: E402
    made_baselines,
    made_explanations,
    made_metrics,
    made_tables,
)

PAGES = REPOSITORY / "docs" / "figures"
MEASURED = "scaling"
POINTS = 100  # dots an inch
COLOURS = 128  # so many that the faintest, as the zone of equivalence, keep their own


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name in plugins.names("figures") if name != MEASURED]
    parser.add_argument("name", nargs="*", help="all, if none is given")
    args = parser.parse_args()
    styles.FORMATS = ("png",)
    styles.STYLE["savefig.dpi"] = POINTS
    for name in args.name or names:
        draw(name, PAGES)


def draw(name, folder):
    with tempfile.TemporaryDirectory() as place:
        tables = made_tables.write(Path(place), rows(name))
        if name == "communication":
            made_baselines.write(Path(place), *exchanges())
        if name == "inside_a_step":
            made_explanations.write(Path(place), made_explanations.of_conditions())
        plugins.load("figures", name).draw(tables, Path(place, name))
        save(Path(place, name), folder / name)


def save(drawn, picture):
    """Keep a drawn figure as a small picture; both paths are without suffix."""
    with Image.open(drawn.with_suffix(".png")) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(picture.with_suffix(".png"), optimize=True)


def rows(name):
    """Runs that show the elements of a figure."""
    chosen = {"overhead": runtimes, "training_time": learning, "accuracy": learning,
              "account": learning,
              "drift": made_tables.sessions, "utilisation_of_peak": batches,
              "memory": memories, "nodes": screened,
              "inside_a_step": made_explanations.conditions, "metrics": made_metrics.named_metrics,
              "parameters": parallelism, "published": published}  # fmt: skip
    chosen |= dict.fromkeys(
        ("coverage", "energy", "energy_throughput", "real_vs_synthetic", "step_times",
         "utilisation"),
        scaling,
    )  # fmt: skip
    return chosen.get(name, made_tables.usual)()


def scaling():
    """Two models on one GPU to sixteen, with real items too, and a few failures."""
    found = made_tables.study(devices=[1, 2, 4, 8, 16], strategy=["mirrored", "horovod"])
    found += made_tables.study(devices=[1, 4], dataset="imagenet", model=["resnet50", "vgg16"])
    large = {"strategy": "horovod", "devices": 16}, {"model": "vgg16", "devices": 4, "repeat": 1}
    for values, status in zip(large, ("timeout", "oom"), strict=True):
        found = made_tables.failing(
            found, lambda row, values=values: values.items() <= row.items(), status
        )
    output = {"timeout": "stopped at time_limit_s, 600 s", "oom": "the device ran out of memory"}
    found = [row | {"message": output.get(row["status"], "")} for row in found]
    return made_tables.with_energy(found)


def parallelism():
    """Two models of another program by tensor parallelism and micro batch."""
    found = []
    for tensor, micro in itertools.product((1, 2, 4, 8), (1, 2, 4)):
        found += made_tables.study(
            model=["llama_8b", "mixture_8x7b"],
            item_shape="4096",
            devices=8,
            batch_per_device=micro,
            framework="pytorch",
            strategy="fsdp",
            precision="bfloat16",
            trainer_parameters=f"micro_batch={micro} tensor_parallel={tensor}",
            scale=0.08 / (1 + 0.03 * tensor**1.3),
        )
    few = "tensor_parallel=1"
    return made_tables.failing(
        found, lambda row: row["model"] == "mixture_8x7b" and few in row["trainer_parameters"]
    )


def published():
    """A paper's numbers beside one's own; one of its speedups does not follow from its rates."""
    layout = {"devices": [1, 4, 16], "batch_per_device": [16, 64]}
    own = made_tables.study(**layout)
    theirs = made_tables.study(
        **layout, repeats=1, site="paper", timing_source="published", scale=0.93, source="a paper"
    )
    rates = {(row["batch_per_device"], row["devices"]): row["images_per_second"] for row in theirs}
    for row in theirs:
        batch, devices = row["batch_per_device"], row["devices"]
        row["printed_speedup"] = round(rates[batch, devices] / rates[batch, 1], 2)
        if (batch, devices) == (64, 16):
            row["printed_speedup"] = 12.4
    return own + theirs


def exchanges():
    """Horovod and DistributedDataParallel on two to eight devices, and a device's own memory."""
    ddp = {"framework": "pytorch", "environment": "pytorch", "strategy": "ddp"}
    found = [made_baselines.device()]
    for devices, slower in ((2, 1.0), (4, 1.15), (8, 1.4)):
        found.append(made_baselines.exchange(devices, 5e-3, 2.4 / slower))
        found.append(
            made_baselines.exchange(devices, 1.5e-4 * slower, 3.1 / slower, launcher="local", **ddp)
        )
    return found


def runtimes():
    """Containers beside bare metal: one equivalent, one slower, one not decided by its runs."""
    found = made_tables.study(repeats=40) + made_tables.study(repeats=40, runtime="apptainer")
    found += made_tables.study(repeats=40, runtime="udocker", scale=0.96)
    found += made_tables.study(repeats=4, runtime="podman", scale=0.993)
    start_up = {"bare": (0.1, 2.9), "apptainer": (0.4, 3.4), "udocker": (0.7, 14.0)}
    for row in found:
        row["start_s"], row["import_s"] = start_up.get(row["runtime"], (0.5, 3.2))
    return found


def screened():
    """One condition on twelve nodes of a partition, five times: one is slow, one unsteady."""
    chance = np.random.default_rng(4)
    speeds = {"gpu07": (0.955, 0.004), "gpu03": (0.99, 0.012)}
    names = [f"gpu{number:02}" for number in range(1, 13)]
    return [
        made_tables.run(node=name, host=name, repeat=repeat)
        | {"images_per_second": 400 * chance.normal(*speeds.get(name, (1.0, 0.004)))}
        for name in names
        for repeat in range(1, 6)
    ]


def batches():
    """Three models in two precisions, with small and large batches, and one on a CPU."""
    found = made_tables.study(
        batch_per_device=[8, 32, 128],
        model=["resnet50", "vgg16", "alexnet"],
        precision=["float32", "bfloat16"],
        strategy="single",
        repeats=1,
    )
    on_cpu = {"model": "lenet5", "device_model": "a CPU", "device_kind": "cpu", "scale": 0.5}
    return found + made_tables.study(batch_per_device=[8, 32, 128], repeats=2, **on_cpu)


def memories():
    """A transformer and ResNet-50 on GPUs in three frameworks, and a model on a CPU."""
    frameworks = {"framework": ["tensorflow", "jax", "pytorch"], "strategy": "single"}
    frameworks |= {"precision": "bfloat16", "repeats": 2}
    text = {"model": "gpt2_small", "dataset": "bytes", **frameworks}
    found = made_tables.study(batch_per_device=[8, 16, 32, 64, 128], item_shape="1024", **text)
    found += made_tables.study(
        batch_per_device=8, item_shape=["256", "512", "2048", "4096"], **text
    )
    found += made_tables.study(batch_per_device=[64, 128, 256, 512, 1024, 2048], **frameworks)
    found = made_tables.failing(found, lambda row: row.get("memory_limit_bytes", 0) < most(row))
    on_cpu = {"model": "lenet5", "device_model": "a CPU", "device_kind": "cpu"}
    return found + made_tables.study(batch_per_device=[64, 256, 1024, 4096], **frameworks, **on_cpu)


def most(row):
    """The largest memory of a device in a row."""
    return row.get("peak_used_bytes_per_device", 0)


def learning():
    """Trainings on one device to eight, by two strategies: the same items, so fewer steps each."""
    return [
        row
        for devices in (1, 2, 4, 8)
        for row in made_tables.learning(
            devices=devices, strategy=["mirrored", "horovod"], steps_measured=40_000 // devices
        )
    ]


if __name__ == "__main__":
    main()
