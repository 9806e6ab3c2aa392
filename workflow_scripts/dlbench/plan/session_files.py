"""The files of a plan's session, whose dates Snakemake compares.

Each start that has something to do writes a new session file, which is an input of its runs. So
Snakemake trains runs whose outputs exist but are damaged or come from other code. The list of other
existing files that are made again works in the same way.
"""

import functools
from dataclasses import dataclass

from dlbench.records import sessions


def unfinished_session() -> list[str]:
    """The id of the last session, if not all of its runs have their records."""
    session = sessions.current()
    is_open = session and not sessions.done_file(session["id"]).exists()
    return [session["id"]] if session and is_open else []


@dataclass(frozen=True)
class SessionFiles:
    """The files of a session.

    Attributes:
        session: as sessions.new returns it; None before the first.
        starts: whether this start begins it.
        remade: existing paths that are made again in it.
    """

    session: dict[str, str] | None
    starts: bool
    remade: frozenset[str]

    @property
    def file(self) -> list[str]:
        """The input of its runs: [its file], or [] before the first session."""
        return [str(sessions.file(self.session["id"]))] if self.session else []

    @property
    def done(self) -> list[str]:
        """[The file that exists once all its runs have records], or [] before the first session."""
        return [str(sessions.done_file(self.session["id"]))] if self.session else []

    @property
    def remade_list(self) -> list[str]:
        """[The file that lists what is made again], or [] if nothing is."""
        return (
            [str(sessions.remade_file(self.session["id"]))] if self.remade and self.session else []
        )

    def remade_lists(self, path: str) -> list[str]:
        """[The last list of remade files that has a path], or [].

        It is an input of the rule that makes the file: Snakemake makes the file again when the list
        is new, and not as long as the list stays.
        """
        if path in self.remade and self.starts:
            return self.remade_list
        return [self._earlier_lists[path]] if path in self._earlier_lists else []

    @functools.cached_property
    def _earlier_lists(self):
        return sessions.lists_of_remade()
