"""Find dlbench's own files, and check the config files before Snakemake reads them.

Another workflow may use this one as a module (docs/module.md). The working directory, its
config.yaml and the files given with --configfile are then those of that workflow.

Snakemake reports invalid YAML without file and line, and silently takes the last value of a key
that occurs twice. It has read the files of --configfile before this check, so only duplicate keys
in them are found here.
"""

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile


def own_folder(rules):
    """The folder of this workflow, given the folder of its rules.

    Snakemake reads a remote repository file by file. dlbench's programs need all files, so the
    repository is cloned.
    """
    if isinstance(rules, LocalSourceFile):
        return Path(rules).parent
    import git

    if isinstance(rules, HostingProviderFile):
        repository = rules.hosted_repo.repo
    elif isinstance(rules, LocalGitFile):
        repository = git.Repo(rules.repo_path)
    else:
        raise WorkflowError(
            f"dlbench: its files cannot be read one by one from {rules}: give its Snakefile as a "
            "path in a clone, or as github(...), gitlab(...) or gitfile(...)"
        )
    commit = repository.commit(rules.ref).hexsha
    clone = Path.cwd() / ".snakemake/dlbench" / commit
    if not clone.exists():
        part = clone.with_suffix(f".{os.getpid()}")
        repository.clone(part, no_checkout=True).git.checkout("--detach", commit)
        try:
            os.rename(part, clone)
        except OSError:  # another start was first
            shutil.rmtree(part)
    return clone / Path(rules.path).parent


sys.path.insert(0, str(own_folder(workflow.current_basedir) / "workflow_scripts"))

from dlbench.common import own_code

# In our own folder `uv run` or conda has installed the packages.
if not own_code.in_project_folder() and (missing := own_code.missing_packages()):
    raise WorkflowError(
        f"dlbench needs {', '.join(missing)}, which the Python of this Snakemake "
        f"({sys.executable}) lacks: start it as `uv run --project {own_code.PROJECT} snakemake`, "
        f"or install the dependencies of {own_code.PROJECT}/pyproject.toml beside it"
    )

from dlbench import Error
from dlbench.common import command_line
from dlbench.plan.snakemake_start import SnakemakeStart, untested
from dlbench.study import config as config_files

command_line.name_user()
STARTED = SnakemakeStart(workflow)
if STARTED.is_main and (newer := untested(metadata.version("snakemake"))):
    print(newer, file=sys.stderr)
CONFIG_FILES = config_files.files(STARTED.is_module)

try:
    config_files.read(
        *CONFIG_FILES,
        *(
            path
            for path in (() if STARTED.is_module else STARTED.configfiles)
            if Path(path).exists()
        ),
    )
except Error as error:
    raise WorkflowError(f"The config cannot be used:\n{error}") from None
