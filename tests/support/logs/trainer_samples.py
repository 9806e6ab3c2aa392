"""Small logs of today's trainers, one function for each importer, as log_samples has them."""

import json

GLOBAL_BATCH = 64
SEQUENCE = 128  # tokens of an item
GIVEN = f"sequence length {SEQUENCE}"


def megatron(step_time_s, steps):
    """Today's line, every iteration printed, on one device."""
    arguments = {
        "global_batch_size": GLOBAL_BATCH,
        "log_interval": 1,
        "lr": 0.00015,
        "seq_length": SEQUENCE,
        "train_iters": steps,
        "world_size": 1,
    }
    title = "------------------------"
    return (
        f"{title} arguments {title}\n"
        + "".join(f"  {name} {'.' * (48 - len(name))} {v}\n" for name, v in arguments.items())
        + f"{title} end of arguments {title}\n"
        + "".join(megatron_line(n, steps, 1000 * step_time_s) for n in range(1, steps + 1))
    )


def megatron_line(iteration, total, elapsed_ms, batch=GLOBAL_BATCH, skipped=0):
    """A line of 2024 and later; as NVIDIA/Megatron-LM#756 has them."""
    return (
        f" [2024-04-06 03:02:12] iteration {iteration:8d}/{total:8d} | consumed samples: "
        f"{iteration * batch:12d} | elapsed time per iteration (ms): {elapsed_ms:.4f} | throughput "
        f"per GPU (TFLOP/s/GPU): {1e3 * batch / elapsed_ms:.1f} | learning rate: 1.420000E-05 | "
        "global batch size: "
        f"{batch:5d} | lm loss: {8 - iteration / 1000:.6E} | loss scale: 1.0 | grad norm: 1.300 | "
        f"number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def megatron_bridge(step_time_s, steps):
    """Both lines of each iteration, after a part of its configuration, as NVIDIA/cloudai has."""
    return f"[dataset]:\n  seq_length: {SEQUENCE}\n" + "".join(
        f"in_fp8_mx/0 Step Time : {step_time_s:.2f}s GPU utilization: 66{n % 10}.0MODEL_TFLOP/s/GPU"
        f"\nin_fp8_mx/0  [2025-12-22 15:18:33] iteration {n:8d}/{steps:8d} | consumed samples: "
        f"{n * GLOBAL_BATCH:12d} | elapsed time per iteration (ms): {1000 * step_time_s:.1f} | "
        f"learning rate: 3.000000E-05 | global batch size: {GLOBAL_BATCH:5d} | "
        f"lm loss: {8 - n / 1000:.6E} | loss scale: 1.0 | grad norm: 0.042 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |\n"
        for n in range(1, steps + 1)
    )


def nemo(step_time_s, steps):
    """Every step printed, counted from 0, as NVIDIA/dgxc-benchmarking has them."""
    return "".join(
        f"retraining/0 [default0]:Training epoch 0, iteration {n}/{steps - 1} | lr: 7.496e-06 | "
        f"global_batch_size: {GLOBAL_BATCH} | global_step: {n} | peak_memory_usage: 70833405952 | "
        f"reduced_train_loss: {8 - n / 1000:.4} | train_step_timing in s: {step_time_s:.4}"
        f"{f' | consumed_samples: {(n + 1) * GLOBAL_BATCH}' if n else ''}\n"
        for n in range(steps)
    )


def torchtitan(step_time_s, steps):
    """Every step printed, on one device."""
    head = titan_lines(
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=1, cp=1, tp=1, ep=1",
        "Model llama3 debugmodel size: 6,163,712 total parameters",
        f"Trainer is initialized with local batch size {GLOBAL_BATCH}, global batch size "
        f"{GLOBAL_BATCH}, gradient accumulation steps 1, {GIVEN}, total steps {steps} (warmup 2)",
        "Training starts at step 1",
    )
    tps = round(GLOBAL_BATCH * SEQUENCE / step_time_s)
    return head + titan_lines(*(titan_step(step, tps) for step in range(1, steps + 1)))


def titan_lines(*messages, rank="[rank0]:"):
    before = f"{rank}[titan] 2025-11-25 19:45:01,441 - root - INFO - "
    return "".join(f"{before}{message}\n" for message in messages)


def titan_step(step, tps, memory_gib=1.21):
    loss = 8 - step / 1000
    return (
        f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.4604  "
        f"memory: {memory_gib:5.2f}GiB(0.86%)  tps: {tps:,}  tflops: 0.41  mfu: 0.04%"
    )


def pytorch_imagenet(step_time_s, steps):
    """One epoch, every batch printed, and its evaluation."""
    lines = (
        f"{imagenet_line(0, batch, steps, step_time_s, step_time_s)}\n"
        for batch in range(1, steps + 1)
    )
    return f"{''.join(lines)} * Acc@1 12.500 Acc@5 25.000\n"


def imagenet_line(epoch, batch, batches, time_s, mean_s):
    loss = 8 - batch / 1000
    return (
        f"Epoch: [{epoch}][{batch:{len(str(batches))}d}/{batches}]\t"
        f"Time {time_s:6.3f} ({mean_s:6.3f})\tData  0.002 ( 0.073)\t"
        f"Loss {loss:.4e} ({loss:.4e})\tAcc@1   0.00 (  0.08)\tAcc@5   6.25 (  0.55)"
    )


def hf_trainer(step_time_s, steps):
    """The state after the last step, every step logged."""
    history = [
        {"epoch": step / steps, "loss": 8 - step / 1000, "learning_rate": 1e-5, "step": step}
        for step in range(1, steps + 1)
    ]
    history.append({"epoch": 1.0, "eval_loss": 8.5, "eval_accuracy": 0.25, "step": steps})
    speed = {
        "train_runtime": steps * step_time_s,
        "train_samples_per_second": GLOBAL_BATCH / step_time_s,
        "train_steps_per_second": round(1 / step_time_s, 3),
    }
    history.append({"epoch": 1.0, "step": steps, "total_flos": 8704467062400.0} | speed)
    history[-1]["train_loss"] = 8.0
    return hf_state(history, steps, steps)


def hf_state(history, step, total, **more):
    state = {
        "best_metric": None, "epoch": 1.0, "global_step": step, "is_world_process_zero": True,
        "log_history": history, "max_steps": total, "num_train_epochs": 1, "train_batch_size": 8,
        **more,
    }  # fmt: skip
    return json.dumps(state, indent=2)


def lightning_csv(step_time_s, steps):
    """With the columns of ThroughputMonitor, every step logged, and one validation."""
    rows = "".join(
        f"0,{step},{8 - step / 1000},{(step + 1) * step_time_s},{step + 1},"
        f"{(step + 1) * GLOBAL_BATCH},\n"
        for step in range(steps)
    )
    return (
        "epoch,step,train_loss,train/time,train/batches,train/samples,val_acc\n"
        f"{rows}0,{steps - 1},,,,,0.25\n"
    )


def composer(step_time_s, steps):
    """As the console has it, every batch printed; rolling means of two batches."""
    lines = []
    for done in range(1, steps + 1):
        metrics = {
            "time/batch": done - 1,
            "time/sample": (done - 1) * GLOBAL_BATCH,
            "time/token": (done - 1) * GLOBAL_BATCH * SEQUENCE,
            "loss/train/total": 8 - done / 1000,
        }
        if done > 2:
            for rate in ("samples_per_sec", "device/samples_per_sec"):
                metrics[f"throughput/{rate}"] = GLOBAL_BATCH / step_time_s
        lines += composer_block(done, steps, *metrics.items())
    return "".join(lines)


def composer_block(done, total, *metrics):
    """Lines of a batch; numbers as Composer formats them."""
    yield f"[batch={done}/{total}]:\n"
    for name, value in metrics:
        yield f"\t Train {name}: {value if isinstance(value, int) else format(value, '.4f')}\n"


def nanogpt(step_time_s, steps):
    """Every iteration printed, counted from 0, with an evaluation before the first one."""
    return "step 0: train loss 8.2874, val loss 8.2823\n" + "".join(
        f"iter {step}: loss {8 - step / 1000:.4f}, time {1000 * step_time_s:.2f}ms, mfu 12.30%\n"
        for step in range(steps)
    )


def maxtext(step_time_s, steps):
    """The config that matters, then every step, counted from 0, as MaxText printed them in 2025."""
    tokens = GLOBAL_BATCH * SEQUENCE
    return (
        f"Config param global_batch_size_to_train_on: {GLOBAL_BATCH}\n"
        f"Config param max_target_length: {SEQUENCE}\nConfig param model_name: llama3-8b\n"
        "System Information: Jax Version: 0.7.2\nNum_devices: 1, shape (1, 1, 1)\n"
        + "".join(
            f"completed step: {step}, seconds: {step_time_s:.3f}, TFLOP/s/device: 134.924, "
            f"Tokens/s/device: {tokens / step_time_s:.3f}, total_weights: {tokens}, "
            f"loss: {8 - step / 1000:.3f}\n"
            for step in range(steps)
        )
    )


def deepspeed(step_time_s, steps):
    """Every step printed, from the third on, as ThroughputTimer does with steps_per_print 1."""
    rate = GLOBAL_BATCH / step_time_s
    return "".join(
        f"[2023-08-02 00:41:17,935] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, "
        "skipped=1, lr=[0.0001], mom=[(0.9, 0.999)]\n"
        f"[2023-08-02 00:41:17,936] [INFO] [timer.py:215:stop] epoch=0/micro_step={step}/"
        f"global_step={step}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, "
        "MemAllocated=0.07GB, MaxMemAllocated=1.36GB\n"
        for step in range(3, steps + 3)
    )


def hf_console(step_time_s, steps):
    """A loss for each step; the only speed is that of the whole training."""
    losses = "".join(
        f"{{'loss': {8 - step / 1000:.4f}, 'grad_norm': 1.25, 'learning_rate': 4.4e-05, "
        f"'epoch': {step / steps:.2f}}}\n"
        for step in range(1, steps + 1)
    )
    return (
        f"{losses}{{'eval_loss': 7.5, 'eval_runtime': 1.5, 'eval_samples_per_second': 42.7, "
        "'eval_steps_per_second': 1.333, 'epoch': 1.0}\n"
        f"{{'train_runtime': {step_time_s * steps:.4f}, 'train_samples_per_second': "
        f"{GLOBAL_BATCH / step_time_s:.3f}, 'train_steps_per_second': {1 / step_time_s:.3f}, "
        "'train_loss': 7.9, 'epoch': 1.0}\n"
    )


TRAINERS = {
    sample.__name__: sample
    for sample in (
        *(composer, deepspeed, hf_console, hf_trainer, lightning_csv, maxtext, megatron),
        *(megatron_bridge, nanogpt, nemo, pytorch_imagenet, torchtitan),
    )
}
