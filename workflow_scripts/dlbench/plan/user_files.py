"""The user's files that a run executes: their digests and, if they are in git, the commit."""

import functools
from pathlib import Path
from typing import Any

from dlbench.common import own_code, plugins
from dlbench.common.files import sha256
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from dlbench.trainer import engine


def used_by(run: Run) -> dict[str, Any]:
    """The user's model or trainer that a run executes, for its log; {} if dlbench has both."""
    if run.is_external:
        files = other_trainers.trainer(run).get("files", [])
        trainer = {"sha256": other_trainers.digest(run.trainer)}
        return {"trainer": trainer | {"files": {name: _commit(name) for name in files}}}
    models = engine.plugin_kind(run.framework, "models")
    if plugins.is_builtin(models, run.model):
        return {}
    path = plugins.path(models, run.model)
    return {"model": {"file": str(path), "sha256": sha256(path), **_commit(str(path))}}


@functools.cache
def _commit(path):
    """As own_code.git_state gives it; a file that is not tracked is a change, too."""
    folder = path if Path(path).is_dir() else Path(path).parent
    return own_code.git_state(folder, Path(path).name if folder != path else ".", untracked="all")
