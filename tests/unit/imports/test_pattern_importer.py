"""pattern_importer: whose lines count, what fails a run, and which lines come near to a pattern."""

import pytest

from dlbench.imports import import_logs, kinds
from dlbench.imports.log_file import LogError, LogFile
from support.logs.reading_logs import notes
from support.logs.reading_logs import read as read_kind
from support.logs.rewritten_logs import of_ranks
from support.logs.trainer_samples import deepspeed, hf_console, maxtext, megatron, nanogpt

STEP = r"step (?P<step>\d+) loss (?P<loss>\S+) took (?P<step_time_ms>\S+) ms"


def lines(time_ms=125, steps=5, loss=8):
    return "".join(
        f"step {step} loss {loss - step / 100} took {time_ms} ms\n" for step in range(1, steps + 1)
    )


def read(log, content, processes=1, **patterns):
    """The run of a log that a config's patterns read."""
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
    monkeypatch.setattr("dlbench.imports.pattern_reading.pattern_importer.BATCH_BYTES", 1)
    assert read(log, content).steps == whole.steps and len(whole.steps) == 40_000


def test_a_finished_log_whose_rate_is_missing_is_of_a_failed_run(log):
    content = hf_console(0.125, 8)
    (run,) = read_kind("hf_console", log, content)
    assert run.status == "ok" and run.columns["images_per_second"] == 512
    (cut,) = read_kind("hf_console", log, content[: content.index("{'train_runtime'")])
    assert cut.status == "failed" and cut.columns["final_loss"] == 7.992


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
