"""The training loop: it times each window of steps and logs it at once.

- A window is one step or several (dlbench/trainer/schedule.py). It is timed from the end of the
  previous window to its own end, including the wait for data and the writing of the log, but
  without evaluations and checkpoints. So the times of a rank's measured windows add up to the time
  they took.
- A window ends when its losses have arrived on the host; there is no other synchronisation.
- The step is traced, and the tracing is timed, before the first step, which compiles it.
- Warm-up steps are logged and marked. A resumed run warms up again, with as many steps, and for as
  long.
"""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.machine import nccl_log
from dlbench.trainer import checkpoints, description, sampling
from dlbench.trainer.copies import Copy
from dlbench.trainer.engine import Engine
from dlbench.trainer.reading import inputs
from dlbench.trainer.schedule import Schedule, WarmUp, Windows
from dlbench.trainer.strategy import Spec

PROGRESS_INTERVAL_S = 1.0
SPEC_BYTES = 4096  # of a run's fields as text, when ranks compare them


def train(
    spec: Spec,
    engine: Engine,
    copy: Copy,
    log: EventLog,
    checkpointing: dict[str, Any] | None = None,
    sample_every_s: float = 1.0,
    packages: str | None = None,
) -> dict[str, Any]:
    """Train one run and log it, from run_start to the last step. Returns the fields of run_end.

    Args:
        engine: that of this process, before `build`.
        log: an EventLog that has no run_start yet.
        checkpointing: {"folder", "every_s", "stop_reason"} of a checkpoints.Checkpointer, or None.
        sample_every_s: seconds between two samples of the machine's use; 0: none.
        packages: folder where the list of installed packages is saved; None: nowhere.

    Raises checkpoints.Stopped: a checkpoint was written because the run was asked to stop.
    """
    if engine.gpu_count:
        copy.check_gpus(engine.gpu_count, spec.devices_per_node)
    identity = _check_same_run(spec, engine)
    engine.build()
    checkpointer = None
    if checkpointing:
        checkpointer = checkpoints.Checkpointer(
            strategy=engine.strategy,
            log=log,
            run=identity,
            state=engine.checkpoint_state(),
            **checkpointing,
        )
    schedule = Schedule(spec, engine.records)
    machine = description.gather(engine, packages)  # before the clock starts
    first = checkpointer.resume(**description.describe(engine)) if checkpointer else 0
    if not first:
        log.start(**_run_start(spec, engine, copy, schedule))
    log.write("machine", **machine)
    engine.begin(first)
    with _sampled(log, engine, copy, sample_every_s) as usage:
        before = log.now()
        engine.trace()
        now = log.now()
        log.write("compile", t_s=round(now, 6), trace_s=round(now - before, 6))
        message = _do_steps(schedule, engine, copy, log, first, checkpointer)
        done_s = log.now()  # before the shutdown, which may take seconds
    if nccl := nccl_log.of_process():
        log.write("nccl", **nccl)
    if checkpointer:
        checkpointer.finish()
    return {
        "status": "failed" if message else "ok",
        "message": message,
        "t_s": round(done_s, 6),
        # After a failure other ranks, which may hold shards of the weights, may not get here.
        **({} if message else {"weights_sha256": engine.weights_sha256()}),
        **usage,
        **_memory(engine),
    }


def _memory(engine: Engine) -> dict[str, Any]:
    """The fields of run_end about the devices' memory."""
    peak = engine.peak_memory()
    return {
        "peak_allocated_bytes_per_device": peak.allocated,
        "peak_reserved_bytes_per_device": peak.reserved,
        "device_memory_unknown": peak.unknown,
        "device_memory_limit_bytes": peak.limit,
    }


def _do_steps(
    schedule: Schedule,
    engine: Engine,
    copy: Copy,
    log: EventLog,
    first: int,
    checkpointer: checkpoints.Checkpointer | None,
) -> str:
    """Do all steps after `first`. Returns "", or why the run ended early: a loss is not finite."""
    if first and schedule.spec.warmup_s:
        schedule.resume(first, event_log.total_after_warm_up(log.content()))
    rank, windows = engine.strategy.rank, Windows(schedule, engine, first)
    warm_up = WarmUp(schedule, windows, engine.strategy.gather, first)
    progress = _Progress(schedule, engine.item_shape)
    # Before training too: the loss curve starts there, and the evaluation compiles there.
    if schedule.evaluates and not first:
        _evaluate(engine, log, epoch=0, step=0)
    copy.wait_for_copies(log)
    if windows.length > 1:
        log.write("windows", step=first, steps_per_sync=windows.length)
    last_s = log.now()
    epoch, until, index = schedule.epoch_after(first), first, first
    while index < (total := schedule.total):
        begin = index + 1
        if begin > until:
            epoch_end = schedule.epoch_end(epoch)
            until = min(total, epoch_end, checkpointer.sync_step if checkpointer else total)
        index = min(until, windows.last_step(begin))
        losses = engine.window(begin, index, until)
        now = log.now()
        step_time_s = (now - last_s) / len(losses)
        rates = schedule.learning_rates(begin, index) if len(losses) > 1 else ()
        log.step(
            index,
            now,
            step_time_s,
            losses[-1],
            engine.learning_rate,
            index <= windows.warm_up_end,
            epoch,
            event_log.window_fields(losses, rates),
        )
        if not all(map(math.isfinite, losses)):
            return _not_a_number(begin, losses)
        last_s = now
        if rank == 0:
            progress.print_step(index, now, losses[-1])
        if chosen := windows.record(index, len(losses), step_time_s):
            log.write("windows", step=index, **chosen)
            last_s = log.now()  # the ranks have synchronized
        if ended := warm_up.record(index, now):
            log.write("warm_up", step=index, **ended)
            last_s = log.now()
        if schedule.total != total:
            until = index  # the last step, and with synthetic items the epoch, end later
        if index < until:
            continue
        if schedule.evaluates and index in (epoch_end, total):
            last_s = _evaluate(engine, log, epoch, index)
        epoch = schedule.epoch_after(index)
        if checkpointer and index == checkpointer.sync_step:
            reason = checkpointer.synchronize(index, step_time_s, windows.length)
            if reason and index < total:
                raise checkpoints.Stopped(
                    f"stopped by {reason} with a checkpoint after step {index}"
                )
            last_s = log.now()
    return ""


def _not_a_number(begin: int, losses: list[float]) -> str:
    """The message for a window that has a loss which is not finite."""
    message = "the loss is not a number"
    place = next(number for number, loss in enumerate(losses) if not math.isfinite(loss))
    return message if len(losses) == 1 else f"{message} from step {begin + place} on"


def _evaluate(engine: Engine, log: EventLog, epoch: int, step: int) -> float:
    """Rank 0 evaluates, the others wait or take part. Returns the time at its end, in seconds."""
    first = engine.strategy.rank == 0
    scores = engine.evaluate() if first or engine.strategy.evaluates_together else {}
    if first:
        t_s = round(log.now(), 6)
        log.write("eval", epoch=epoch, step=step, t_s=t_s, split="validation", **scores)
    engine.strategy.gather([0.0])
    return log.now()


def _check_same_run(spec: Spec, engine: Engine) -> dict[str, Any]:
    """Check that all ranks train the same run on the same data. Returns what identifies the run."""
    identity = {
        "spec": _plain(spec),
        "size": engine.strategy.size,
        "data_sha256": engine.data_sha256,
    }
    text = json.dumps(identity, sort_keys=True).encode().ljust(SPEC_BYTES)
    rows = engine.strategy.gather(np.frombuffer(text, np.uint8).astype(np.float64))
    others = [json.loads(bytes(row.astype(np.uint8))) for row in rows]
    for rank, other in enumerate(others):
        if other != others[0]:
            different = checkpoints.differences_of_runs(others[0], other)
            raise Error(
                f"ranks 0 and {rank} were not started for the same run on the same data: "
                + "; ".join(f"{key}: {first!r} and {second!r}" for key, first, second in different)
            )
    return identity


def _plain(spec: Spec) -> dict[str, Any]:
    return {key: value for key, value in vars(spec).items() if value is not None}


@contextlib.contextmanager
def _sampled(log: EventLog, engine: Engine, copy: Copy, every_s: float) -> Iterator[dict[str, Any]]:
    """Sample what this process uses; yields a dictionary that gets the totals at the end."""
    totals: dict[str, Any] = {}
    if not every_s:
        yield totals
        return
    first_of_node = engine.strategy.local_rank == 0 and copy.number == 0
    sampler = sampling.Sampler(log, every_s, engine.strategy.gpus(), node=first_of_node)
    log.write("sampling", **sampler.start())
    try:
        yield totals
    finally:
        totals.update(sampler.stop())


class _Progress:
    """Prints a line of progress on stderr from time to time."""

    def __init__(self, schedule: Schedule, item_shape: tuple[int, ...]):
        text = len(item_shape) == 1
        self._unit = "tokens" if text else "images"
        self._schedule = schedule
        self._per_step = schedule.global_batch * (item_shape[0] if text else 1)
        self._has_loss = schedule.spec.mode != inputs.INPUT_ONLY
        self._printed_s, self._printed_index = 0.0, 0

    def print_step(self, index: int, now: float, loss: float) -> None:
        if now - self._printed_s < PROGRESS_INTERVAL_S and index < self._schedule.total:
            return
        rate = (index - self._printed_index) * self._per_step / (now - self._printed_s)
        self._printed_s, self._printed_index = now, index
        loss_text = f"  loss {loss:.4f}" if self._has_loss else ""
        print(
            f"step {index}/{self._schedule.total}  {rate:.1f} {self._unit}/s{loss_text}",
            file=sys.stderr,
            flush=True,
        )


def _run_start(spec: Spec, engine: Engine, copy: Copy, schedule: Schedule) -> dict[str, Any]:
    """The fields of run_start, apart from its time."""
    flops = engine.model_flops()
    return {
        "spec": _plain(spec),
        "rank": engine.strategy.rank,
        "size": engine.strategy.size,
        "copy": copy.number,
        "strategy_settings": engine.strategy.settings(),
        "parameters": engine.parameters(),
        "forward_flops_per_item": flops.forward_per_item,
        "forward_values_per_item": flops.values_per_item,
        "recomputed_flops_per_item": flops.recomputed_per_item,
        "flops_unknown": flops.unknown,
        "records": engine.records,
        "total_steps": schedule.total,
        "data_sha256": engine.data_sha256,
        "item_shape": list(engine.item_shape),
        "attention": engine.attention(),
        **description.describe(engine),
    }
