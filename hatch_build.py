"""What a wheel has: the workflow in one folder, as it is in a clone, and the way to its library."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "dlbench_workflow"
CONTENT = (
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "Snakefile",
    "config.yaml",
    "envs",
    "hatch_build.py",
    "profiles",
    "programs",
    "pyproject.toml",
    "rules",
    "studies",
    "uv.lock",
    "workflow_scripts",
)
# Trainers have Pythons of their own, so programs need the library beside them. With this file the
# Python of the wheel finds it there, too, and there is one copy of it.
PATH_FILE = {"workflow_scripts/dlbench.pth": "dlbench.pth"}


class Wheel(BuildHookInterface):
    """Adds this to the wheel; the editable one of a clone has nothing of it."""

    def initialize(self, version, build_data):
        if version == "standard":
            build_data["force_include"] |= {
                name: f"{FOLDER}/{name}" for name in CONTENT
            } | PATH_FILE
