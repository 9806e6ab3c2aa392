"""The baselines of one process or of several joined ones, from flags to a file of JSON.

- Of several devices: all-reduce over sizes, all-gather, reduce-scatter and point to point, by the
  strategy's own library.
- Of one: the product of matrices and the copy in memory (dlbench/trainer/calibration.py), copies
  from the host, reading a file, and the framework's reader of each dataset.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlbench.baselines import (
    all_reduce,
    collectives,
    file_reading,
    item_reading,
    measures,
    rounds,
)
from dlbench.common import flag_types, plugins
from dlbench.common.files import json_digest, write_json
from dlbench.trainer import calibration, containment, description, engine
from dlbench.trainer.strategy import Spec

CALIBRATIONS = 3
COPIED_BYTES = (1 << 12, 1 << 26)  # from the host: one that is all latency, and a long one
NO_COPIES = "the device computes in the host's memory: nothing is copied to it"


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """The flags of the program."""
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--spec", required=True, type=json.loads, help="all fields of a run, JSON")
    flags.add_argument("--site", default="", help="name of the machine, for the table")
    flags.add_argument("--output", required=True, type=Path, help="JSON, written by rank 0")
    flags.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    flags.add_argument(
        "--model", action="append", default=[], help="whose gradients are exchanged; may be several"
    )
    flags.add_argument(
        "--read",
        action="append",
        default=[],
        type=json.loads,
        metavar="JSON",
        help="fields in which a run that reads a dataset differs, and its `folder`",
    )
    flags.add_argument(
        "--calibration-s",
        type=flag_types.real(above=0),
        default=calibration.SECONDS,
        metavar="SECONDS",
        help=f"for which products of matrices and copies are measured, {CALIBRATIONS} times in all",
    )
    flags.add_argument("--model-folder", help="folder with models of your own")
    flags.add_argument("--image-id", help="what the marker says of the image that this is in")
    return flags


def main(description: str | None) -> None:
    """Measure what the command line asks for; rank 0 writes it.

    Args:
        description: of the program.

    Raises:
        Error: the processes do not find one another, a device or a package is missing.
    """
    args = parser(description).parse_args()
    spec = SimpleNamespace(**args.spec)
    if args.model_folder:
        plugins.add_user_folder("models", args.model_folder)
    containment.check(spec.runtime, args.image_id)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    strategy = engine.strategy_of(spec)(spec, args.device, args.output.parent)
    run_engine = plugins.load(spec.framework, "engine").Engine(spec, strategy, None)
    if args.model:
        rows = list(_exchange_rows(spec, run_engine, args.model))
    else:
        lasting_s = args.calibration_s / CALIBRATIONS
        rows = list(_device_rows(spec, run_engine, args.read, args.output.parent, lasting_s))
    if strategy.rank == 0:
        conditions = {name: args.spec[name] for name in measures.CONDITIONS}
        conditions |= {"site": args.site, "device_kind": args.device}
        write_json(args.output, {"conditions": conditions, **_machine(run_engine), "rows": rows})
    run_engine = None  # it holds resources that the processes share
    strategy.leave()


def _exchange_rows(spec: Spec, run_engine: Any, models: list[str]) -> Iterator[dict[str, Any]]:
    strategy = run_engine.strategy
    sizes = []
    for model in models:
        model_engine = type(run_engine)(_with(spec, model=model), strategy, None)
        model_engine.build()
        sizes.append(all_reduce.FLOAT32_BYTES * model_engine.parameters())
        del model_engine
    exchange = plugins.load(f"{spec.framework}/exchanges", spec.strategy)
    devices = spec.nodes * spec.devices_per_node
    yield from all_reduce.rows(
        lambda numbers: exchange.all_reduce(strategy, numbers), strategy.gather, devices, sizes
    )
    yield from collectives.rows(
        exchange,
        lambda operation, numbers: operation(strategy, numbers),
        strategy.gather,
        devices,
        sizes,
    )


def _device_rows(
    spec: Spec,
    run_engine: engine.Engine,
    reads: list[dict[str, Any]],
    folder: Path,
    lasting_s: float,
) -> Iterator[dict[str, Any]]:
    kernels = run_engine.kernels()
    attained = [calibration.measure(kernels, lasting_s=lasting_s) for _ in range(CALIBRATIONS)]
    yield rounds.summary("matrix_product", "TFLOP/s", [each["tflops"] for each in attained])
    copied = {"size_bytes": attained[0]["copied_bytes"]}
    yield rounds.summary("memory_copy", "GB/s", [each["gb_per_s"] for each in attained], **copied)
    yield from host_copies(kernels, run_engine.gpu_count)
    yield from file_reading.rows(folder)
    cores = len(os.sched_getaffinity(0))
    for changes in reads:
        fields = {name: value for name, value in changes.items() if name != "folder"}
        yield item_reading.row(_with(spec, **fields), kernels.reader, changes["folder"], cores)


def host_copies(kernels: calibration.Kernels, gpus: int) -> Iterator[dict[str, Any]]:
    """Yield rows of copies from the host to the device; of a CPU the reason why there are none."""
    if not gpus:
        yield {"measure": "host_to_device", "unit": "GB/s", "unknown": NO_COPIES}
        return
    for size in COPIED_BYTES:
        seconds = rounds.seconds_per_operation(kernels.from_host(size // 4))
        yield rounds.timed("host_to_device", size, seconds, size)


def _machine(run_engine: engine.Engine) -> dict[str, Any]:
    """Where and when this was measured; the digest is that of the runs of such a machine."""
    described, facts = description.describe(run_engine), description.gather(run_engine)
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{name: described[name] for name in ("host", "device_model", "versions")},
        "load_average_1min": described["load_average"][0],
        "hardware_sha256": json_digest(facts["hardware"]),
        "hardware": facts["hardware"],
    }


def _with(spec, **changes):
    return SimpleNamespace(**vars(spec) | changes)
