"""What a check found, a line each, for people."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """`mark` is ok, fix (something is to be done) or note (not checked, or good to know)."""

    mark: str
    text: str

    def __str__(self):
        return f"{self.mark:<6}" + self.text.replace("\n", "\n" + " " * 6)


def ok(text):
    return Remark("ok", text)


def fix(text):
    return Remark("fix", text)


def note(text):
    return Remark("note", text)
