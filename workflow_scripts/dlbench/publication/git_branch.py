"""Commit a folder of files to a branch of a Git repository, for hosts of static pages.

- The work tree, the index and the branch that is checked out stay as they are: blobs, a tree and a
  commit are written as objects, and the branch is moved to the commit only if it is where it was.
- The commit follows that of the branch, or of the branch of the same name at the remote; else it is
  the first of the branch.
- What others have put beside the files of before, as a CNAME, stays. A branch with the work of
  others alone is refused.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dlbench import Error

NO_JEKYLL = ".nojekyll"  # GitHub shows the files as they are
_FILE, _NEVER = "100644", "0" * 40
_NAME = re.compile(r"[^/\x00\n\t]+")


class Repository:
    """A Git repository.

    Raises:
        Error: there is none at the folder, or no git.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise Error(f"{folder}: expected the folder of a Git repository, found no folder")
        try:
            self._git("rev-parse", "--git-dir")
        except FileNotFoundError as error:
            raise Error("git is not installed: no branch can be written") from error
        except Error as error:
            raise Error(
                f"{folder}: expected a Git repository: `git init` makes one there ({error})"
            ) from error

    def commit(self, branch: str, files: Path, listed: str, message: str) -> str | None:
        """Commit the files of a folder to a branch.

        Args:
            files: folder with the files.
            listed: name of the file in it that lists them: {"files": names}.
            message: of the commit.

        Returns:
            The commit; None: the branch has these files already.

        Raises:
            Error: the branch has no valid name, is checked out, or has the work of others; git
                fails.
        """
        reference = f"refs/heads/{branch}"
        if branch.startswith("-") or not self._succeeds("check-ref-format", reference):
            raise Error(f"{branch!r} cannot be the name of a branch")
        if place := self._checked_out().get(reference):
            raise Error(
                f"branch {branch} is checked out in {place}: name another one, such as pages, "
                "which has nothing but the website"
            )
        local = self._commit_of(reference)
        parent = local or self._commit_of(f"refs/remotes/{self.remote()}/{branch}")
        entries = self._kept(parent, branch, listed) if parent else {}
        names = [*_names_in((files / listed).read_bytes()), listed]
        paths = "".join(f"{(files / name).absolute()}\n" for name in names)
        blobs = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", given=paths)
        entries |= {
            name: f"{_FILE} blob {blob}" for name, blob in zip(names, blobs.split(), strict=True)
        }
        empty = self._git("hash-object", "-w", "--stdin", given="").strip()
        entries.setdefault(NO_JEKYLL, f"{_FILE} blob {empty}")
        lines = "".join(f"{entry}\t{name}\0" for name, entry in sorted(entries.items()))
        tree = self._git("mktree", "-z", given=lines).strip()
        if parent and tree == self._git("rev-parse", f"{parent}^{{tree}}").strip():
            if not local:
                self._git("update-ref", reference, parent, _NEVER)
            return None
        parents = ("-p", parent) if parent else ()
        made = self._git("commit-tree", tree, *parents, given=f"{message}\n").strip()
        self._git("update-ref", "-m", "dlbench site", reference, made, local or _NEVER)
        return made

    def remote(self) -> str:
        """The remote that the branch is pushed to: origin, or the first one."""
        names = self._git("remote").split()
        return "origin" if "origin" in names or not names else names[0]

    def _checked_out(self) -> dict[str, str]:
        """{branch: folder} of all work trees."""
        found, place = {}, ""
        for line in self._git("worktree", "list", "--porcelain").splitlines():
            key, _, value = line.partition(" ")
            place = value if key == "worktree" else place
            if key == "branch":
                found[value] = place
        return found

    def _commit_of(self, reference):
        commit = f"{reference}^{{commit}}"
        if not self._succeeds("rev-parse", "--verify", "--quiet", commit):
            return None
        return self._git("rev-parse", "--verify", commit).strip()

    def _kept(self, parent, branch, listed) -> dict[str, str]:
        """{name: mode, type and object} of what is not ours at the root of a commit."""
        entries = {}
        for line in filter(None, self._git("ls-tree", "-z", parent).split("\0")):
            entry, _, name = line.partition("\t")
            entries[name] = entry
        try:
            content = (
                self._git("cat-file", "blob", f"{parent}:{listed}") if listed in entries else ""
            )
            ours = _names_in(content.encode())
        except Error as error:
            raise Error(
                f"branch {branch} has the work of others, and no earlier website: name another "
                "branch, which a website makes"
            ) from error
        return {name: entry for name, entry in entries.items() if name not in {*ours, listed}}

    def _succeeds(self, *arguments):
        try:
            self._git(*arguments)
        except Error:
            return False
        return True

    def _git(self, *arguments: str, given: str | None = None) -> str:
        # A hook that runs this has set variables that lead to another repository.
        environment = {k: v for k, v in os.environ.items() if k not in ("GIT_DIR", "GIT_WORK_TREE")}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"LC_ALL": "C"},
        )
        if done.returncode:
            raise Error(f"git {arguments[0]}: {' '.join(done.stderr.split()) or 'failed'}")
        return done.stdout


def _names_in(content: bytes) -> list[str]:
    """The names in a list of files. Raises Error if it is none."""
    try:
        listed: Mapping[str, list[str]] = json.loads(content)
        names = listed["files"]
        if all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            return names
    except (ValueError, KeyError, TypeError):
        pass
    raise Error("expected a list of files")
