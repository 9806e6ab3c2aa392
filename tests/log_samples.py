"""Small logs as other programs write them, one function for each importer.

A function takes the time of a step in seconds, the same for all steps, and their number; it gives
the text or bytes of a log of one run that ended well, GLOBAL_BATCH items a step on one device,
every step printed where the program can do that. Tests use STEP_TIMES_S, whose rates all programs
print exactly. Kinds in NO_STEP_TIMES have no times of training steps.
"""

import json
from datetime import datetime, timedelta, timezone

GLOBAL_BATCH = 64
STEP_TIMES_S = (0.03125, 0.125, 0.5, 2.0)
NO_STEP_TIMES = {"tf_cnn_benchmark_log", "tf_cnn_eval_log"}
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


def tf_cnn_banner(mode="training", steps=100, batch=GLOBAL_BATCH, devices=("/gpu:0",), per=None,
                  variables="parameter_server"):  # fmt: skip
    header = (
        "" if mode == "evaluation" else "Running warm up\nDone warm up\nStep\tImg/sec\ttotal_loss\n"
    )
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
{header}"""


def tf_cnn_metric_log(step_time_s, steps):
    rate = GLOBAL_BATCH / step_time_s
    events = [
        (
            "current_examples_per_sec",
            rate,
            step,
            [{"name": "loss", "value": f"{8 - step / 1000:.3f}"}],
        )
        for step in range(1, steps + 1)
    ]
    events.append(("average_examples_per_sec", rate, steps, []))
    return "".join(
        json.dumps(
            {
                "name": name,
                "value": value,
                "unit": None,
                "global_step": step,
                "timestamp": date(step * step_time_s),
                "extras": extras,
            }
        )
        + "\n"
        for name, value, step, extras in events
    )


def tf_cnn_benchmark_log(step_time_s, steps, mode="training"):
    return (
        json.dumps(
            {
                "model_name": "resnet50",
                "dataset": {"name": "imagenet (synthetic)"},
                "run_date": date(0),
                "test_id": None,
                "machine_config": {"gpu_info": {"model": "Tesla K80", "count": 4}},
                "tensorflow_version": {"version": "1.10.0", "git_hash": "v1.10.0-0-g656e7a2b34"},
                "run_parameters": [
                    {"name": "batch_size", "long_value": GLOBAL_BATCH},
                    {"name": "batch_size_per_device", "float_value": float(GLOBAL_BATCH)},
                    {"name": "dataset", "string_value": "imagenet (synthetic)"},
                    {"name": "devices", "string_value": "['/gpu:0']"},
                    {"name": "mode", "string_value": mode},
                    {"name": "model", "string_value": "resnet50"},
                    {"name": "num_batches", "long_value": steps},
                    {"name": "optimizer", "string_value": "sgd"},
                    {"name": "single_sess", "bool_value": "False"},
                ],
            }
        )
        + "\n"
    )


def tf_cnn_eval_log(step_time_s, steps):
    return tf_cnn_benchmark_log(step_time_s, steps, mode="evaluation")


def dlbench(step_time_s, steps):
    """Our own training log of one rank, the first step warm-up."""
    events = [
        {"event": "launch", "t_utc": date(-3), "made_from": {}},
        {"event": "begin", "t_utc": date(-2)},
        {
            "event": "run_start",
            "log_version": 1,
            "t_utc": date(0),
            "spec": {"model": "lenet5", "dataset": "synthetic", "batch_per_device": GLOBAL_BATCH,
                     "steps": steps, "warmup_steps": 1},
            "versions": {"tensorflow": "2.18.1"},
            "devices": ["CPU:0"],
            "total_steps": steps + 1,
            "host": "far",
        },
        *(
            {
                "event": "step",
                "step": step,
                "t_s": step * step_time_s,
                "step_time_s": step_time_s,
                "loss": 8 - step / 1000,
                "learning_rate": 0.01,
                "warm_up": step == 1,
                "epoch": 1,
            }
            for step in range(1, steps + 2)
        ),
        {
            "event": "run_end",
            "t_s": (steps + 1) * step_time_s,
            "t_utc": date((steps + 1) * step_time_s),
            "status": "ok",
            "message": "",
            "weights_sha256": ["0"],
        },
    ]  # fmt: skip
    return "".join(json.dumps(event) + "\n" for event in events)


def date(seconds):
    return (BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


KINDS = {
    "dlbench": dlbench,
    "tf_cnn_benchmark_log": tf_cnn_benchmark_log,
    "tf_cnn_benchmarks": tf_cnn_benchmarks,
    "tf_cnn_eval_log": tf_cnn_eval_log,
    "tf_cnn_metric_log": tf_cnn_metric_log,
}
