"""The screen of a campaign: lines, and on a terminal one bar below them.

Jobs print, too, and know nothing of the bar. So on a terminal this process and all jobs that it
starts write to a pipe instead of the terminal, and each line that comes through it is printed above
the bar. At the end the terminal is as it was.
"""

import atexit
import contextlib
import os
import select
import sys
import threading
from typing import Any

from dlbench.campaign.live_campaign import LiveCampaign
from dlbench.campaign.status_text import duration
from dlbench.common import terminal
from dlbench.log.event_log import FAILED
from dlbench.starting.run_lines import BAR

REFRESH_S = 2.0  # the bar is drawn by the machine that is measured: it must cost it nothing
OUTPUTS = (1, 2)  # file descriptors of stdout and stderr
DRAIN_S = 1.0  # how long the end waits for the last lines of jobs
CHUNK_BYTES = 2**16
# The status in a line about a run.
COLOURS = (
    (r"(?<=: )ok(?=,|$)", "green"),
    (rf"(?<=: )({'|'.join(FAILED)})(?=[,; ]|$)", "red"),
    (r"(?<=: )(unstable|skipped|interrupted)(?=[,; ]|$)", "yellow"),
)


def open_screen(campaign: LiveCampaign, bar: bool, colour: bool) -> "PlainScreen":
    """The screen with a bar if it is asked for and there is a terminal; else the plain one."""
    can_draw = os.isatty(OUTPUTS[-1]) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return BarScreen(campaign, colour) if bar and can_draw else PlainScreen()


class PlainScreen:
    """Lines on stderr, without control characters."""

    def print(self, line: str, style: str = "") -> None:
        sys.stderr.write(f"{terminal.plain(line)}\n")  # in one piece: others write from threads
        sys.stderr.flush()

    def refresh(self) -> None:
        """There is no bar."""

    def close(self) -> None:
        """Nothing was changed."""


class BarScreen(PlainScreen):
    """Lines above one bar, on the terminal of stderr."""

    def __init__(self, campaign: LiveCampaign, colour: bool = True) -> None:
        from rich.console import Console  # not needed where there is no terminal
        from rich.live import Live

        self._campaign = campaign
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._saved = {fd: os.dup(fd) for fd in OUTPUTS if os.isatty(fd)}
        file = os.fdopen(os.dup(OUTPUTS[-1]), "w", encoding="utf-8", errors="replace")
        self._console = Console(file=file, no_color=not colour or None, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=lambda: bar(self._campaign, self._console.width),
        )
        self._live.start()
        self._console.show_cursor()  # it would stay hidden if this process is killed
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for fd in self._saved:
            os.dup2(write, fd)
        os.close(write)
        os.environ[BAR] = "1"  # jobs print no line at their start
        self._part = b""
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._copy, self._redraw)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    def print(self, line: str, style: str = "") -> None:
        from rich.cells import cell_len
        from rich.text import Text

        text = Text(terminal.plain(line).expandtabs(), style=style)
        if not style:
            for pattern, colour in COLOURS:
                text.highlight_regex(pattern, colour)
        with self._lock:
            width = self._console.width
            # What is wider than the terminal, as a path, is left to it, so that it can be copied.
            wide = any(cell_len(word) > width for word in text.plain.split())
            self._console.print(text, soft_wrap=wide or bool(style))

    def refresh(self) -> None:
        with self._lock:
            if not self._closing.is_set():
                self._live.refresh()

    def close(self) -> None:
        if self._closing.is_set():
            return
        atexit.unregister(self.close)
        os.environ.pop(BAR, None)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for fd, saved in self._saved.items():
            os.dup2(saved, fd)
            os.close(saved)
        self._closing.set()
        for thread in self._threads:
            thread.join(DRAIN_S)
        with self._lock:
            self._live.stop()
            self._console.file.flush()

    def _copy(self):
        """Print what this process and its jobs write, line by line."""
        while True:
            ready, _, _ = select.select([self._read], [], [], REFRESH_S / 10)
            if ready:
                chunk = os.read(self._read, CHUNK_BYTES)
                if not chunk:  # all writers are gone
                    break
                self._print_chunk(chunk)
            elif self._closing.is_set():
                break
        if self._part:
            self._print_chunk(b"\n")

    def _print_chunk(self, chunk: bytes) -> None:
        *lines, self._part = (self._part + chunk.replace(b"\r\n", b"\n")).split(b"\n")
        for line in lines:
            # Of a line that a program wrote again and again, its last state.
            last = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
            with contextlib.suppress(Exception):  # jobs would stop if nobody read what they print
                self.print(last)

    def _redraw(self):
        while not self._closing.wait(REFRESH_S):
            with contextlib.suppress(Exception):  # as a log that is removed while it is read
                self.refresh()


def bar(campaign: LiveCampaign, width: int) -> Any:
    """The bar, with the numbers of runs and the time to go, and a line on what is running."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    counts = campaign.counts()
    parts = [f"{counts.done}/{counts.total} runs"]
    for number, what in ((counts.failed, "failed"), (counts.running, "running"),
                         (counts.waiting, "in the queue"), (counts.left, "left")):  # fmt: skip
        parts += [f"{number} {what}"] if number else []
    if counts.done < counts.total:
        left_s = campaign.left_s()
        parts.append("time to go not known yet" if left_s is None else f"{duration(left_s)} to go")
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1, min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(
        ProgressBar(total=max(1, counts.total), completed=counts.done or (not counts.total)),
        Text(" · ".join(parts)),
    )
    running = Text(terminal.message(campaign.describe_running(), 2 * width), style="dim")
    running.truncate(width, overflow="ellipsis")
    return Group(table, running)
