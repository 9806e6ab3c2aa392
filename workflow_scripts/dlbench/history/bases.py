"""What a session is judged by: the sessions since the last change, the one before, or one by name.

A tag is a name that the config gives to sessions, as `tags: {accepted: [SESSION, SESSION]}`. It may
have one of each machine and study: that of the judged session is taken.
"""

from collections.abc import Mapping, Sequence

from dlbench import Error
from dlbench.common.phrases import did_you_mean

SINCE_CHANGE, LAST = "since-change", "last"  # any other base is a tag or the name of a session
Tags = Mapping[str, str | Sequence[str]]


def named(base: str, tags: Tags, studies: Mapping[str, str | None], study: str | None) -> str:
    """SINCE_CHANGE, LAST, or the name of the session that a base means.

    Args:
        tags: `tags` of a config.
        studies: {name of a session: its study} of those of the machine before the judged one.
        study: of the judged session.

    Raises:
        Error: there is no such tag or session, or a tag has none or several for this session.
    """
    if base in (SINCE_CHANGE, LAST):
        return base
    if base not in tags:
        if base in studies:
            return base
        known = f"one of {', '.join(tags)}" if tags else "none is in the config"
        raise Error(
            f"there is no tag {base!r}, nor a session of that name on this machine before this one"
            f"{did_you_mean(base, [*tags, *studies])}; expected {SINCE_CHANGE}, {LAST}, a tag of "
            f"the config ({known}), or a session, as results/history/campaigns.csv has them"
        )
    of_tag = tags[base]
    tagged = [of_tag] if isinstance(of_tag, str) else list(of_tag)
    here = [session for session in tagged if session in studies]
    same = [session for session in here if studies[session] == study] or here
    if len(same) == 1:
        return same[0]
    if same:
        raise Error(
            f"tag {base}: {', '.join(same)} are all of study {study} on this machine; expected one "
            "of each machine and study: leave the others out"
        )
    raise Error(
        f"tag {base}: none of its sessions ({', '.join(tagged)}) is in the history, on the machine "
        "of the judged session and before it. Is the tag of another machine, or the session "
        "withdrawn or not added yet?"
    )
