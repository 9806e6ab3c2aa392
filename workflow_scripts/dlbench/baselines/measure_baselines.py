"""The baselines of one process or of several joined ones, from flags to a file of JSON.

Those of several devices are collectives by the strategy's own library; those of one are in
one_device.py.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlbench.baselines import collectives, one_device, rounds
from dlbench.common import command_line, plugins
from dlbench.common.files import json_digest, write_json
from dlbench.trainer import calibration, containment, description, engine
from dlbench.trainer.strategy import Spec


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
        type=command_line.real(above=0),
        default=calibration.SECONDS,
        metavar="SECONDS",
        help="for which products of matrices and copies are measured, "
        f"{one_device.CALIBRATIONS} times in all",
    )
    flags.add_argument("--model-folder", help="folder with models of your own")
    flags.add_argument("--image-id", help="what the marker says of the image that this is in")
    return flags


def main(description: str | None) -> None:
    """Measure what the command line asks for; rank 0 writes it."""
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
        folder, lasting_s = args.output.parent, args.calibration_s
        rows = list(_device_rows(spec, run_engine, args.read, folder, lasting_s))
    if strategy.rank == 0:
        conditions = {name: args.spec[name] for name in rounds.CONDITIONS}
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
        sizes.append(collectives.FLOAT32_BYTES * model_engine.parameters())
        del model_engine
    devices = spec.nodes * spec.devices_per_node
    return collectives.rows(run_engine.kernels().collective, strategy.gather, devices, sizes)


def _device_rows(
    spec: Spec,
    run_engine: engine.Engine,
    reads: list[dict[str, Any]],
    folder: Path,
    calibration_s: float,
) -> Iterator[dict[str, Any]]:
    kernels = run_engine.kernels()
    yield from one_device.attained(kernels, calibration_s)
    yield from one_device.host_copies(kernels, run_engine.gpu_count)
    yield from one_device.files_read(folder)
    cores = len(os.sched_getaffinity(0))
    for changes in reads:
        fields = {name: value for name, value in changes.items() if name != "folder"}
        yield one_device.items_read(_with(spec, **fields), kernels.reader, changes["folder"], cores)


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
