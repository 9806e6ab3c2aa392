"""Remarks of a check, one line each, for people."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """A remark of a check; `mark` is ok, fix (to be done) or note (not checked, or to know)."""

    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.mark:<6}" + self.text.replace("\n", "\n" + " " * 6)


def ok(text: str) -> Remark:
    """A remark on what is as it should be."""
    return Remark("ok", text)


def fix(text: str) -> Remark:
    """A remark on what is to be fixed."""
    return Remark("fix", text)


def note(text: str) -> Remark:
    """A remark that needs no action."""
    return Remark("note", text)
