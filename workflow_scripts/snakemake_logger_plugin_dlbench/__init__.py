"""Snakemake's logger plugin `dlbench`: the progress of a campaign (docs/campaigns.md).

What it has that Snakemake's own output and other plugins lack: one line for each run, with its
result or the reason why it ended; the end of a failed job's log; one line instead of a traceback
for an attempt that will be repeated; and a bar with the time to go.

Snakemake imports this before it reads a Snakefile, and from where dlbench is installed. The files
that do the work are those of the Snakefile that is started, so they are imported once it was read.
Until then, without a campaign of dlbench, and unless --quiet says `rules`, as profiles/default
does, the output is Snakemake's own.
"""

import logging
import re
import sys
import traceback
from typing import Any

from snakemake import logging as own
from snakemake_interface_logger_plugins.base import LogHandlerBase

# A start removes at its end the folder in which another one that is planned will lock its files.
UNLOCKED = "/.snakemake/locks/"
ENDED = "another start here ended while this one planned: start again"
TARGETS = """
Targets: all, archive, baselines, batches, data, figures, history, images, report,
runs, site, tables, tensorboard; or files in results/."""
PLANNING = "dlbench.plan.planning"  # the module that has planned a campaign, if it is loaded
# Snakemake's bookkeeping, which has no event of its own. All is in its log file.
BOOKKEEPING = re.compile(
    r"(None)?$|Assuming unrestricted shared filesystem|Building DAG of jobs|Using shell: |Provided "
    r"|host: |Rules claiming more threads|Conda environments: ignored|Elapsed time: |Reasons:|"
    r"Singularity containers: ignored|Group jobs: inactive|Select jobs to execute|"
    r"Touching output file|DAG of jobs will be updated|Updating checkpoint dependencies"
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
        common = self.common_settings
        stream = sys.stdout if common.stdout else sys.stderr
        self._snakemake = own.ColorizingTextHandler(common.nocolor, stream)
        self._snakemake.setFormatter(own.DefaultFormatter(common.quiet, common.show_failed_logs))
        names = "quiet", "debug_dag", "verbose", "dryrun", "printshellcmds"
        self._snakemake.addFilter(own.DefaultFilter(*(getattr(common, name) for name in names)))
        quiet = {str(level) for level in common.quiet or ()}
        self._is_ours = "rules" in quiet and "all" not in quiet
        self._is_ours &= not (common.verbose or common.debug_dag)
        self._live: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        text, event = str(record.msg or "").strip(), getattr(record, "event", None)
        if "FileNotFoundError" in text and UNLOCKED in text:
            record.msg, record.args = ENDED, ()
        elif text.startswith("MissingRuleException"):
            record.msg += TARGETS
        planning = sys.modules.get(PLANNING) if event and self._is_ours else None
        if planning and not self._live and (plan := planning.plan_in_use()):
            from dlbench.campaign import live

            self._live = live.Live(plan, self._snakemake, self.common_settings)
        is_hidden = self._is_ours and not event and BOOKKEEPING.match(text)
        if not is_hidden and not self._try(lambda live: live.show(record)):
            self._snakemake.handle(record)

    def close(self) -> None:
        self._try(lambda live: live.close())
        self._live = None  # Python closes all handlers once more at its end
        super().close()

    def _try(self, act):
        """Whether our lines are printed; an error ends them."""
        if self._live:
            try:
                act(self._live)
            except Exception as error:
                self._live, self._is_ours = None, False
                reason = " ".join("".join(traceback.format_exception(error, limit=-1)).split())
                message = "dlbench: its lines end here, Snakemake's own go on"
                print(f"{message}: {reason}", file=sys.stderr)
        return self._live is not None
