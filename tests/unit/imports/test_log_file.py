"""log_file: a log's text, whatever its encoding, colours and progress bars."""

import pytest

from dlbench.imports import import_logs, log_file
from dlbench.imports.log_file import MAX_LINE_BYTES, LogFile
from support.logs import rewritten_logs
from support.logs.log_samples import KINDS
from support.logs.reading_logs import described

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
