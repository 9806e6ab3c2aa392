"""The files of a plan's session, which Snakemake compares by date.

The file of a session is new at each start that has something to do, and an input of its runs, so
that a run is trained whose outputs are there but damaged or of other code; so is the list of what
else is there and is made again.
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
        starts: whether it is of this start.
        remade: paths that exist and are made again in it.
    """

    session: dict[str, str] | None
    starts: bool
    remade: frozenset[str]

    @property
    def file(self) -> list[str]:
        """What its runs wait for; none before the first session."""
        return [str(sessions.file(self.session["id"]))] if self.session else []

    @property
    def done(self) -> list[str]:
        """What says that all its runs have their records; none before the first session."""
        return [str(sessions.done_file(self.session["id"]))] if self.session else []

    @property
    def remade_list(self) -> list[str]:
        """The list of what is made again; none where nothing is."""
        return (
            [str(sessions.remade_file(self.session["id"]))] if self.remade and self.session else []
        )

    def remade_lists(self, path: str) -> list[str]:
        """The list of files that were, or are now, made again which has a path; or none.

        It is an input of the rule that makes the file: Snakemake makes it again with a new list,
        and not again as long as the list stays.
        """
        if path in self.remade and self.starts:
            return self.remade_list
        return [self._earlier_lists[path]] if path in self._earlier_lists else []

    @functools.cached_property
    def _earlier_lists(self):
        return sessions.lists_of_remade()
