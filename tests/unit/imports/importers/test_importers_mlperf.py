"""mlperf: intervals, the items in them, and ends of MLPerf's logs."""

import gzip

import pytest

from dlbench.imports.importers import mlperf
from dlbench.imports.log_file import LogError
from support.logs.log_samples import BEGAN
from support.logs.mlperf_lines import (
    BEGIN,
    END,
    POINT,
    SOON,
    START,
    SUCCESS,
    blocks,
    epochs,
    evaluation,
    lines,
    stated,
    success,
)
from support.logs.reading_logs import notes, read


@pytest.fixture(autouse=True)
def an_epoch_of_resnet_may_have_1000_items(monkeypatch):
    sets = [(1000, 1000), *mlperf.EPOCH_ITEMS["resnet"]]
    monkeypatch.setitem(mlperf.EPOCH_ITEMS, "resnet", sets)


def test_the_rate_of_mlperf_is_the_items_of_its_epochs_over_their_time(log):
    # 2 x 1000 items in 10 + 30 s; the evaluations between them do not count.
    (run,) = read("mlperf", log, BEGIN + epochs((0, 10_000), (15_000, 45_000)) + SUCCESS)
    assert run.columns["images_per_second"] == 50.0
    assert run.columns["duration_s"] == 60.0
    assert run.columns["time_to_accuracy_s"] == 60.0
    assert run.columns["started_at"] == BEGAN
    assert "2000 items (epochs x train_samples 1000) in 2 intervals (epoch), 40 s" in notes(run)


def test_samples_that_were_counted_come_before_those_of_whole_epochs(log):
    content = lines(
        (0, START, "block_start", None, {"first_epoch_num": 1, "samples_count": 0}),
        (10_000, END, "block_stop", None, {"first_epoch_num": 1, "samples_count": 640}),
        (20_000, START, "block_start", None, {"samples_count": 640}),
        (30_000, END, "block_stop", None, {"samples_count": 1600}),
    )
    (run,) = read("mlperf", log, BEGIN + content + success(31_000))
    assert run.columns["images_per_second"] == 80.0  # 1600 in 20 s
    (run,) = read("mlperf", log, BEGIN + blocks((0, 40_000), epoch_count=4) + SUCCESS)
    assert run.columns["images_per_second"] == 100.0  # 4 epochs of 1000 in 40 s


def test_the_throughput_of_a_submitter_is_a_note_and_no_rate_of_ours(log):
    content = lines(
        (1, POINT, "tracked_stats", {"throughput": 90.0}, {"step": 1}),
        (2, POINT, "tracked_stats", {"throughput": 110.0}, {"step": 2}),
    )
    (counted,) = read("mlperf", log, BEGIN + epochs((0, 20_000)) + content + success(21_000))
    (alone,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert counted.columns["images_per_second"] == 50.0
    assert "images_per_second" not in alone.columns
    assert alone.columns["time_to_accuracy_s"] == 60.0
    for run in (counted, alone):
        assert "throughput as submitted: 100, mean of 2: of a device or of all" in notes(run)


def test_epochs_that_are_steps_of_the_schedule_are_counted_as_steps(log):
    # Google/results/gpu-v100-8-TF2.0/bert/result_0.txt of mlcommons/training_results_v0.7.
    bounds_ms = [(25, 1_950_196), (1_950_228, 3_891_910), (3_891_939, 5_832_632)]
    bounds_ms += [(5_832_663, 7_773_673), (7_773_704, 9_711_648), (9_711_678, 11_649_943)]
    content = stated("bert", 440, 3_565_320, ("opt_learning_rate_training_steps", 8103))
    content += blocks(*bounds_ms, epoch_count=1137) + success(11_712_700)
    (run,) = read("mlperf", log, content)
    assert round(run.columns["images_per_second"], 1) == 257.7
    assert "3001680 items (epoch_count, which is of steps here" in notes(run)


SCHEDULE = ("opt_learning_rate_training_steps", 2000)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("maskrcnn", 48, 80_000), "an epoch of maskrcnn has 117266 to 118287 items"),
        (("transformer", 512, 566_340), "an epoch of transformer has 4590101 items"),
        (("minigo", 8192, 8192), "an epoch of minigo has no number of items"),
        (("bert", 440, 4_000_000), "an epoch of bert has no number of items"),
        (("resnet", 1000, 1_281_167, SCHEDULE), "more than the schedule's 2000 steps"),
        ((None, 256, 4572), "no submission_benchmark"),  # batches of RetinaNet
        ((None, 256, 256_000, ("opt_learning_rate_training_steps", 1000)), "no submission_bench"),
    ],
)
def test_samples_of_mlperf_that_are_no_epoch_give_no_rate_and_say_why(log, said, why):
    content = stated(*said) + epochs((0, 10_000), (20_000, 30_000))
    (run,) = read("mlperf", log, content + SUCCESS)
    assert "images_per_second" not in run.columns
    assert "no items per second" in notes(run)
    assert why in notes(run)
    assert run.columns["time_to_accuracy_s"] == 60.0


def test_epochs_whose_last_batch_is_left_out_count(log):
    content = stated("resnet", 4096, 312 * 4096) + epochs((0, 10_000))
    (run,) = read("mlperf", log, content + SOON)
    assert run.columns["images_per_second"] == 31.2 * 4096


def test_samples_that_are_printed_after_the_only_epoch_are_what_was_trained(log):
    content = lines((0, POINT, "submission_benchmark", "bert", {})) + epochs((0, 50_000))
    after = lines((50_000, POINT, "train_samples", 4000, {}))
    start = lines((0, START, "run_start", None, {}))
    for end in (SUCCESS, success(50_000), success(49_999)):  # the log's order of events varies
        (run,) = read("mlperf", log, start + content + after + end)
        assert run.columns["images_per_second"] == 80.0


def test_evaluations_within_a_block_are_no_time_of_training(log):
    content = lines((0, START, "block_start", None, {"epoch_count": 1}))
    content += evaluation(40_000, 50_000, 1) + lines((50_000, END, "block_stop", None, {}))
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert run.columns["images_per_second"] == 25.0  # 1000 in 40 s
    assert "evaluations run" not in notes(run)
    # Of one whose time is unknown that is said.
    content = lines((0, START, "block_start", None, {}), (40_000, END, "block_stop", None, {}))
    score = lines((30_000, POINT, "eval_accuracy", 0.5, {"epoch_num": 1}))
    (run,) = read("mlperf", log, BEGIN + content + score + SUCCESS)
    assert run.columns["images_per_second"] == 25.0
    assert "in 1 of the intervals evaluations run" in notes(run)


def test_blocks_between_which_the_run_spends_its_time_give_no_rate(log):
    # As Google's DLRM and Transformer have them: of evaluation, trained is between them.
    content = lines((40_000, START, "block_start", None, {}))
    content += evaluation(40_100, 40_400, 1) + lines((42_000, END, "block_stop", None, {}))
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert "images_per_second" not in run.columns
    assert "58 s of the run lie in none of them" in notes(run)
    # Nor does an epoch that may have been left before its end.
    content = epochs((0, 50_000)) + evaluation(20_000, 21_000, 1.05)
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert "images_per_second" not in run.columns
    assert "perhaps left before its end" in notes(run)


@pytest.mark.parametrize(("steps", "believed"), [(10, True), (100, False)])
def test_items_of_mlperf_are_believed_where_the_steps_agree(log, steps, believed):
    content = lines((0, POINT, "global_batch_size", 100, {})) + lines(
        *(
            (time_ms, kind, f"epoch_{word}", None, {"epoch_num": n, "current_iter_num": steps * n})
            for n, pair in enumerate([(0, 20_000), (20_000, 40_000)])
            for time_ms, kind, word in zip(pair, (START, END), ("start", "stop"), strict=True)
        )
    )
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert run.columns.get("images_per_second") == (50.0 if believed else None)
    assert ("100 x 100 by steps" in notes(run)) is not believed


def test_evaluations_of_mlperf_count_their_time_from_run_start(log):
    content = lines((5_000, POINT, "eval_accuracy", 0.5, {"epoch_num": 3}))
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    score = {"score": 0.5, "score_name": "top-1 accuracy", "top1": 0.5}
    assert run.evals == [{"split": "validation", "epoch": 3, "t_s": 5.0} | score]


@pytest.mark.parametrize(
    ("benchmark", "metadata", "name"),
    [
        ("ssd", {}, "mAP"),
        ("bert", {"epoch_num": 2_030_855}, "accuracy of masked words"),  # which counts samples
        ("stable_diffusion", {"metric": "FID"}, "FID"),
        ("a_new_one", {}, "eval_accuracy"),
    ],
)
def test_scores_of_other_benchmarks_are_named_and_no_top1(log, benchmark, metadata, name):
    content = lines((0, POINT, "submission_benchmark", benchmark, {})) + BEGIN
    content += lines((5, POINT, "eval_accuracy", 20.5, metadata))
    (run,) = read("mlperf", log, content + SUCCESS)
    assert run.evals == [{"split": "validation", "score": 20.5, "score_name": name, "t_s": 0.005}]
    assert f"the last {name} is 20.5" in notes(run)


def test_a_fine_tuning_of_todays_rounds_has_its_loss_time_and_throughput(log):
    # Lines that Microsoft's page on llama2_70b_lora of round 4.1 shows; settings as its rules say.
    def line(time_ms, kind, key, value, **metadata):
        return f"0: {lines((time_ms, kind, key, value, metadata))}"

    content = (
        line(0, POINT, "submission_benchmark", "llama2_70b_lora")
        + line(0, POINT, "global_batch_size", 8)
        + line(0, POINT, "max_sequence_length", 8192)
        + line(0, START, "run_start", None)
        + line(606_541, START, "block_start", None, samples_count=2688)
        + line(805_975, POINT, "tracked_stats", {"throughput": 1.9257918929116467}, step=3072)
        + line(805_975, END, "block_stop", None, samples_count=3072)
        + line(805_975, START, "eval_start", None, samples_count=3072)
        + line(850_352, POINT, "eval_accuracy", 0.9234074354171753, samples_count=3072)
        + line(850_352, END, "eval_stop", None, samples_count=3072)
        + line(850_352, END, "run_stop", None, samples_count=3072, status="success")
    )
    (run,) = read("mlperf", log, content)
    score = {"score": 0.9234074354171753, "score_name": "cross entropy"}
    score["loss"] = score["score"]
    assert run.evals == [{"split": "validation", "step": 384, "t_s": 850.352} | score]
    assert run.columns["item_shape"] == "8192"
    assert run.columns["time_to_accuracy_s"] == 850.352
    assert "the last cross entropy is 0.923407" in notes(run)
    # 384 sequences in 199.434 s; what was trained before the block is not in this excerpt.
    assert run.columns["images_per_second"] == pytest.approx(384 / 199.434)


@pytest.mark.parametrize("score", [float("nan"), 75.9, -0.1, "high", None])
def test_a_score_that_is_no_share_is_left_out_and_said(log, score):
    content = lines((5, POINT, "eval_accuracy", score, {}))
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert run.evals == []
    assert "line 4 left out" in notes(run)


@pytest.mark.parametrize(
    ("end", "message"),
    [("", "the log has no run_stop"), (SOON.replace("success", "aborted"), "run_stop: aborted")],
)
def test_a_run_of_mlperf_that_did_not_reach_its_target_failed(log, end, message):
    (run,) = read("mlperf", log, BEGIN + epochs((0, 10_000)) + end)
    assert (run.status, run.message) == ("failed", message)
    assert run.columns["images_per_second"] == 100.0
    assert "time_to_accuracy_s" not in run.columns


def test_namespaces_are_processes_of_one_run(log):
    content = ""
    for worker, late_ms in (("worker0", 0), ("worker1", 500)):
        content += lines(
            (0, POINT, "submission_benchmark", "resnet", {}),
            (late_ms, START, "run_start", None, {}),
            (0, POINT, "train_samples", 1000, {}),
            (late_ms, START, "epoch_start", None, {}),
            (10_000 + late_ms, END, "epoch_stop", None, {}),
            (10_000 + late_ms, POINT, "eval_accuracy", 0.5, {}),
            (11_000 + late_ms, END, "run_stop", None, {"status": "success"}),
            namespace=worker,
        )
    (run,) = read("mlperf", log, content)
    assert run.columns["images_per_second"] == 100.0  # not twice the items
    assert run.columns["duration_s"] == 11.5
    assert len(run.evals) == 1
    assert "namespaces 'worker0', 'worker1'" in notes(run)


def test_another_run_start_begins_the_next_run(log):
    first, second = read("mlperf", log, (BEGIN + epochs((0, 10_000)) + SOON) * 2)
    assert first.columns["images_per_second"] == 100.0
    assert second.columns["duration_s"] == 12.0
    assert second.lines[0] == first.lines[1] + 1


def test_other_output_and_labels_of_ranks_do_not_matter(log):
    content = "loading\n" + "".join(
        f"0: {line}" for line in (BEGIN + epochs((0, 10_000)) + SOON).splitlines(keepends=True)
    )
    (run,) = read("mlperf", log, gzip.compress(content.encode() + b"\xff\n"))
    assert run.columns["images_per_second"] == 100.0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (':::MLLOG {"namespace": "", "ti', "not an event"),
        (":::MLLOG " + "[" * 50_000, "not an event"),
        (':::MLLOG {"key": 3, "time_ms": 5}', "an event without a key"),
        (':::MLLOG {"key": "eval_accuracy", "time_ms": -5, "value": 1}', "without a time"),
        (':::MLLOG {"key": "eval_accuracy", "time_ms": 1e300, "value": 1}', "without a time"),
    ],
)
def test_a_damaged_line_of_mlperf_is_left_out_and_said(log, line, reason):
    (run,) = read("mlperf", log, f"{BEGIN}{line}\n{epochs((0, 10_000))}{SOON}")
    assert run.columns["images_per_second"] == 100.0
    assert "line 4 left out" in notes(run)
    assert reason in notes(run)


def test_an_epoch_that_ends_before_it_begins_does_not_count(log):
    (run,) = read("mlperf", log, BEGIN + epochs((10_000, 0), (20_000, 50_000)) + SUCCESS)
    assert run.columns["images_per_second"] == 1000 / 30
    assert "the end of an epoch that did not begin before it" in notes(run)
    with pytest.raises(LogError, match="line 1: no run_start and no measurement"):
        read("mlperf", log, lines((0, POINT, "seed", 1, {})))


@pytest.mark.parametrize("benchmark", ["retinanet", "ssd"])  # ssd is RetinaNet since v2.0
def test_batches_of_a_loader_are_counted_where_the_rules_name_the_items_of_an_epoch(log, benchmark):
    # As the logs of RetinaNet in round 5.0 have it: 4572 batches of 256 are 1170301 items.
    header = stated(benchmark, 256, 4572)
    content = epochs((0, 488_000), (519_000, 1_005_000), (1_035_000, 1_040_000))
    per_gpu = lines((1, POINT, "tracked_stats", {"throughput": 299.6}, {}))
    (run,) = read("mlperf", log, header + content + per_gpu + success(1_040_000))
    # The third epoch ends with the run, so perhaps before its end.
    assert run.columns["images_per_second"] == pytest.approx(2 * 4572 * 256 / 974)
    assert "1 intervals are left out: they end with the run" in notes(run)


def test_an_only_epoch_that_ends_with_the_run_gives_no_rate(log):
    (run,) = read("mlperf", log, BEGIN + epochs((0, 60_000)) + SUCCESS)
    assert "images_per_second" not in run.columns
    assert "no interval ends before the run" in notes(run)


def test_a_block_whose_stop_repeats_its_first_count_has_the_samples_until_the_next(log):
    # As NVIDIA's llama2_70b_lora of round 5.0: blocks of 1536 and 384, evaluated in between.
    content = lines(
        (0, START, "block_start", None, {"samples_count": 0}),
        (300_000, END, "block_stop", None, {"samples_count": 0}),
        (315_000, START, "block_start", None, {"samples_count": 1536}),
        (390_000, END, "block_stop", None, {"samples_count": 1536}),
        (405_000, START, "block_start", None, {"samples_count": 1920}),
        (480_000, END, "block_stop", None, {"samples_count": 1920}),
    )
    (run,) = read("mlperf", log, BEGIN + content + success(490_000))
    assert run.columns["images_per_second"] == 1920 / 375  # of the last nobody knows the samples
    assert "1920 items (samples_count) in 2 intervals (block), 375 s" in notes(run)


def test_samples_of_a_block_that_are_its_steps_times_the_batch_are_of_it_alone(log):
    # As NVIDIA's NeMo of round 5.1, where the first block has more steps than the others.
    content = ""
    for begin_ms, end_ms, steps in ((0, 200_000, (0, 192)), (210_000, 260_000, (192, 240))):
        items = {"samples_count": 8 * (steps[1] - steps[0])}
        content += lines(
            (begin_ms, START, "block_start", None, items | {"step": steps[0]}),
            (end_ms, END, "block_stop", None, items | {"step": steps[1]}),
        )
    (run,) = read("mlperf", log, stated("flux1", 8, 3840) + content + success(270_000))
    assert run.columns["images_per_second"] == 1920 / 250


def test_a_score_of_an_unknown_benchmark_is_no_top1(log):
    start = lines((0, START, "run_start", None, {}))
    content = start + lines((5, POINT, "eval_accuracy", 0.34, {})) + SUCCESS
    (run,) = read("mlperf", log, content)
    assert [(row["score_name"], row.get("top1")) for row in run.evals] == [("eval_accuracy", None)]


def test_a_block_of_an_evaluation_has_not_the_samples_that_are_trained_after_it(log):
    content = lines((40_000, START, "block_start", None, {"samples_count": 500}))
    content += evaluation(40_100, 40_400, 1)
    content += lines(
        (42_000, END, "block_stop", None, {"samples_count": 500}),
        (55_000, START, "block_start", None, {"samples_count": 900}),
    )
    (run,) = read("mlperf", log, BEGIN + content + SUCCESS)
    assert "images_per_second" not in run.columns
