"""The baselines of one process or of several joined ones, from flags to a file of JSON.

Those of several devices are collectives by the strategy's own library (collectives.py). Of one
device they are matrix products, copies, reading a file, and the reader of each dataset:
- Products and copies in memory are those of dlbench/trainer/calibration.py.
- A file is read from the disk, and again from the system's memory. Where the file system keeps it
  in memory though it should drop it (dlbench/trainer/reading/page_cache.py), there is no value for
  reading it cold.
- A framework's reader yields the items of a dataset on the cores of the device while nothing
  trains: it is the limit that reading, decoding and augmenting set. A core's rate is that of the
  device over its cores.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlbench.baselines import collectives, rounds
from dlbench.common import command_line, plugins
from dlbench.common.files import json_digest, write_json
from dlbench.trainer import calibration, containment, description, engine
from dlbench.trainer.reading import converted, page_cache
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import TASKS

CALIBRATIONS = 3
COPIED_BYTES = (1 << 12, 1 << 26)  # from the host: one that is all latency, and a long one
NO_COPIES = "the device computes in the host's memory: nothing is copied to it"
FILE_BYTES, BLOCK_BYTES = 128 << 20, 1 << 20
FILE_ROUNDS = 3
MAX_CACHED = 0.01  # of a file that is read cold
ITEM_ROUNDS, ITEM_ROUND_S = 5, 0.2
FIRST_BATCHES = 3  # start workers, fill buffers


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """The flags of the program."""
    flags = argparse.ArgumentParser(description=description)
    add = flags.add_argument
    add("--spec", required=True, type=json.loads, help="all fields of a run, JSON")
    add("--site", default="", help="name of the machine, for the table")
    add("--output", required=True, type=Path, help="JSON, written by rank 0")
    add("--device", default="cpu", choices=["cpu", "gpu"])
    models = "whose gradients are exchanged; may be several"
    add("--model", action="append", default=[], help=models)
    reads = "fields in which a run that reads a dataset differs, and its `folder`"
    add("--read", action="append", default=[], type=json.loads, metavar="JSON", help=reads)
    lasting = "for which products of matrices and copies are measured, "
    lasting += f"{CALIBRATIONS} times in all"
    seconds = command_line.real(above=0)
    default = calibration.SECONDS
    add("--calibration-s", type=seconds, default=default, metavar="SECONDS", help=lasting)
    add("--model-folder", help="folder with models of your own")
    add("--image-id", help="what the marker says of the image that this is in")
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
    yield from attained(kernels, calibration_s)
    yield from host_copies(kernels, run_engine.gpu_count)
    yield from files_read(folder)
    cores = len(os.sched_getaffinity(0))
    for changes in reads:
        fields = {name: value for name, value in changes.items() if name != "folder"}
        yield items_read(_with(spec, **fields), kernels.reader, changes["folder"], cores)


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


def attained(kernels: calibration.Kernels, lasting_s: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of products of matrices and copies in memory, in `lasting_s` seconds."""
    found = [
        calibration.measure(kernels, lasting_s=lasting_s / CALIBRATIONS)
        for _ in range(CALIBRATIONS)
    ]
    yield rounds.summary("matrix_product", "TFLOP/s", [each["tflops"] for each in found])
    copied = {"size_bytes": found[0]["copied_bytes"]}
    yield rounds.summary("memory_copy", "GB/s", [each["gb_per_s"] for each in found], **copied)


def host_copies(kernels: calibration.Kernels, gpus: int) -> Iterator[dict[str, Any]]:
    """Yield rows of copies from the host to the device; of a CPU the reason why there are none."""
    if not gpus:
        yield {"measure": "host_to_device", "unit": "GB/s", "unknown": NO_COPIES}
        return
    for size in COPIED_BYTES:
        seconds = rounds.seconds_per_operation(kernels.from_host(size // 4))
        yield rounds.timed("host_to_device", size, seconds, size)


def files_read(folder: Path, size_bytes: int = FILE_BYTES) -> Iterator[dict[str, Any]]:
    """Yield the rows of reading cold and warm, of a new file in a folder, which is then removed."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".baseline-") as file:
        for _ in range(0, size_bytes, BLOCK_BYTES):
            file.write(os.urandom(BLOCK_BYTES))  # which no file system makes smaller
        file.flush()
        os.fsync(file.fileno())
        cold, warm, cached_share = [], [], 0.0
        for _ in range(FILE_ROUNDS):
            page_cache.drop(file.fileno())
            cached_share = max(cached_share, page_cache.cached_share(file.fileno()))
            cold.append(_read_s(file.name))
            warm.append(_read_s(file.name))
    if cached_share > MAX_CACHED:
        reason = f"told to drop the file from memory, the file system kept {cached_share:.0%} of it"
        yield {"measure": "file_read_cold", "unit": "GB/s", "unknown": reason}
    else:
        yield rounds.timed("file_read_cold", size_bytes, cold, size_bytes)
    yield rounds.timed("file_read_warm", size_bytes, warm, size_bytes)


def _read_s(path):
    block = bytearray(BLOCK_BYTES)
    with open(path, "rb", buffering=0) as file:
        start = time.perf_counter()
        while file.readinto(block):
            pass
        return time.perf_counter() - start


def items_read(spec: Spec, reader: type, folder: str, cores: int) -> dict[str, Any]:
    """The row of a dataset, in a folder, that a run reads by the framework's reader."""
    model_module = plugins.load(engine.plugin_kind(spec.framework, "models"), spec.model)
    task = TASKS[model_module.TASK]
    settings = converted.InputSettings(
        spec, None, model_module, task, lambda inputs: inputs, spec.seed
    )
    data: Any = converted.open_dataset(reader, settings, folder)
    batches = iter(data.training_batches(spec.batch_per_device, spec.seed))
    try:
        rates = _rates(batches, spec.batch_per_device)
    finally:
        if hasattr(data, "close"):
            data.close()
    per_core = [rate / cores for rate in rates]
    return rounds.summary("items_read", "items/s", per_core, dataset=spec.dataset)


def _rates(
    batches: Iterator[Any], batch: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    for _ in range(FIRST_BATCHES):
        next(batches)
    rates = []
    for _ in range(ITEM_ROUNDS):
        start, items = clock(), 0
        while clock() - start < ITEM_ROUND_S:
            next(batches)
            items += batch
        rates.append(items / (clock() - start))
    return rates
