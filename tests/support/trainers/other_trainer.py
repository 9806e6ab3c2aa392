"""A trainer that is none of ours, for the tests of external ones."""

# Trains a softmax regression for real and prints as tf_cnn_benchmarks does.
SCRIPT = '''
import os, sys, time
import numpy as np

batch, steps, fault = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if fault == "exit":
    sys.exit("no such optimizer")
if fault == "memory":
    sys.exit("ResourceExhaustedError: OOM when allocating tensor with shape[9]")
if fault == "silent":
    sys.exit(0)
print(f"""TensorFlow:  9.9
Model:       softmax
Dataset:     noise
Mode:        training
Batch size:  {batch * (2 if fault == "batch" else 1)} global
             {batch * (2 if fault == "batch" else 1)} per device
Num batches: {steps}
Devices:     ['/cpu:0']
==========
Running warm up
Done warm up
Step\\tImg/sec\\ttotal_loss""")
random = np.random.default_rng(1)
images, labels = random.normal(size=(batch, 400)), random.integers(0, 10, batch)
weights, begun = np.zeros((400, 10)), time.perf_counter()
for step in range(1, steps + 1):
    for _ in range(20):
        scores = np.exp(images @ weights)
        shares = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log(shares[np.arange(batch), labels]).mean()
        weights -= 0.1 * images.T @ (shares - np.eye(10)[labels]) / batch
    rate = step * batch / (time.perf_counter() - begun)
    print(f"{step}\\timages/sec: {rate:.1f} +/- 0.0 (jitter = 0.0)\\t{loss:.3f}")
print("-" * 64)
print(f"total images/sec: {rate:.2f}")
print("-" * 64)
'''

# Trains nothing and names metrics in an event log of ours. Arguments: the folder for it, words, as
# the value of the bandwidth, its unit, and that of the latency.
NAMES_METRICS = """
import json, os, sys, zlib

folder, trainer, parameters, batch, bandwidth, unit, latency = sys.argv[1:8]
# Repeats differ a little, and each always by as much.
share = 1 + zlib.crc32(os.path.abspath(folder).encode()) % 1000 / 1e6
start = {"t_utc": "2026-11-20T10:00:00.000000Z", "log_version": 1,
         "spec": {"model": "exchange", "dataset": "none", "batch_per_device": int(batch),
                  "trainer": trainer, "trainer_parameters": parameters, "framework": "nccl"}}
metrics = [("busbw_gb_per_s", float(bandwidth) * share, unit, "higher"),
           ("latency_us", float(latency) * share, "us", "lower")]
events = [("run_start", start)]
events += [("metric", dict(zip(("name", "value", "unit", "better"), one))) for one in metrics]
events += [("imported", {"kind": "exchange", "numbers": {}, "notes": []}),
           ("run_end", {"status": "ok", "message": "", "t_utc": start["t_utc"]})]
with open(os.path.join(folder, "train.jsonl"), "w") as file:
    file.writelines(json.dumps({"event": kind, **values}) + "\\n" for kind, values in events)
print("Avg bus bandwidth :", bandwidth)
"""
# Before such a script: says where it runs, and starts a process that leaves its session.
ESCAPES = """
import os, subprocess
cores = sorted(os.sched_getaffinity(0))
print("cores", cores, "threads", os.environ.get("OMP_NUM_THREADS"))
subprocess.Popen(["setsid", "sleep", "1000.25"], stdout=subprocess.DEVNULL)
"""
# Prints, or does not, and answers SIGUSR1 by a checkpoint, or does not.
SIGNS_OF_LIFE = """
import signal, sys, time

def stop(*_):
    print("checkpoint written", flush=True)
    sys.exit(3)

how = sys.argv[1]
signal.signal(signal.SIGUSR1, stop if how == "answers" else signal.SIG_IGN)
while True:
    if how != "silent":
        print("alive", flush=True)
    time.sleep(0.3)
"""
