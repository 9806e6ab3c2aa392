"""Snakemake's logger plugin `dlbench`: the progress of a campaign (docs/campaigns.md).

Snakemake imports this before it reads a Snakefile, and from where dlbench is installed. The files
that do the work are those of the Snakefile that is started, so they are imported once it was read.
Until then, without a campaign of dlbench, in a dry run, with --verbose and with --quiet all, the
output is Snakemake's own.
"""

import contextlib
import logging
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

PLANNING = "dlbench.plan.planning"  # the module that has planned a campaign, if it is loaded


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options --logger-dlbench-..., also for profiles."""

    show: str = field(
        default="bar",
        metadata={
            "help": "bar: a bar and lines; lines: without a bar, as where there is no terminal; "
            "snakemake: what Snakemake prints without this logger.",
            "choices": ["bar", "lines", "snakemake"],
        },
    )


class LogHandler(LogHandlerBase):
    """Gives each record of a campaign to LiveLines, and all others to Snakemake's own handler.

    What goes wrong here must not end a campaign: then Snakemake's own handler goes on.
    """

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        common = self.common_settings
        self._quiet = set(common.quiet or ())
        self._formatter = DefaultFormatter(self._quiet, common.show_failed_logs)
        self._snakemake = ColorizingTextHandler(
            common.nocolor, sys.stdout if common.stdout else sys.stderr, self._formatter
        )
        flags = (common.debug_dag, common.verbose, common.dryrun, common.printshellcmds)
        self._snakemake.addFilter(DefaultFilter(self._quiet, *flags))
        self._early: list[logging.LogRecord] | None = []  # until it is known who prints
        self._lines: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._early is not None:
            if record.levelno < logging.WARNING and not getattr(record, "event", None):
                self._early.append(record)
                return
            if getattr(record, "event", None):
                self._decide()
        self._print(record)

    def close(self) -> None:
        if self._early is not None:
            self._decide()
        lines, self._lines = self._lines, None  # Python closes all handlers once more at its end
        if lines:
            try:
                lines.close()
            except Exception as error:
                _say(error)
        super().close()

    def _decide(self):
        early, self._early = self._early or [], None
        try:
            self._lines = self._lines_of_campaign()
        except Exception as error:
            _say(error)
        for record in early:
            self._print(record)

    def _lines_of_campaign(self):
        common, show = self.common_settings, getattr(self.settings, "show", None) or "bar"
        own = common.dryrun or common.verbose or common.debug_dag or Quietness.ALL in self._quiet
        if own or show == "snakemake" or PLANNING not in sys.modules:
            return None
        plan = sys.modules[PLANNING].plan_in_use()
        if plan is None:
            return None
        from dlbench.campaign import live_lines

        return live_lines.LiveLines(
            plan,
            self._formatter,
            bar=show == "bar" and Quietness.PROGRESS not in self._quiet,
            jobs=Quietness.PROGRESS not in self._quiet,
            commands=common.printshellcmds,
            failed_logs=common.show_failed_logs,
            colour=not common.nocolor,
        )

    def _print(self, record):
        if self._lines:
            try:
                self._lines.show(record)
                return
            except Exception as error:
                lines, self._lines = self._lines, None
                with contextlib.suppress(Exception):
                    lines.close()
                _say(error)
        self._snakemake.handle(record)


def _say(error):
    """Say what went wrong here; Snakemake's own handler does the rest."""
    reason = "".join(traceback.format_exception(error, limit=-1)).strip().replace("\n", " ")
    print(f"dlbench: its lines end here, Snakemake's own go on: {reason}", file=sys.stderr)
