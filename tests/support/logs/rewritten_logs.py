"""Rewrite a log as other terminals, shells and launchers would write it, for tests of importers.

A function takes the bytes of a log and gives those of a log that says the same.
"""

import itertools

BAR = b" 33%|\xe2\x96\x88\xe2\x96\x88\xe2\x96\x8e       | 10/30 [00:20<00:40,  2.00s/it]"
DATES = (
    b"2024-05-02 10:00:05,123 ",
    b"2024-05-02T10:00:05.123456789Z ",
    b"[2024-05-02 10:00:05] ",
    b"May  2 10:00:05 ",
    b"May  2 10:00:05 node1 slurmstepd[123]: ",
    b"10:00:05 ",
    b"INFO:root:",
    b"I0502 10:00:05.123456 140123 benchmark.py:60] ",
)
RANKS = (
    b"[1,0]<stdout>:",
    b"[1,0]<stdout>: ",
    b"[prterun-node1-12@1,0]<stdout>: ",
    b"0: ",
    b"  0: ",
    b"[rank0]:",
    b"[0] ",
    b"Thu May  2 10:00:05 2024[1,0]<stdout>:",
    b"2024-05-02T10:00:05Z [1,0]<stdout>:",
    b"0: 2024-05-02 10:00:05 ",
)


def utf_16(content):
    return content.decode().encode("utf-16")


def utf_16_big_endian(content):
    return b"\xfe\xff" + content.decode().encode("utf-16-be")


def utf_16_without_a_mark(content):
    return content.decode().encode("utf-16-le")


def utf_8_with_a_mark(content):
    return b"\xef\xbb\xbf" + content


def carriage_returns(content):
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def colours(content):
    """Lines with coloured parts, as rich prints them."""
    return _lines(
        content, lambda line: b"\x1b[32m" + line[:3] + b"\x1b[1;31m" + line[3:] + b"\x1b[0m"
    )


def progress_bars(content):
    """Lines that follow overwritten progress bars, as with tqdm."""
    return _lines(content, lambda line: b"\r  0%|          | 0/30\r" + BAR + line)


def cleared_progress_bars(content):
    """Lines as tqdm.write prints them."""
    return _lines(content, lambda line: b"\r" + BAR + b"\r" + b" " * 60 + b"\r" + line)


def lines_of_progress_bars(content):
    """A bar on a line of its own before each line."""
    return _lines(content, lambda line: BAR + b"\n" + line)


def after(prefix):
    return lambda content: _lines(content, lambda line: prefix + line)


def of_ranks(*contents, prefixes=(b"0: ", b"1: ")):
    """The lines of several ranks, interleaved and each with its prefix."""
    split = (content.splitlines(keepends=True) for content in contents)
    rows = itertools.zip_longest(*split, fillvalue=None)
    return b"".join(
        prefix + line for row in rows for prefix, line in zip(prefixes, row, strict=True) if line
    )


def _lines(content, change):
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    ended = [change(line) + b"\n" for line in lines[:-1]]
    return b"".join(ended) + (change(lines[-1]) if lines[-1] else b"")
