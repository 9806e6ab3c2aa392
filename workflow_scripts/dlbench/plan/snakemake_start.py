"""Everything that is read of Snakemake beyond its documented interface; nothing of it is changed.

Each entry of READ says why it is read and what is lost if a version of Snakemake lacks it: then the
default is used, and one line on stderr says what is lost. The same holds for OF_RULES, which are
read of `rules.NAME`. Without those of NEEDED nothing can start: rules/config.smk finds the
workflow's own files by them.
"""

import contextlib
import functools
import re
import signal
import sys
from typing import Any, NamedTuple

import psutil

NEWEST = (9, 27)  # with which dlbench was tested; the oldest is in the Snakefile


class Attribute(NamedTuple):
    """An attribute of Snakemake's `workflow`.

    Attributes:
        why: the reason to read it.
        default: its value in a version that lacks it.
        lost: what does not work in such a version.
    """

    why: str
    default: Any
    lost: str


READ = {
    "exec_mode.name": Attribute(
        "jobs of a scheduler read the Snakefile again, and plan no session of their own",
        "DEFAULT",
        "jobs of a scheduler plan sentinels of their own, and fail: use --executor local",
    ),
    "output_settings.dryrun": Attribute(
        "a dry run writes nothing, and prints what training will cost",
        False,
        "a dry run does not print what training will cost, and keeps a copy of the config",
    ),
    "executor_plugin": Attribute(
        "--list, --summary and the like show all runs, not only those to be done",
        "local",
        "--summary shows the runs that are to be done only",
    ),
    "local_exec": Attribute(
        "before jobs are submitted the scheduler is asked whether it would accept all",
        True,
        "the scheduler is not asked before jobs are submitted",
    ),
    "executor_plugin.name": Attribute(
        "which scheduler is asked, and whose leftover jobs are cancelled",
        "local",
        "jobs that a killed Snakemake left in a queue are not cancelled",
    ),
    "executor_settings": Attribute(
        "which scheduler jobs are submitted to, and whether the executor sees that they have ended",
        None,
        "jobs that a killed Snakemake left in a queue are not cancelled",
    ),
    "deployment_settings.deployment_method": Attribute(
        "with --sdm conda programs are started by the Python of envs/workflow.yaml",
        (),
        "with --sdm conda programs are started by the Python that runs Snakemake",
    ),
    "touch": Attribute("--touch is for all runs", False, "--touch leaves finished runs out"),
    "dag_settings.forceall": Attribute(
        "--forceall trains finished runs again", False, "--forceall leaves finished runs out"
    ),
    "dag_settings.forcerun": Attribute(
        "--forcerun trains the runs that it names again", (), "--forcerun leaves finished runs out"
    ),
    "dag_settings.forcetargets": Attribute(
        "--force trains the runs that are asked for again",
        False,
        "--force leaves finished runs out",
    ),
    "dag_settings.targets": Attribute(
        "--force trains the runs that it names again; with `all` and `baselines` as targets the "
        "runs and baselines of a node share a job",
        (),
        "--force leaves finished runs out",
    ),
    "resource_settings.nodes": Attribute(
        "only with --jobs are runs jobs of a scheduler, with resources for it",
        None,
        "jobs of a scheduler ask for its defaults only",
    ),
    "global_resources": Attribute(
        "a start without a limit on `bench` would time runs beside one another",
        {"bench": 1},
        "nothing checks that runs are timed one after the other: start with --resources bench=1",
    ),
    "modifier.is_main_snakefile": Attribute(
        "where dlbench is a module, config.yaml is that of the other workflow",
        lambda: True,
        "as a module dlbench reads config.yaml of the other workflow as its own",
    ),
    "modifier.path_modifier.replace_prefix": Attribute(
        "a module whose prefix moves results/ is refused",
        lambda path: path,
        "a module with a prefix makes its results where our programs do not find them",
    ),
    "pathvars.apply": Attribute(
        "a value of the pathvar `results`, which our rules do not use, is refused",
        lambda path: "results/",
        "pathvars are ignored: results are in results/ of the working directory",
    ),
    "overwrite_configfiles": Attribute(
        "a key that is twice in a file of --configfile is an error",
        (),
        "of a key that is twice in a file of --configfile the last one counts",
    ),
}

# Of snakemake.logging: what is of no campaign, as a dry run, looks as without our logger plugin. If
# a version lacks one, or makes it in another way, the plugin says so and prints plain text.
OF_LOGGING = {
    "ColorizingTextHandler": "Snakemake's colours",
    "DefaultFormatter": "Snakemake's texts of its events",
    "DefaultFilter": "what --quiet and --verbose leave",
}

OF_RULES = {
    "rule.name": "which rule --forcerun names, where a module gives rules other names",
    "rule.resources": "the queue that a profile names is checked before jobs are submitted",
}
NEEDED = {
    "workflow.current_basedir": "the folder of our rules, also where they come from a repository",
    "snakemake.sourcecache": "what kind of place that is: a folder, a clone, or a host of them",
}


def untested(version: str) -> str:
    """A warning if a version of Snakemake is newer than those tested; else "".

    >>> untested("9.27.3")
    ''
    >>> untested("10.0.1")
    'dlbench: Snakemake 10.0.1 is newer than 9.27, the newest with which it was tested'
    """
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    if tuple(numbers) <= NEWEST:
        return ""
    newest = ".".join(map(str, NEWEST))
    return (
        f"dlbench: Snakemake {version} is newer than {newest}, the newest with which it was tested"
    )


def pass_on_interrupts() -> None:
    """Let SIGINT reach the jobs on this machine, as Ctrl-C does; Snakemake alone would wait."""

    def interrupt(number, frame):
        for job in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # it has just ended
                job.send_signal(number)
        signal.default_int_handler(number, frame)

    # Otherwise it is ignored, as of what nohup starts, or another program's.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


class SnakemakeStart:
    """A start of Snakemake, read from its `workflow` object.

    What it forces, its executor and its scheduler are known only after it has read the rules: to
    input functions, but not while the rule files are read. `workflow`: of the Snakefile.
    """

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow

    @functools.cached_property
    def is_main(self) -> bool:
        """Whether this process was started by a user, not by Snakemake for a job."""
        return self._read("exec_mode.name") == "DEFAULT"

    @functools.cached_property
    def is_dry_run(self) -> bool:
        return bool(self._read("output_settings.dryrun"))

    @functools.cached_property
    def is_module(self) -> bool:
        """Whether another workflow uses this one as a module."""
        return not self._read("modifier.is_main_snakefile")()

    def moves_results(self) -> bool:
        """Whether pathvars, or a module statement's prefix, would move the outputs of rules."""
        named = self._read("pathvars.apply")("<results>/")
        return self._read("modifier.path_modifier.replace_prefix")(named) != "results/"

    @functools.cached_property
    def submits(self) -> bool:
        """Whether runs are jobs of a scheduler, or this process is such a job."""
        return not self.is_main or self._read("resource_settings.nodes") is not None

    @functools.cached_property
    def executor(self) -> str | None:
        """The executor that submits jobs; None where jobs run on this machine."""
        return None if self._read("local_exec") else self._read("executor_plugin.name")

    @functools.cached_property
    def executor_settings(self) -> dict[str, Any]:
        """The settings of the executor that submits jobs, by their names in its plugin."""
        settings = self._read("executor_settings") if self.executor else None
        return {} if settings is None else vars(settings)

    @functools.cached_property
    def uses_conda(self) -> bool:
        """Whether Snakemake activates the conda environments that rules name."""
        methods = self._read("deployment_settings.deployment_method") or ()
        return "conda" in {str(method) for method in methods}

    def forces_rule(self, rule: Any) -> bool:
        """Whether --forcerun names a rule. `rule`: as `rules.train`."""
        return getattr(getattr(rule, "rule", None), "name", None) in self.forced

    @staticmethod
    def resource(rule: Any, name: str) -> Any:
        """The value of a resource that a profile gives a rule, or None.

        `rule`: as `rules.train`.
        """
        return _raw_resources(rule).get(name)

    @staticmethod
    def same_strings(first: Any, second: Any) -> bool:
        """Whether rules have the same resources that are strings, as partitions are.

        `first`, `second`: as `rules.train`.
        """
        strings, others = (
            {name: raw for name, raw in _raw_resources(rule).items() if isinstance(raw, str)}
            for rule in (first, second)
        )
        return strings == others

    @functools.cached_property
    def asks_for_all(self) -> bool:
        """Whether finished runs are requested too, as by --list, --summary and --touch."""
        return self._read("executor_plugin") is None or bool(self._read("touch"))

    @functools.cached_property
    def forces_all(self) -> bool:
        """Whether all jobs are done again: --forceall."""
        return self.is_main and bool(self._read("dag_settings.forceall"))

    @functools.cached_property
    def forced(self) -> frozenset[str]:
        """The rules and files that are made again: --forcerun, and targets with --force."""
        if not self.is_main:
            return frozenset()
        targets = ()
        if self._read("dag_settings.forcetargets"):
            targets = self._read("dag_settings.targets")
        return frozenset(map(str, {*self._read("dag_settings.forcerun"), *targets}))

    @functools.cached_property
    def targets(self) -> frozenset[str]:
        """The rules and files that are asked for; `all` by default, but not of a module."""
        given = frozenset(map(str, self._read("dag_settings.targets")))
        return given or frozenset(() if self.is_module else ("all",))

    @functools.cached_property
    def limits_bench(self) -> bool:
        """Whether the resource `bench`, which every timed job takes, has a limit."""
        return "bench" in self._read("global_resources")

    @functools.cached_property
    def configfiles(self) -> list[str]:
        """The files given with --configfile."""
        return [str(path) for path in self._read("overwrite_configfiles")]

    def _read(self, name):
        value = self._workflow
        for part in name.split("."):
            if value is None:  # --lint and --list have no jobs, and no settings of them
                return READ[name].default
            try:
                value = getattr(value, part)
            except AttributeError:
                attribute = READ[name]
                print(
                    f"dlbench: this Snakemake has no workflow.{name}: {attribute.lost}",
                    file=sys.stderr,
                )
                return attribute.default
        return value


def _raw_resources(rule):
    """{name: value or function} of the resources of a rule."""
    resources = getattr(getattr(rule, "rule", None), "resources", {})
    return {name: getattr(resource, "raw", None) for name, resource in resources.items()}
