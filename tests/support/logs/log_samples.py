"""Small logs as other programs write them, one function for each importer.

A function takes the time of a step in seconds, the same for all steps, and their number; it gives
the text or bytes of a log of one run that ended well, GLOBAL_BATCH items a step on one device,
every step printed where the program can do that. Tests use STEP_TIMES_S, whose rates all programs
print exactly, but for those in ROUNDING_S: they print times, by which they can be that much off.
Kinds in NO_STEP_TIMES have no times of training steps.
"""

import json
import math
from datetime import datetime, timedelta, timezone

from support.logs.event_files import event, event_file, scalar, text
from support.logs.trainer_samples import GLOBAL_BATCH, TRAINERS

STEP_TIMES_S = (0.03125, 0.125, 0.5, 2.0)
NO_STEP_TIMES = {
    *("gpu_counters", "horovod_timeline", "keras_csvlogger", "mlperf"),
    *("tf_cnn_benchmark_log", "tf_cnn_eval_log"),
}
ROUNDING_S = {
    "convnet_benchmarks": 0.00056,  # half a digit, times n / (n - 1) of 10 steps
    "maxtext": 0.0005,
    "megatron_bridge": 0.0000501,
    "pytorch_imagenet": 0.0005,
}
BEGAN = datetime(2019, 3, 31, 8, 0, tzinfo=timezone.utc)


def tf_cnn_benchmarks(step_time_s, steps):
    rate = GLOBAL_BATCH / step_time_s
    lines = "".join(
        f"{step}\timages/sec: {rate:.1f} +/- 0.0 (jitter = 0.0)\t{8 - step / 1000:.3f}\n"
        for step in range(1, steps + 1)
    )
    return (
        f"{tf_cnn_banner(steps=steps)}{lines}{'-' * 64}\ntotal images/sec: {rate:.2f}\n{'-' * 64}\n"
    )


def tf_cnn_banner(
    mode="training",
    steps=100,
    batch=GLOBAL_BATCH,
    devices=("/gpu:0",),
    per=None,
    variables="parameter_server",
):
    header = "Running warm up\nDone warm up\nStep\tImg/sec\ttotal_loss\n"
    return f"""TensorFlow:  1.10
Model:       resnet50
Dataset:     imagenet (synthetic)
Mode:        {mode}
SingleSess:  False
Batch size:  {batch} global
             {per or batch // len(devices)} per device
Num batches: {steps}
Num epochs:  0.00
Devices:     {list(devices)}
NUMA bind:   False
Data format: NCHW
Optimizer:   sgd
Variables:   {variables}
==========
Generating {mode} model
Initializing graph
{"" if mode == "evaluation" else header}"""


def tf_cnn_metric_log(step_time_s, steps):
    rate = GLOBAL_BATCH / step_time_s
    events = [
        ("current_examples_per_sec", step, [{"name": "loss", "value": f"{8 - step / 1000:.3f}"}])
        for step in range(1, steps + 1)
    ]
    return json_lines(
        {"name": name, "value": rate, "unit": None, "global_step": step,
         "timestamp": date(step * step_time_s), "extras": extras}
        for name, step, extras in [*events, ("average_examples_per_sec", steps, [])]
    )  # fmt: skip


def json_lines(values):
    return "".join(f"{json.dumps(value)}\n" for value in values)


def tf_cnn_benchmark_log(step_time_s, steps, mode="training"):
    parameters = [
        {"name": "batch_size", "long_value": GLOBAL_BATCH},
        {"name": "batch_size_per_device", "float_value": float(GLOBAL_BATCH)},
        {"name": "dataset", "string_value": "imagenet (synthetic)"},
        {"name": "devices", "string_value": "['/gpu:0']"},
        {"name": "mode", "string_value": mode},
        {"name": "model", "string_value": "resnet50"},
        {"name": "num_batches", "long_value": steps},
        {"name": "optimizer", "string_value": "sgd"},
        {"name": "single_sess", "bool_value": "False"},
    ]
    log = {
        "model_name": "resnet50", "dataset": {"name": "imagenet (synthetic)"}, "run_date": date(0),
        "test_id": None, "machine_config": {"gpu_info": {"model": "Tesla K80", "count": 4}},
        "tensorflow_version": {"version": "1.10.0", "git_hash": "v1.10.0-0-g656e7a2b34"},
        "run_parameters": parameters,
    }  # fmt: skip
    return json_lines([log])


def tf_cnn_eval_log(step_time_s, steps):
    return tf_cnn_benchmark_log(step_time_s, steps, mode="evaluation")


def dlbench(step_time_s, steps):
    """Our own training log of one rank, the first step warm-up."""
    ended_s = (steps + 1) * step_time_s
    spec = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": GLOBAL_BATCH,
            "steps": steps, "warmup_steps": 1}  # fmt: skip
    events = [
        {"event": "launch", "t_utc": date(-3), "made_from": {}},
        {"event": "begin", "t_utc": date(-2)},
        {"event": "run_start", "log_version": 1, "t_utc": date(0), "spec": spec, "host": "far",
         "versions": {"tensorflow": "2.18.1"}, "devices": ["CPU:0"], "total_steps": steps + 1},
        *(
            {"event": "step", "step": step, "t_s": step * step_time_s, "step_time_s": step_time_s,
             "loss": 8 - step / 1000, "learning_rate": 0.01, "warm_up": step == 1, "epoch": 1}
            for step in range(1, steps + 2)
        ),
        {"event": "run_end", "t_s": ended_s, "t_utc": date(ended_s), "status": "ok", "message": "",
         "weights_sha256": ["0"]},
    ]  # fmt: skip
    return json_lines(events)


def horovod_synthetic(step_time_s, steps):
    """An iteration for each ten steps, as the program does unless told otherwise."""
    rate = GLOBAL_BATCH / step_time_s
    lines = "".join(
        f"Iter #{number}: {rate:.1f} img/sec per GPU\n" for number in range(max(1, steps // 10))
    )
    return (
        f"Model: ResNet50\nBatch size: {GLOBAL_BATCH}\nNumber of GPUs: 1\nRunning warmup...\n"
        f"Running benchmark...\n{lines}Img/sec per GPU: {rate:.1f} +-0.0\n"
        f"Total img/sec on 1 GPU(s): {rate:.1f} +-0.0\n"
    )


def convnet_benchmarks(step_time_s, steps):
    """With the error of its scripts: one duration fewer than it divides by."""
    seconds = [step_time_s] * (steps - 1)
    mean = sum(seconds) / steps
    sd = math.sqrt(sum(s * s for s in seconds) / steps - mean * mean)
    lines = "".join(
        f"2016-04-25 13:47:02.941281: step {step}, duration = {step_time_s:.3f}\n"
        for step in range(10, steps, 10)
    )
    return (
        f"{lines}2016-04-25 13:47:10.252648: Forward-backward across {steps} steps, "
        f"{mean:.3f} +/- {sd:.3f} sec / batch (batch size: {GLOBAL_BATCH})\n"
    )


def mlperf(step_time_s, steps):
    """One epoch of whole steps and its evaluation."""
    spent_ms = round(1000 * step_time_s * steps)
    events = [
        (0, "POINT_IN_TIME", "submission_benchmark", "resnet", {}),
        (0, "POINT_IN_TIME", "global_batch_size", GLOBAL_BATCH, {}),
        (0, "INTERVAL_START", "run_start", None, {}),
        (0, "INTERVAL_START", "epoch_start", None, {"samples_count": 0}),
        (spent_ms, "INTERVAL_END", "epoch_stop", None, {"samples_count": GLOBAL_BATCH * steps}),
        (spent_ms + 500, "POINT_IN_TIME", "eval_accuracy", 0.759, {"epoch_num": 1}),
        (spent_ms + 500, "INTERVAL_END", "run_stop", None, {"status": "success"}),
    ]
    return "".join(mllog(*event) for event in events)


def mllog(time_ms, kind, key, value, metadata, namespace=""):
    """A line, its time in milliseconds since BEGAN."""
    event = {
        "namespace": namespace,
        "time_ms": round(BEGAN.timestamp() * 1000) + time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "main.py", "lineno": 82, **metadata},
    }
    return f":::MLLOG {json.dumps(event)}\n"


def keras_csvlogger(step_time_s, steps):
    rows = "".join(f"{epoch},0.5,{8 - epoch},0.25,{8.5 - epoch}\r\n" for epoch in range(3))
    return f"epoch,accuracy,loss,val_accuracy,val_loss\r\n{rows}"


def tensorboard(step_time_s, steps):
    """As our export writes it."""
    started = BEGAN.timestamp()
    settings = f"| | |\n| --- | --- |\n| model | lenet5 |\n| global_batch | {GLOBAL_BATCH} |\n"
    time = scalar("train/step_time_s", step_time_s)
    rate = scalar("train/items_per_second", GLOBAL_BATCH / step_time_s)
    losses = ((step, scalar("train/loss", 8 - step / 1000)) for step in range(1, steps + 1))
    return event_file(
        event(started, 0, text("run", settings)),
        *(event(started + step * step_time_s, step, loss, time, rate) for step, loss in losses),
    )


def horovod_timeline(step_time_s, steps):
    """A tensor that is reduced in each step; the last event closes the array."""
    micros = round(step_time_s * 1e6)
    started = {"start_time_since_epoch_in_micros": round(BEGAN.timestamp() * 1e6)}
    events = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": started},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "conv1.kernel"}},
    ]
    for step in range(steps):
        at = step * micros
        events += [
            {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at, "pid": 1},
            {"ph": "X", "name": "0", "ts": at + 10, "pid": 1, "dur": 0},
            {"ph": "E", "ts": at + 100, "pid": 1},
            {"ph": "B", "name": "ALLREDUCE", "ts": at + 100, "pid": 1},
            {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": at + 200, "pid": 1},
            {"ph": "E", "ts": at + 500, "pid": 1},
            {"ph": "E", "ts": at + 600, "pid": 1, "args": {"dtype": "float32", "shape": "[3]"}},
        ]
    return "[\n" + ",\n".join(map(json.dumps, events)) + "]"


def gpu_counters(step_time_s, steps):
    """A sample a step, as nvidia-smi --query-gpu prints it."""
    lines = "".join(
        f"{BEGAN + timedelta(seconds=step * step_time_s):%Y/%m/%d %H:%M:%S.%f}"[:-3]
        + ", 0, NVIDIA A100-SXM4-40GB, 97 %, 40960 MiB, 300.00 W, [N/A]\n"
        for step in range(steps)
    )
    return (
        "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W], "
        f"temperature.gpu\n{lines}"
    )


def nvidia_smi_dmon(step_time_s, steps):
    """A sample a second, with its date and time."""
    lines = "".join(
        f" {BEGAN + timedelta(seconds=step):%Y%m%d   %H:%M:%S}      0    300     60      -     97 "
        "    55   40960   1593   1410 \n"
        for step in range(steps)
    )
    return (
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem      fb   mclk   pclk \n"
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      MB    MHz    MHz \n"
        f"{lines}"
    )


def mxnet(step_time_s, steps):
    """Every batch printed; the first window is the warm-up."""
    rate = GLOBAL_BATCH / step_time_s
    return "".join(
        f"INFO:root:Epoch[0] Batch [{batch}]\tSpeed: {rate:.2f} samples/sec\taccuracy=0.500000\n"
        for batch in range(1, steps + 2)
    )


def date(seconds):
    return (BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


SAMPLES = (
    *(convnet_benchmarks, dlbench, gpu_counters, horovod_synthetic, horovod_timeline),
    *(keras_csvlogger, mlperf, mxnet),
    *(tensorboard, tf_cnn_benchmark_log, tf_cnn_benchmarks, tf_cnn_eval_log, tf_cnn_metric_log),
)
KINDS = {
    **{sample.__name__: sample for sample in SAMPLES},
    **TRAINERS,
}
