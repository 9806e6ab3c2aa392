"""log_lines: launchers' prefixes are removed, and a run that several ranks print counts once."""

import random

import pytest

from dlbench.imports import import_logs, log_file, log_lines
from dlbench.imports.log_file import MAX_LINE_BYTES, LogError, LogFile
from support.logs import rewritten_logs
from support.logs.log_samples import KINDS, horovod_synthetic
from support.logs.reading_logs import described, notes, read
from support.logs.rewritten_logs import DATES, RANKS, after, lines_of_progress_bars, of_ranks
from support.logs.trainer_samples import imagenet_line, megatron

PRINTED = (  # kinds that are printed, and not written to a file of their own
    *("composer", "convnet_benchmarks", "horovod_synthetic", "megatron", "mlperf"),
    *("mxnet", "pytorch_imagenet", "tf_cnn_benchmarks", "torchtitan"),
)


@pytest.mark.parametrize("kind", PRINTED)
def test_a_log_reads_alike_with_what_launchers_and_loggers_write_before_lines(log, kind):
    content = KINDS[kind](0.125, 12).encode()
    plain = described(kind, log, content)
    for prefix in DATES + RANKS:
        assert described(kind, log, after(prefix)(content)) == plain, prefix
    # And all of it at once.
    changed = after(b"[1,0]<stdout>:")(content)
    for change in ("colours", "progress_bars", "carriage_returns", "utf_16"):
        changed = getattr(rewritten_logs, change)(changed)
    assert described(kind, log, changed) == plain
    # Lines of progress bars in between change no number.
    (changed,) = described(kind, log, lines_of_progress_bars(content))
    for name in ("columns", "steps", "evals", "status"):
        assert changed[name] == plain[0][name]


@pytest.mark.parametrize("kind", ["convnet_benchmarks", "horovod_synthetic", "megatron"])
def test_ranks_of_one_device_each_are_runs_of_their_own(log, kind):
    contents = [KINDS[kind](time_s, 20).encode() for time_s in (0.125, 0.5)]
    runs = read(kind, log, of_ranks(*contents))
    assert [run.columns["devices"] for run in runs] == [1, 1]
    times = [list(alone.steps.step_time_s) for c in contents for alone in read(kind, log, c)]
    assert [list(run.steps.step_time_s) for run in runs] == times
    assert "of rank 1, one of 2 that printed runs of one device each" in notes(runs[1])


@pytest.mark.parametrize("prefixes", [(b"0: ", b"1: "), (b"[1,0]<stdout>:", b"[1,1]<stdout>:")])
def test_ranks_that_print_a_run_of_several_devices_are_that_run_once(log, prefixes):
    content = megatron(0.5, 20).replace(" 1\n", " 2\n").encode()
    assert b"world_size ...................................... 2" in content
    (run,) = read("megatron", log, of_ranks(content, content, prefixes=prefixes))
    (alone,) = read("megatron", log, content)
    assert (run.columns, run.steps, run.evals) == (alone.columns, alone.steps, alone.evals)
    assert "2 ranks printed this run" in notes(run)
    assert "their times differ by 0.0%, losses by up to 0" in notes(run)


def test_of_ranks_that_differ_the_slower_one_counts_and_the_difference_is_noted(log):
    content = megatron(0.5, 20).replace(" 1\n", " 2\n")
    slower = content.replace("500.0000", "510.0000").replace("lm loss: 7.99", "lm loss: 7.89")
    (run,) = read("megatron", log, of_ranks(content.encode(), slower.encode()))
    assert set(run.steps.step_time_s) == {0.51}
    assert "rank 1, the slowest, is taken; their times differ by 2.0%, losses by up to 0.1" in (
        notes(run)
    )


def test_arguments_that_one_rank_prints_are_those_of_the_rank_that_prints_iterations(log):
    lines = megatron(0.5, 20).splitlines(keepends=True)
    (run,) = read(
        "megatron", log, "".join(f"{7 if 'elapsed' in line else 0}: {line}" for line in lines)
    )
    assert (run.columns["devices"], run.columns["item_shape"]) == (1, "128")


def test_lines_that_equal_ranks_print_without_a_prefix_count_once(log):
    content = megatron(0.5, 20).encode()
    twice = b"".join(line + line for line in content.splitlines(keepends=True))
    (run,) = read("megatron", log, twice)
    (alone,) = read("megatron", log, content)
    assert run.steps == alone.steps
    assert "20 lines of other ranks: the first of each iteration counts" in notes(run)
    assert "times differ by up to 0.0%" in notes(run)


@pytest.mark.parametrize(
    ("kind", "reason", "note"),
    [
        ("pytorch_imagenet", "times differ by .*mpirun --tag-output, srun --label", "do not agree"),
        ("tf_cnn_benchmarks", "2 programs printed into this log.*--tag-output", "rank 1, whose"),
        ("horovod_synthetic", "one step: two trainings.*--tag-output", "one of 2"),
    ],
)
def test_programs_that_do_not_wait_for_one_another_are_refused_unless_ranks_are_named(
    log, kind, reason, note
):
    contents = [KINDS[kind](time_s, 30).encode() for time_s in (0.125, 0.5)]
    with pytest.raises(LogError, match=reason):
        read(kind, log, of_ranks(*contents, prefixes=(b"", b"")))
    runs = read(kind, log, of_ranks(*contents))
    one, other = map(log_lines.mean_time_s, runs)
    assert other / one == pytest.approx(4) and note in notes(runs[1])
    assert [run.columns.get("devices", 1) for run in runs] == [1, 1]
    assert str(list(runs[1].steps.loss)) == str(list(runs[0].steps.loss))


def test_processes_that_begin_at_different_times_but_wait_for_one_another_are_one_run(log):
    def lines(first_s):
        times = ((first_s if n == 1 else 0.5, (first_s + 0.5 * (n - 1)) / n) for n in range(1, 51))
        content = "".join(f"{imagenet_line(0, n, 50, *t)}\n" for n, t in enumerate(times, start=1))
        return content.encode()

    (run,) = read("pytorch_imagenet", log, of_ranks(lines(5), lines(9), prefixes=(b"", b"")))
    assert "lines of several processes: the slower of each batch counts" in notes(run)
    (run,) = read("pytorch_imagenet", log, of_ranks(lines(5), lines(9)))
    assert "2 ranks printed this run" in notes(run)


def test_two_programs_in_one_log_are_refused(log):
    two = horovod_synthetic(0.125, 30).replace("GPUs: 1", "GPUs: 2")
    header = "".join(two.replace("size: 64", "size: 32").splitlines(keepends=True)[:3])
    with pytest.raises(LogError, match="batch 64, and 32 before: two programs"):
        read("horovod_synthetic", log, header + two)
    # Of a kind whose ranks each print a speed of their own, they are refused by name, too.
    content = KINDS["mxnet"](0.125, 20).encode()
    with pytest.raises(LogError, match="lines of ranks 0, 1: each prints the rate of its own"):
        read("mxnet", log, of_ranks(content, content))


ALIKE = {"megatron": "lm loss: 7", "torchtitan": "loss:  7", "composer": "loss/train/total: 7"}


@pytest.mark.parametrize(
    "kind",
    [
        "hf_console",
        "horovod_synthetic",
        "maxtext",
        "mxnet",
        "pytorch_imagenet",
        "tf_cnn_benchmarks",
        *ALIKE,
    ],
)
def test_two_trainings_that_print_at_once_without_ranks_are_refused(log, kind):
    draw = random.Random(kind)
    one, slower = (KINDS[kind](s, 12).replace("[rank0]:", "") for s in (0.125, 0.1875))
    # As fast, but with other losses, which are of all ranks.
    others = [slower] + [one.replace(text, f"{text[:-1]}6") for text in [ALIKE.get(kind)] if text]
    for other in 5 * others:
        lines = [content.splitlines(keepends=True) for content in (one, other)]
        order = [0] * len(lines[0]) + [1] * len(lines[1])
        draw.shuffle(order)
        with pytest.raises(LogError):
            read(kind, log, "".join(lines[of].pop(0) for of in order))


ENCODINGS = ("utf_16", "utf_16_big_endian", "utf_16_without_a_mark", "utf_8_with_a_mark")
WRITINGS = (*ENCODINGS, "carriage_returns", "colours", "progress_bars", "cleared_progress_bars")
# Of each way to read a file: by lines, as CSV, by patterns in blocks, and whole.
READ = ("torchtitan", "lightning_csv", "nanogpt", "horovod_timeline")


@pytest.mark.parametrize("writing", WRITINGS)
def test_a_log_reads_alike_however_it_was_written(tmp_path, writing):
    for kind in READ if writing in WRITINGS[:5] else READ[:3]:  # a timeline is one piece of JSON
        content = KINDS[kind](0.125, 12).encode()
        changed = getattr(rewritten_logs, writing)(content)
        assert changed != content or writing == "carriage_returns"
        whole = described(kind, tmp_path / "log", content)
        assert described(kind, tmp_path / "log", changed) == whole, kind


def test_a_line_that_is_written_over_for_hours_does_not_fill_memory(tmp_path):
    bar = b"\r 50%|#####     | 5/10 [00:01<00:01]"
    (tmp_path / "log").write_bytes(bar * (2 * MAX_LINE_BYTES // len(bar)) + b"the end\nmore\n")
    assert list(LogFile(tmp_path / "log").lines()) == [(1, "the end"), (2, "more")]
    # At the end of a log, one is no unfinished line.
    (tmp_path / "log").write_bytes(b"step 1\n" + bar[1:])
    log = LogFile(tmp_path / "log")
    assert list(log.lines()) == [(1, "step 1")]
    assert log.unfinished is None


@pytest.mark.parametrize(
    "line",
    ["accuracy 33% | loss 2 | 1/30", "a[0]: 5%", "{'a': '10%|x'}", "12it per step", "33%|# no bar"],
)
def test_what_only_looks_like_a_bar_stays(line):
    assert log_file.plain(f"{line}\n".encode()) == f"{line}\n".encode()


@pytest.mark.parametrize("size", [2, 3, 100, 262_144, 262_145])
def test_utf_16_is_decoded_whatever_the_size_of_its_pieces(tmp_path, size):
    text = "step 1 \U0001f600 é\n" * 40_000
    content = text.encode("utf-16")
    pieces = [content[:4096], *(content[n : n + size] for n in range(4096, len(content), size))]
    assert b"".join(log_file.in_utf8(pieces)).decode() == text


def test_a_log_in_utf_16_has_the_digest_of_its_bytes(tmp_path):
    (tmp_path / "log").write_bytes(KINDS["tf_cnn_benchmarks"](0.5, 5).encode("utf-16"))
    (row,) = import_logs.import_paths([tmp_path / "log"]).rows
    assert row["log_sha256"] == LogFile(tmp_path / "log").sha256
