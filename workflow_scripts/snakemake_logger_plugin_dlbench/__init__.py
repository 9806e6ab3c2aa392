"""Snakemake's logger plugin `dlbench`: the progress of a campaign (docs/campaigns.md).

Snakemake imports this before it reads a Snakefile, and from where dlbench is installed. The files
that do the work are those of the Snakefile that is started, so they are imported once it was read.
Until then, without a campaign of dlbench, with --verbose, with --quiet all and in a dry run with
another --quiet than rules, the output is Snakemake's own.
"""

import inspect
import logging
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

# A start removes at its end the folder in which another one that is planned will lock its files.
UNLOCKED, ENDED = (
    "/.snakemake/locks/",
    "another start here ended while this one planned: start again",
)
TARGETS = """
Targets: all, archive, baselines, batches, data, figures, history, history_figures, images, report,
runs, site, tables, tensorboard; or files in results/."""
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
    """Gives each record of a campaign to Live, and all others to Snakemake's own handler.

    What goes wrong here must not end a campaign: then Snakemake's own handler goes on.
    """

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self._snakemake = _snakemakes_own(self.common_settings)
        self._early: list[logging.LogRecord] | None = []  # until it is known who prints
        self._live: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        has_event = bool(getattr(record, "event", None))
        if self._early is not None and record.levelno < logging.WARNING and not has_event:
            self._early.append(record)
            return
        if has_event:
            self._decide()
        self._print(record)

    def close(self) -> None:
        self._decide()
        self._end_ours()
        super().close()

    def _decide(self):
        """Find out who prints, once, and print what came before."""
        if self._early is None:
            return
        early, self._early = self._early, None
        common, show = self.common_settings, getattr(self.settings, "show", None) or "bar"
        quiet = {str(level) for level in common.quiet or ()}
        own = common.verbose or common.debug_dag or "all" in quiet or show == "snakemake"
        try:
            planning = sys.modules.get(PLANNING)
            plan = planning and planning.plan_in_use()
            if plan and not own and (not common.dryrun or "rules" in quiet):
                from dlbench.campaign import live

                self._live = live.Live(plan, self._snakemake.formatter, common, show == "bar")
        except Exception as error:
            _print_error(error)
        for record in early:
            self._print(record)

    def _print(self, record):
        text = str(record.msg)
        if "FileNotFoundError" in text and UNLOCKED in text:
            record.msg, record.args = ENDED, ()
        elif text.startswith("MissingRuleException"):
            record.msg += TARGETS
        if self._live:
            try:
                self._live.show(record)
                return
            except Exception as error:
                self._end_ours()
                _print_error(error)
        self._snakemake.handle(record)

    def _end_ours(self):
        live, self._live = self._live, None  # Python closes all handlers once more at its end
        if live:
            try:
                live.close()
            except Exception as error:
                _print_error(error)


def _snakemakes_own(common: Any) -> logging.Handler:
    """Snakemake's own handler; a plain one if a version makes it in another way."""
    stream = sys.stdout if common.stdout else sys.stderr
    try:
        from snakemake import logging as own

        def made(kind):
            names = inspect.signature(kind).parameters  # they differ between versions
            return kind(**{name: getattr(common, name) for name in names})

        handler = own.ColorizingTextHandler(nocolor=common.nocolor, stream=stream)
        handler.setFormatter(made(own.DefaultFormatter))
        handler.addFilter(made(own.DefaultFilter))
    except Exception as error:
        _print_error(error)
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter())
    return handler


def _print_error(error):
    """Say what went wrong here; Snakemake's own handler does the rest."""
    reason = "".join(traceback.format_exception(error, limit=-1)).strip().replace("\n", " ")
    print(f"dlbench: its lines end here, Snakemake's own go on: {reason}", file=sys.stderr)
