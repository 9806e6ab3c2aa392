"""Importers of language models' trainers: Megatron-LM, torchtitan, Composer."""

import math

import pytest

from dlbench.imports import table_rows
from dlbench.imports.log_file import LogError
from support.logs import trainer_samples
from support.logs.reading_logs import notes, read
from support.logs.trainer_samples import megatron_line, titan_lines, titan_step


def row(imported, **fields):
    """The row of the runs table of what an importer read, with columns that the user gives."""
    run = table_rows.merge([table_rows.Source(imported, "kind", "log", "0" * 64)])
    table_rows.complete(run, {"--fields": fields}, "log")
    return table_rows.run_row(run, "run", "0" * 64, None)


# Megatron-LM


def arguments(**values):
    lines = "".join(f"  {name} {'.' * (48 - len(name))} {v}\n" for name, v in values.items())
    return f"------------------------ arguments ------------------------\n{lines}"


def megatron(*lines, total=100):
    return "".join(megatron_line(iteration, total, ms) for iteration, ms in lines)


def test_todays_line_of_megatron_is_read_as_its_own_repository_has_it(log):
    # NVIDIA/Megatron-LM#756, of 6 April 2024; 16 H100, as its author says.
    rest = (
        "| learning rate: 1.420000E-05 | global batch size:   128 | lm loss: {} | "
        "load_balancing_loss: 1.013377E+00 | loss scale: 1.0 | grad norm: 1.300 | num zeros: 0.0 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )
    content = "".join(
        f" [2024-04-06 03:02:{second}] iteration       {n}/     100 | consumed samples:         "
        f"{128 * n} | elapsed time per iteration (ms): {time_ms} | throughput per GPU "
        f"(TFLOP/s/GPU): {tflops} {rest.format(loss)}"
        for second, n, time_ms, tflops, loss in (
            (12, 71, 5361.6, 243.6, "1.818812E+00"),
            (18, 72, 5470.7, 238.7, "1.820313E+00"),
            (24, 73, 5829.9, "224.0", "1.798953E+00"),
        )
    )
    (run,) = read("megatron", log, content)
    assert run.columns["global_batch"] == 128
    assert list(run.steps.step_time_s) == pytest.approx([5.3616, 5.4707, 5.8299])
    assert list(run.steps.loss) == [1.818812, 1.820313, 1.798953]
    assert (run.status, run.message) == ("failed", "the log ends at iteration 73 of 100")
    assert "235.4 TFLOP/s per device by Megatron's own count" in notes(run)
    assert row(run, item_shape="4096")["tokens_per_second"] == pytest.approx(128 * 4096 / 5.8299)


def test_the_old_line_of_megatron_is_read_too(log):
    # epfLLM/Megatron-LLM#11, of 2023.
    rest = (
        "| learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss "
        "scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan "
        "iterations:   0 |\n"
    )
    content = "".join(
        f" iteration      {n}/  250000 | consumed samples:       {1024 * n} | elapsed time per "
        f"iteration (ms): {time_ms} {rest}"
        for n, time_ms in ((122, 86545.2), (123, 87871.6))
    )
    (run,) = read("megatron", log, content)
    assert list(run.steps.step) == [122, 123]
    assert run.columns["global_batch"] == 1024
    assert list(run.steps.warm_up) == [1, 1]


def test_the_first_iteration_of_megatron_is_taken_out_of_the_mean_that_has_it_again(log):
    # 9 s, then 1 s each: the mean of the first ten is 1.8 s.
    content = arguments(log_interval=10) + megatron((1, 9000), (10, 1800), (20, 1000))
    (run,) = read("megatron", log, content)
    assert list(run.steps.step_time_s) == pytest.approx([9, 1, 1])
    assert list(run.steps.window_steps) == [1, 9, 10]
    assert list(run.steps.warm_up) == [1, 0, 0]


def test_without_a_line_for_the_first_iteration_the_first_window_is_the_warm_up(log):
    (run,) = read("megatron", log, megatron((10, 1800), (20, 1000), (30, 500)))
    assert list(run.steps.window_steps) == [10, 10, 10]
    assert row(run)["step_time_mean_s"] == 0.75
    # A line that is missing does not stretch the next window.
    (run,) = read("megatron", log, megatron((2, 1000), (2, 1000), (3, 500), (4, 500)))  # damaged
    assert list(run.steps.step_time_s) == [1.0, 0.5, 0.5]
    (run,) = read("megatron", log, megatron((10, 900), (20, 1000), (30, 1000), (60, 400)))
    assert list(run.steps.window_steps) == [10, 10, 10, 10]


def test_arguments_of_megatron_become_columns(log):
    output = arguments(world_size=16, seq_length=4096, train_iters=100, lr=0.1, seed=1234)
    (run,) = read("megatron", log, output + megatron((10, 900), (20, 1000), (100, 1000)))
    found = row(run)
    items = {"devices": 16, "item_shape": "4096", "item": "sequence", "batch_per_device": 4}
    assert (items | {"steps": 100, "seed": 1234, "status": "ok"}).items() <= found.items()
    assert found["tokens_per_second"] == 64 * 4096


def test_batches_of_megatron_that_grow_give_the_items_of_all_windows_over_their_time(log):
    lines = [(10, 1000, 32), (20, 1000, 32), (30, 1000, 64)]
    content = "".join(megatron_line(n, 30, ms, batch) for n, ms, batch in lines)
    (run,) = read("megatron", log, content)
    assert "global_batch" not in run.columns
    assert run.columns["images_per_second"] == 48
    assert "global batches from 32 to 64" in notes(run)


def test_iterations_that_begin_anew_and_arguments_begin_another_run_of_megatron(log):
    part, slower = megatron((10, 900), (20, 1000)), megatron((10, 1900), (20, 2000))
    content = arguments(world_size=8) + part + slower + arguments(world_size=4) + part
    runs = read("megatron", log, content)
    assert [run.columns["devices"] for run in runs] == [8, 8, 4]
    assert len(read("megatron", log, content + arguments(world_size=2))) == 3


def test_validations_of_megatron_are_rows_of_evals(log):
    content = megatron((10, 900), (20, 1000)) + (
        " validation loss at iteration 20 on validation set | lm loss value: 2.5E+00 | "
        "lm loss PPL: 1.218249E+01 | \n"
    )
    (run,) = read("megatron", log, content)
    assert run.evals == [{"split": "validation", "step": 20, "loss": 2.5, "perplexity": 12.18249}]


def test_seconds_of_deepspeeds_fork_and_skipped_iterations(log):
    content = megatron_line(10, 20, 1.5, skipped=3).replace("(ms)", "(s)")
    content += megatron_line(20, 20, 0.5).replace("(ms)", "(s)")
    (run,) = read("megatron", log, content)
    assert list(run.steps.step_time_s) == [1.5, 0.5]
    assert "3 iterations were skipped" in notes(run)


def test_a_log_of_megatron_is_known_by_its_arguments_if_these_are_long(log):
    long = arguments(tensor_model_parallel_size=2, **{f"x{n}": 1 for n in range(2000)})
    (run,) = read("megatron", log, long + megatron((10, 900), (20, 1000)))
    assert "tensor_model_parallel_size 2" in notes(run)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("megatron", megatron((10, 900)).replace("900.0000", "nan"), "no iteration with a time"),
        ("composer", "[metric][batch=0]: time/batch: 0 \n", "no loss and no throughput"),
    ],
)
def test_a_log_without_a_number_of_a_step_is_refused(log, kind, content, message):
    with pytest.raises(LogError, match=message):
        read(kind, log, content)


def test_rates_and_sequences_of_megatron_deepspeed_give_its_devices(log):
    more = "| actual seqlen:  4096 | tokens per gpu per second (tgs): 2048.1 | TFLOPs: 69.85 |\n"
    content = megatron((10, 900), (20, 1000)).replace("|\n", more)
    (run,) = read("megatron", log, content)
    found = row(run)
    assert (found["item_shape"], found["devices"]) == ("4096", 128)
    # Of a log with no more lines than the warm-up has, that is said.
    (run,) = read("megatron", log, content.splitlines(keepends=True)[0])
    assert "all lines of steps are warm-up: none of them is measured" in row(run)["notes"]


# torchtitan

EIGHT_RANKS = "".join(  # pytorch/torchtitan#2389
    f"[titan] 2026-02-24 19:46:{second} - root - INFO - step:  {step}  loss:  {loss}  grad_norm: "
    f"26.6250  memory: 66.91GiB(37.51%)  tps: {tps}  tflops: 314.71  mfu: 13.99%\n"
    for second, step, loss, tps in (
        ("17,508", 4, "7.62585", "10,050"),
        ("17,508", 4, "7.62585", "10,049"),
        ("19,145", 5, "7.07623", "10,007"),
    )
)


def titan(*steps, head=()):
    return titan_lines(*head, *(titan_step(*step) for step in steps))


def test_tokens_per_second_of_torchtitan_are_of_a_device_and_ranks_print_alike(log):
    (run,) = read("torchtitan", log, EIGHT_RANKS)
    assert list(run.steps.step) == [4, 5]
    assert "the same step again: of another rank" in notes(run)
    assert run.columns["peak_reserved_bytes_per_device"] == round(66.91 * 2**30)
    found = row(run, devices=8, item_shape="4096")
    assert found["tokens_per_second"] == pytest.approx(8 * 10007)
    assert found["images_per_second"] == pytest.approx(8 * 10007 / 4096)
    assert "step_time_mean_s" not in found


def test_with_the_batch_a_line_of_torchtitan_is_a_window_of_steps(log):
    # As torchtitan's own log of 25 November 2025 has these lines.
    head = (
        "Building 1-D device mesh with ['dp_shard'], [8]",
        "Trainer is initialized with local batch size 8, global batch size 64, gradient "
        "accumulation steps 1, sequence length 2048, total steps 20 (warmup 2)",
        "Training starts at step 1",
    )
    (run,) = read("torchtitan", log, titan((1, 1000), (10, 16384), (20, 32768), head=head))
    found = row(run)
    # 64 x 2048 tokens on 8 devices, 16384 on each.
    assert list(run.steps.step_time_s) == [16.384, 1.0, 0.5]
    assert list(run.steps.window_steps) == [1, 9, 10]
    assert found["step_time_mean_s"] == pytest.approx(14 / 19)
    assert (found["devices"], found["batch_per_device"], found["status"]) == (8, 8, "ok")


def test_the_clock_of_torchtitan_begins_anew_after_a_validation(log):
    content = titan((10, 100)) + titan_lines(
        "validate step: 15  loss:  7.5000  memory:  1.21GiB(0.86%)  tps: 900"
    )
    (run,) = read("torchtitan", log, content + titan((20, 100)))
    row(run, devices=1, item_shape="10", global_batch=1)
    assert list(run.steps.window_steps) == [1, 5]
    assert run.evals == [{"split": "validation", "step": 15, "loss": 7.5}]


def test_colours_and_lines_of_other_ranks_do_not_disturb_torchtitans_steps(log):
    content = titan((1, 10)) + titan_lines(titan_step(1, 7), rank="[rank3]:") + titan((2, 20))
    coloured = content.replace("step:", "\x1b[31mstep:").replace("loss:", "\x1b[32mloss:")
    (run,) = read("torchtitan", log, coloured)
    assert list(run.steps.step) == [1, 2]
    assert "of another rank" in notes(run)


def test_settings_of_torchtitan_are_read_as_they_were_printed_in_2025(log):
    head = (
        "Training starts at step 1, with local batch size 1, global batch size 8, sequence length "
    )
    head += "8192, total steps 100 (warmup 200)"
    (run,) = read("torchtitan", log, titan((1, 100), (10, 2048), head=[head]))
    found = row(run, devices=8)
    assert (found["global_batch"], found["status"]) == (8, "failed")
    assert (found["tokens_per_second"], found["step_time_mean_s"]) == (8 * 2048, 4)
    assert list(run.steps.window_steps) == [1, 9]


def test_todays_settings_of_torchtitan_count_tokens(log):
    head = (
        "Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=4",
        "Trainer is initialized with 8192 tokens per DP rank, 32768 tokens per train step, "
        "gradient accumulation steps 1, maximum context length 8192, total steps 20 (warmup 2)",
    )
    (run,) = read("torchtitan", log, titan((1, 10), (2, 20), head=head))
    assert (run.columns["devices"], run.columns["global_batch"]) == (16, 4)
    assert (run.status, run.message) == ("failed", "the log ends at step 2 of 20")


def test_steps_of_torchtitan_that_begin_anew_begin_another_run(log):
    runs = read("torchtitan", log, titan((1, 10), (2, 20)) + titan((1, 10), (2, 20)))
    assert [run.lines for run in runs] == [(1, 2), (3, 4)]
    # Each has its own settings; of one that was cut before its first step nothing is known.
    trained = [
        titan(
            *steps, head=[f"Trainer is initialized with global batch size {batch}, total steps 2"]
        )
        for batch, steps in ((8, [(1, 10), (2, 20)]), (16, [(2, 20)]), (32, []))
    ]
    runs = read("torchtitan", log, "".join(trained))
    assert [run.columns["global_batch"] for run in runs] == [8, 16]


def test_without_devices_torchtitans_rate_is_that_of_a_device_and_no_throughput(log):
    (run,) = read("torchtitan", log, titan((1, 10), (2, 20)))
    found = row(run)
    assert "images_per_second" not in found
    assert (found["tokens_per_second_per_device"], found["rate_uncertainty"]) == (20, 0.025)
    assert "20 tokens/s per device; for a throughput give devices and item_shape" in notes(run)


def dated(*steps, begin="21:00:00,000"):
    """A log of (step, its time of the day, tps, loss) of a pipeline of 16 devices."""
    head = (
        "Trainer is initialized with local batch size 2, global batch size 2, sequence length "
        "4096, total steps 3 (warmup 2).",
        "Training starts at step 1.",
    )
    content = titan_lines(*head).replace("19:45:01,441", begin)
    for step, date, tps, loss in steps:
        line = titan_lines(titan_step(step, tps))
        line = line.replace("19:45:01,441", date)
        content += line.replace(f"loss: {8 - step / 1000:8.5f}", f"loss: {loss}")
    return content


SLOW = (  # pytorch/torchtitan#1232: 61.24 s a step are 8.36 tokens/s on each of 16 devices
    (1, "21:02:00,190", 4, "-1.0000"),
    (2, "21:03:01,428", 8, "-1.0000"),
    (3, "21:04:02,670", 8, "-1.0000"),
)


def test_where_torchtitans_rate_is_rounded_times_are_those_of_the_dates_of_lines(log):
    (run,) = read("torchtitan", log, dated(*SLOW))
    found = row(run, devices=16)
    assert list(run.steps.step_time_s) == pytest.approx([120.19, 61.238, 61.242])
    assert found["step_time_mean_s"] == pytest.approx(61.24)  # not 64, as 8 tokens/s would have it
    assert found["step_time_sd_s"] == pytest.approx(0.0028, abs=1e-4)
    assert found["tokens_per_second"] == pytest.approx(2 * 4096 / 61.24)
    assert found["tokens_per_second_per_device"] == pytest.approx(8.3606, abs=1e-4)
    assert "times by the dates of lines: tps is rounded" in found["notes"]


def test_a_rounded_rate_without_dates_has_its_uncertainty_and_no_times_of_windows(log):
    (run,) = read("torchtitan", log, dated(*((n, "21:00:00,000", *rest) for n, _, *rest in SLOW)))
    found = row(run, devices=16)
    assert math.isnan(run.steps.step_time_s[1])
    assert (found["step_time_mean_s"], found["rate_uncertainty"]) == (64, 1 / 16)
    assert "step_time_sd_s" not in found
    assert "which leaves 6.2% in doubt" in found["notes"]
    assert found.get("contradicts") is None


def test_the_loss_of_a_rank_without_one_is_null_or_that_of_another_rank(log):
    (alone,) = read("torchtitan", log, dated(*SLOW))
    assert all(map(math.isnan, alone.steps.loss))
    assert "final_loss" not in row(alone, devices=16)
    assert "loss -1 is no loss" in notes(alone)
    last = [(step, date, tps, f" {9 - step}.0000") for step, date, tps, _ in SLOW]
    other = dated(*last).replace("[rank0]", "[rank15]")
    lines = zip(dated(*SLOW).splitlines(True), other.splitlines(True), strict=True)
    (both,) = read("torchtitan", log, "".join(line for pair in lines for line in pair))
    assert list(both.steps.loss) == [8, 7, 6]


# Composer

SHEARING = """[batch=366/48000]:
         Train time/batch: 365
         Train time/sample: 93440
         Train time/token: 382730240
         Train memory/alloc_retries: 0
         Train loss/train/total: 10.3750
         Train throughput/samples_per_sec: 2.7330
         Train throughput/device/samples_per_sec: 0.1708
"""  # princeton-nlp/LLM-Shearing#24, but for the rates: of AMD's page on mpt-30b, of 16 GPUs


def test_batch_tokens_and_devices_follow_from_composers_metrics(log):
    (run,) = read("composer", log, SHEARING)
    names = ("global_batch", "item_shape", "devices")
    assert [run.columns[name] for name in names] == [256, "4096", 16]
    assert (list(run.steps.step), list(run.steps.loss)) == ([366], [10.375])
    assert row(run)["images_per_second"] == pytest.approx(2.733)
    assert "which may overlap" in notes(run)


def blocks(rates, first=1):
    lines = []
    for batch, rate in enumerate(rates, start=first):
        metrics = [("time/batch", batch - 1), ("time/sample", 64 * (batch - 1))]
        metrics += [("loss/train/total", 2.0)] + [("throughput/samples_per_sec", rate)] * bool(rate)
        lines += trainer_samples.composer_block(batch, len(rates), *metrics)
    return "".join(lines)


def test_rolling_means_of_composer_that_do_not_overlap_are_windows(log):
    # Rates from batch 4 on: a window is three batches. The second one took twice as long.
    (run,) = read("composer", log, blocks([None] * 3 + [64.0, 60.0, 50.0, 32.0]))
    found = row(run)
    measured = [time for time in run.steps.step_time_s if not math.isnan(time)]
    assert measured == [1.0, 2.0]
    assert found["step_time_mean_s"] == 1.5
    assert found["steps_measured"] == 6


def test_a_log_of_composer_that_begins_late_has_no_windows_but_a_throughput(log):
    (run,) = read("composer", log, blocks([32.0, 64.0], first=40))
    found = row(run)
    assert "step_time_mean_s" not in found
    assert found["images_per_second"] == pytest.approx(2 / (1 / 32 + 1 / 64))


def test_the_file_logger_of_composer_counts_a_loss_one_batch_later_than_a_rate(log):
    # Lines as tests/loggers/test_file_logger.py of composer expects them.
    content = "[hyperparameter]: num_nodes: 1 \n"
    for done in range(1, 5):
        content += f"[metric][batch={done - 1}]: time/batch: {done - 1} \n"
        content += f"[metric][batch={done - 1}]: time/sample: {64 * (done - 1)} \n"
        content += f"[metric][batch={done - 1}]: loss/train/total: {9 - done}.0000 \n"
        if done > 1:
            content += f"[metric][batch={done}]: throughput/samples_per_sec: 64.0000 \n"
    content += "[metric][batch=4]: metrics/eval/MulticlassAccuracy: 0.2500 \n"
    content += "[metric][batch=4]: metrics/eval/MulticlassF1Score: 0.2000 \n"
    (run,) = read("composer", log, content)
    assert list(run.steps.step) == [1, 2, 3, 4]
    assert list(run.steps.loss) == [8, 7, 6, 5]
    assert row(run)["step_time_mean_s"] == 1.0
    assert run.evals == [{"split": "validation", "step": 4, "top1": 0.25}]
    assert "left out: metrics/eval/MulticlassF1Score" in notes(run)


def test_evaluations_on_composers_console_belong_to_the_batch_before_them(log):
    content = blocks([None] * 2) + (
        "[Eval batch=1/2] Eval on eval data\n[Eval batch=2/2] Eval on eval data:\n"
        "\t Eval metrics/eval/LanguageCrossEntropy: 2.5000\n"
        "\t Eval metrics/eval/LanguagePerplexity: 12.1825\n"
    )
    (run,) = read("composer", log, content)
    assert run.evals == [{"split": "validation", "step": 2, "loss": 2.5, "perplexity": 12.1825}]
