"""pattern_importer: whose lines count, what fails a run, and which lines come near to a pattern."""

import pytest

from dlbench.imports import import_logs, kinds
from dlbench.imports.log_file import LogError, LogFile
from support.logs.log_samples import mxnet
from support.logs.reading_logs import notes
from support.logs.reading_logs import read as read_kind
from support.logs.rewritten_logs import of_ranks
from support.logs.trainer_samples import (
    deepspeed,
    hf_console,
    maxtext,
    megatron,
    megatron_bridge,
    nanogpt,
)

STEP = r"step (?P<step>\d+) loss (?P<loss>\S+) took (?P<step_time_ms>\S+) ms"


def lines(time_ms=125, steps=5, loss=8):
    return "".join(
        f"step {step} loss {loss - step / 100} took {time_ms} ms\n" for step in range(1, steps + 1)
    )


def read(log, content, processes=1, **patterns):
    log.write_bytes(content if isinstance(content, bytes) else content.encode())
    (run,) = kinds.of_config({"step": STEP} | patterns, processes).read(LogFile(log))
    run.complete(run.columns)
    return run


def refused(log, content, **patterns):
    with pytest.raises(LogError) as error:
        read(log, content, **patterns)
    return str(error.value)


def test_of_ranks_that_wait_for_one_another_the_slowest_counts(log):
    run = read(log, of_ranks(lines(125).encode(), lines(130, loss=7).encode()))
    assert set(run.steps.step_time_s) == {0.130}
    differ = "rank 1, the slowest, is taken; their times differ by 4.0%, losses by up to 1"
    assert differ in notes(run)


def test_ranks_that_disagree_are_refused_and_one_can_be_chosen(log):
    content = of_ranks(lines(125).encode(), lines(500).encode())
    said = refused(log, content)
    assert "the ranks disagree" in said and "rank 1 took 4 times the least" in said
    assert set(read(log, content, rank=0).steps.step_time_s) == {0.125}
    assert "no line of rank 7, only of 0, 1" in refused(log, content, rank=7)


def test_what_one_rank_alone_prints_is_of_the_run_of_all(log):
    others = "[rank1]:batch 64\n[rank1]:bandwidth 4.5 GB/s\n[rank1]:final: 500 items/s\n"
    content = of_ranks(lines(130).encode(), lines(125).encode()) + others.encode()
    settings, rate = r"batch (?P<global_batch>\d+)", r"final: (?P<items_per_second>\S+)"
    metrics = {"bandwidth": r"bandwidth (\S+)"}
    run = read(log, content, settings=settings, metrics=metrics, rate=rate)
    assert set(run.steps.step_time_s) == {0.130}
    assert (run.columns["global_batch"], run.columns["images_per_second"]) == (64, 500)
    assert [metric["value"] for metric in run.metrics] == [4.5]


def test_lines_of_several_ranks_without_labels_are_refused(log):
    said = refused(log, "".join(line * 2 for line in lines().splitlines(True)))
    assert "line 2: step 1 after step 1" in said and "mpirun --tag-output" in said


def test_a_number_that_looks_like_a_label_is_read_by_a_pattern_that_is_for_it(log):
    content = "".join(f"{step}: 125\n" for step in range(1, 6))
    run = read(log, content, step=r"^(?P<step>\d+): (?P<step_time_ms>\d+)")
    assert list(run.steps.step) == [1, 2, 3, 4, 5]
    dated = "".join(f"2026-11-27 10:00:0{step} - 125\n" for step in range(1, 6))
    assert len(read(log, dated, step=r":0(?P<step>\d) - (?P<step_time_ms>\d+)").steps) == 5


def test_a_line_that_the_pattern_of_failures_matches_fails_the_run_and_is_quoted(log):
    run = read(log, lines() + "NCCL error in ring.cc: peer is gone\n", failed="NCCL error|CUDA")
    assert run.status == "failed" and len(run.steps) == 5
    assert run.message.startswith("line 6: 'NCCL error in ring.cc: peer is gone'")
    # A failure before the first step is told, too.
    log.write_text("starting\nCUDA error: no device\n")
    (run,) = kinds.of_config({"step": STEP, "failed": "CUDA error"}, 1).read(LogFile(log))
    assert (run.status, len(run.steps)) == ("failed", 0) and "line 2: 'CUDA error" in run.message


def test_a_pattern_that_matches_nothing_is_refused_with_the_five_lines_that_came_nearest(log):
    noise = "".join(f"loading shard {name}\n" for name in "abcdefgh")
    said = refused(log, noise + lines().replace("took", "in") + "a loss of time\n")
    nearest = "nearest: line 9: 'step 1 loss 7.99 in 125"
    assert f"no number in a line that step matches; {nearest}" in said
    assert said.count("line ") == 6 and "a loss of time" in said  # "a line that"
    assert "the log is empty" in refused(log, "")
    # One beside others is noted.
    run = read(log, lines() + "bandwidth: 4.5\n", metrics={"bw": r"Bandwidth = (\S+)"})
    assert not run.metrics
    (note,) = run.notes
    assert note.startswith(r"no line matches metrics.bw, 'Bandwidth = (\S+)'; nearest: line ")
    assert "'bandwidth: 4.5'" in note


def test_bytes_of_a_log_that_are_searched_at_once_end_at_no_boundary_of_them(log, monkeypatch):
    content = lines(steps=40_000).rstrip("\n")  # a last line counts without its newline, too
    whole = read(log, content)
    monkeypatch.setattr("dlbench.imports.pattern_importer.BATCH_BYTES", 1)
    assert read(log, content).steps == whole.steps and len(whole.steps) == 40_000


def test_a_finished_log_whose_rate_is_missing_is_of_a_failed_run(log):
    content = hf_console(0.125, 8)
    (run,) = read_kind("hf_console", log, content)
    assert run.status == "ok" and run.columns["images_per_second"] == 512
    (cut,) = read_kind("hf_console", log, content[: content.index("{'train_runtime'")])
    assert cut.status == "failed" and cut.columns["final_loss"] == 7.992
    # What comes after the rate is of the next training.
    first, cut = read_kind("hf_console", log, content + "\n".join(content.splitlines()[:3]) + "\n")
    assert (first.columns, first.evals) == (run.columns, run.evals)
    assert (cut.status, cut.columns.get("images_per_second"), cut.evals) == ("failed", None, [])
    assert (cut.columns["final_loss"], cut.lines) == (7.997, (11, 13))


# Of each program: patterns, lines as it prints them, its steps, their windows and seconds.
PROGRAMS = {
    "timm": (
        {"step": r"^Train: (?P<epoch>\d+) \[ *(?P<step>\d+)/(?P<epoch_steps>\d+) .*Loss: +"
                 r"(?P<loss>\S+) .*\((?P<step_time_s>[\d.]+)s, ",
         "means": "running mean", "counts_from": 0,
         "evaluation": r"Test: \[ *30/30\].*Acc@1: .*\( *(?P<top1_percent>\S+)\)  Acc@5: "},
        "Train: 0 [   0/60 (  2%)]  Loss: 6.9 (6.9)  Time: 9.000s,   14/s  (9.000s,   14/s)  LR\n"
        "Train: 0 [  49/60 ( 83%)]  Loss: 6.5 (6.7)  Time: 0.300s,  426/s  (0.474s,  270/s)  LR\n"
        "Test: [  30/30]  Time: 0.1 (0.1)  Loss:  6 (6)  Acc@1:  1 (  2.5)  Acc@5:  2 (  5.0)\n"
        "Train: 1 [   0/60 (  2%)]  Loss: 6.4 (6.4)  Time: 0.700s,  182/s  (0.700s,  182/s)  LR\n"
        "Train: 1 [  49/60 ( 83%)]  Loss: 6.1 (6.2)  Time: 0.300s,  426/s  (0.308s,  415/s)  LR\n",
        [1, 50, 61, 110], [1, 49, 1, 49], [9.0, 0.3, 0.7, 0.3],
    ),
    "mmengine": (
        {"step": r"\(train\) +\[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/(?P<epoch_steps>\d+)\].* time: "
                 r"(?P<step_time_s>\S+)  data_time.* loss: (?P<loss>\S+)"},
        "".join(
            f"07/03 13:04:17 - mmengine - INFO - Epoch(train)  [{epoch}][{step:2}/25]  lr: 1e-3  "
            f"eta: 0:13:14  time: {time}  data_time: 0.0335  memory: 970  loss: 2.5\n"
            for epoch, step, time in ((1, 10, 0.5), (1, 20, 0.25), (2, 10, 0.25), (2, 20, 0.125))
        ),
        [10, 20, 35, 45], [10, 10, 10, 10], [0.5, 0.25, 0.25, 0.125],
    ),
    "detectron2": (  # 17, 37 and 57 steps after the first three
        {"step": r"iter: (?P<step>\d+)  total_loss: (?P<loss>\S+) .* time: (?P<step_time_s>\S+)  ",
         "means": "running mean", "warm_up": 3, "counts_from": 0},
        "".join(
            f"[09/02 02:37:24 d2.utils.events]:  eta: 0:05:22  iter: {step}  total_loss: 1.5  "
            f"loss_cls: 0.595  time: {time}  data_time: 0.0222  lr: 1.6e-05  max_mem: 2725M\n"
            for step, time in ((19, "1.0000"), (39, "1.2000"), (59, "1.2500"))
        ),
        [20, 40, 60], [17, 20, 20], [1.0, 1.37, 1.3425],
    ),
    "nanotron": (
        {"step": r"iteration: (?P<step>\d+) / .*per_iteration_ms: (?P<step_time_ms>\S+) "
                 r".*lm_loss: (?P<loss>\S+)",
         "settings": r"global_batch_size: (?P<global_batch>\S+)"},
        "".join(
            f"11/20/2025 10:00:01 [INFO|DP=0|PP=0|TP=0|node1]: iteration: {step} / 100 | "
            f"elapsed_time_per_iteration_ms: {time} | tokens_per_sec: 338K | "
            f"global_batch_size: 1.02K | lm_loss: 11 | lr: 0.00015\n"
            for step, time in ((1, "6.33K"), (2, "3.1K"), (3, 998))
        ),
        [1, 2, 3], [1, 1, 1], [6.33, 3.1, 0.998],
    ),
    "Ultralytics": (  # time since training began
        {"step": r"^\s*(?P<epoch>\d+),\s*(?P<elapsed_s>[\d.]+),\s*(?P<loss>[\d.]+),",
         "epoch_steps": 625, "metrics": {"map50": r"^\d+,(?:[^,]*,){2}([\d.]+)"}},
        "epoch,time,train/box_loss,metrics/mAP50(B)\n"
        "1,70.5,1.6,0.36\n2,133.0,1.5,0.41\n3,195.5,1.4,0.44\n",
        [625, 1250, 1875], [625, 625, 625], [0.1128, 0.1, 0.1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_logs_of_programs_without_an_importer_are_read_by_patterns_alone(log, name):
    patterns, content, steps, windows, times = PROGRAMS[name]
    run = read(log, content, **patterns)
    assert list(run.steps.step) == steps and list(run.steps.window_steps) == windows
    found = [time if time == time else None for time in run.steps.step_time_s]
    assert found == [time and pytest.approx(time, rel=1e-9) for time in times]
    expected = {"timm": [(1, 0.025)]}
    assert [(e.get("epoch"), e["top1"]) for e in run.evals] == expected.get(name, [])
    assert run.columns.get("global_batch") == {"nanotron": 1020}.get(name)
    assert not any("left out: a step" in note for note in run.notes)


def test_lines_of_one_epoch_of_mxnet_are_one_evaluation_and_epochs_count_from_1(log):
    held_out = "INFO:root:Epoch[0] Validation-accuracy=0.5\nEpoch[0] Validation-cross-entropy=1.5\n"
    later = "Epoch[1] Batch [2]\tSpeed: 512.00 samples/sec\nEpoch[1] Validation-accuracy=0.75\n"
    (run,) = read_kind("mxnet", log, mxnet(0.125, 3) + held_out + later)
    run.complete(run.columns | {"global_batch": 64})
    assert (list(run.steps.step), list(run.steps.window_steps)) == (
        [2, 3, 4, 5, 8],
        [1, 1, 1, 1, 2],
    )
    first, second = run.evals
    assert first == {"split": "validation", "epoch": 1, "top1": 0.5, "loss": 1.5}
    assert second == {"split": "validation", "epoch": 2, "top1": 0.75}


def test_numbers_in_quotes_of_later_versions_of_transformers_are_read(log):
    content = (
        "{'loss': '1.25', 'grad_norm': '1.1', 'learning_rate': '1e-05', 'epoch': '1'}\n"
        "{'eval_loss': '1.5', 'eval_accuracy': '0.75', 'eval_runtime': '0.2', 'epoch': '1'}\n"
        "{'train_runtime': '225.8', 'train_samples_per_second': '3.543', "
        "'train_steps_per_second': '0.886', 'train_loss': '1.211', 'epoch': '1'}\n"
    )
    (run,) = read_kind("hf_console", log, content)
    run.complete(run.columns)
    assert run.columns["images_per_second"] == 3.543
    assert run.columns["step_time_mean_s"] == pytest.approx(1 / 0.886)
    assert run.evals == [{"split": "validation", "loss": 1.5, "top1": 0.75}]


def test_iterations_of_nanogpt_with_an_evaluation_in_their_time_have_none(log):
    """Lines that a user published, on a GTX 1060."""
    content = """step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2675, time 124253.06ms, mfu -100.00%
iter 10: loss 3.2455, time 867.98ms, mfu 0.43%
step 750: train loss 1.3600, val loss 1.5800
saving checkpoint to out-shakespeare-char
iter 750: loss 1.4245, time 120214.49ms, mfu 0.38%
iter 760: loss 1.4523, time 876.03ms, mfu 0.38%
"""
    log.write_text(content)
    (row,) = import_logs.import_paths([log], {"global_batch": 64}).rows
    assert row["step_time_mean_s"] == pytest.approx((0.86798 + 0.87603) / 2)
    assert row["steps_measured"] == 2 and "2 steps contain an evaluation" in row["notes"]
    (run,) = read_kind("nanogpt", log, content)
    assert [row["loss"] for row in run.evals] == [4.2823, 1.58]
    assert list(run.steps.step) == [1, 11, 751, 761] and run.steps.loss[2] == 1.4245


def test_deepspeed_s_running_means_give_the_time_of_all_steps(log):
    """Lines of EleutherAI's and Microsoft's users, of 2023."""
    content = """[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.99e-05, 4.99e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
[2023-11-07 02:13:41,417] [INFO] [timer.py:260:stop] epoch=0/micro_step=1800/global_step=450, RunningAvgSamplesPerSec=25.72280894083983, CurrSamplesPerSec=25.811997512605966, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
"""  # noqa: E501
    log.write_text(content)
    (row,) = import_logs.import_paths([log], {"global_batch": 64}).rows
    assert row["images_per_second"] == pytest.approx(25.72280894083983)
    assert (row["steps_measured"], row.get("burn_in_steps")) == (448, None)
    (run,) = read_kind("deepspeed", log, content)
    assert {one["name"]: (one["value"], one["unit"]) for one in run.metrics} == {
        "skipped_steps": (4, "steps"),
        "max_memory_allocated_gib": (38.49, "GiB"),
    }


def test_a_log_of_megatron_with_deepspeed_s_lines_is_one_of_megatron(log):
    log.write_text(megatron(0.125, 6) + deepspeed(0.125, 6))
    (row,) = import_logs.import_paths([log]).rows
    assert row["timing_source"] == "megatron"


def test_ranks_of_a_finished_log_that_disagree_are_runs_of_their_own(log):
    content = of_ranks(nanogpt(0.125, 8).encode(), nanogpt(0.5, 8).encode())
    assert len(read_kind("nanogpt", log, content)) == 2


# Of 2023, 2025 (with a mixture of experts' loss, and that of further tokens), and 2026.
MAXTEXT = {
    "2023": "TFLOP/s: 36.722, loss: {loss}",
    "2025": "TFLOP/s/device: 134.9, Tokens/s/device: 8672.7, total_weights: 196608, loss: {loss}, "
    "main_model_loss: 5.9, mtp_loss: 0.2",
    "2026": "TFLOP/s/device: 134.9, Tokens/s/device: 8672.7, total_weights: 64, loss: {loss}, "
    "lm_loss: 5.500, perplexity: 244.692, moe_lb_loss: 0.010",
}


@pytest.mark.parametrize("year", MAXTEXT)
def test_steps_of_maxtext_have_the_loss_that_is_minimised(log, year):
    lines = [f"completed step: {step}, seconds: 0.{step + 25:03}, " for step in range(8)]
    lines = [f"{line}{MAXTEXT[year]}\n".format(loss=f"6.10{n}") for n, line in enumerate(lines)]
    lines.insert(4, "completed profiler activation/deactivation step: 4, loss: 9\n")
    (run,) = read_kind("maxtext", log, "".join(lines))
    assert list(run.steps.step) == list(range(1, 9))
    assert list(run.steps.step_time_s)[-3:] == [0.030, 0.031, 0.032]
    assert list(run.steps.warm_up) == [True] * 5 + [False] * 3
    assert list(run.steps.loss) == [float(f"6.10{step}") for step in range(8)]


def test_what_maxtext_prints_of_its_config_and_of_evaluations_is_read(log):
    content = maxtext(0.5, 8) + (
        "eval metrics after step: 3, loss=9.420, total_weights=75264.0\n"
        "Completed eval after train step 7, loss=8.000, perplexity=2980.958, total_weights=5\n"
        "Completed eval step: 8, seconds: 0.100, running loss=1.000\n"
    )
    (run,) = read_kind("maxtext", log, content)
    settings = ("global_batch", "devices", "item_shape", "model", "framework_version")
    assert [run.columns[name] for name in settings] == [64, 1, "128", "llama3-8b", "0.7.2"]
    assert [(row["step"], row["loss"]) for row in run.evals] == [(3, 9.42), (7, 8.0)]
    assert run.evals[1]["perplexity"] == 2980.958
    # A log without config has the rate of a device that each line states.
    (run,) = read_kind("maxtext", log, content[content.index("completed") :])
    run.complete(run.columns)
    assert run.columns["tokens_per_second_per_device"] == 64 * 128 / 0.5


def test_lines_of_nemo_and_of_megatron_bridge_are_read_as_their_users_have_them(log):
    # NVIDIA/dgxc-benchmarking, llama3.1/README.md; lines with rates, of 20 November 2025.
    rates = "tokens_per_sec_per_gpu: 1.074e+04 | TFLOPS_per_GPU: 601.5"
    ends = ("12.39 | consumed_samples: 6400", f"12.21 | {rates}")
    content = "".join(
        f"[2025-11-20T14:55:35+08:00] retraining/0 Training epoch 0, iteration {n}/99 | lr: 7e-6 | "
        f"global_batch_size: 128 | global_step: {n} | reduced_train_loss: 11.96 | "
        f"train_step_timing in s: {end}\n"
        for n, end in enumerate(ends, 49)
    )
    (run,) = read_kind("nemo", log, content)
    assert (list(run.steps.step), list(run.steps.step_time_s)) == ([50, 51], [12.39, 12.21])
    assert (run.columns["global_batch"], run.columns["final_loss"]) == (128, 11.96)
    run.complete(run.columns)
    assert run.columns["tokens_per_second_per_device"] == pytest.approx(10740)
    (metric,) = run.metrics
    assert (metric["name"], metric["value"]) == ("model_tflops_per_device", 601.5)
    # NVIDIA/cloudai, tests of megatron_bridge; a first step with compiling, as its users report.
    content = megatron_bridge(9.089, 20).replace("(ms): 9089.0", "(ms): 125370.0", 1)
    (run,) = read_kind("megatron_bridge", log, content)
    assert list(run.steps.warm_up) == [1] * 5 + [0] * 15
    assert list(run.steps.step_time_s) == [125.37, *[9.089] * 19]
    assert (run.columns["item_shape"], run.metrics[0]["value"]) == ("128", 660.0)
