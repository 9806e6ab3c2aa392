"""The versions of Python for which the lock files have all packages."""

import itertools

import tomllib
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from support.machines.paths import REPOSITORY

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# glibc 2.28 and newer: Debian 10, RHEL 8.
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
]
# Offered as source only: pure Python, except Horovod, an extra that needs a compiler.
BUILT = {"bagit", "connection-pool", "horovod"}
# Source only on the newest Python; pyproject.toml has it built without a compiler.
BUILT_FOR = {"3.14": {"immutables"}}
PROJECTS = [
    path.parent for path in (REPOSITORY / "uv.lock", *sorted(REPOSITORY.glob("envs/*/uv.lock")))
]


def read(project, name):
    return tomllib.loads((project / name).read_text(encoding="utf-8"))


def fits(project, python):
    return SpecifierSet(read(project, "pyproject.toml")["project"]["requires-python"]).contains(
        f"{python}.0"
    )


def needed(project, python):
    """The packages that a lock file installs on Linux with all extras and groups."""
    markers = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    packages = {}
    for package in read(project, "uv.lock")["package"]:
        packages.setdefault(package["name"], []).append(package)

    def chosen(dependency):
        return [
            package
            for package in packages[dependency["name"]]
            if dependency.get("version", package.get("version")) == package.get("version")
        ]

    def holds(dependency):
        return Marker(dependency.get("marker", "python_version > '3'")).evaluate(markers)

    (root,) = [
        package
        for group in packages.values()
        for package in group
        if {"virtual", "editable"} & package.get("source", {}).keys()
    ]
    needed_packages, to_visit = {}, [root]
    while to_visit:
        package = to_visit.pop()
        lists = [package.get("dependencies", [])]
        for kind in ("optional-dependencies", "dev-dependencies"):
            lists += package.get(kind, {}).values()
        for dependency in itertools.chain.from_iterable(lists):
            for each in chosen(dependency) if holds(dependency) else []:
                if (each["name"], each["version"]) not in needed_packages:
                    needed_packages[each["name"], each["version"]] = each
                    to_visit.append(each)
    return list(needed_packages.values())


def installable(package, tags):
    names = (wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", []))
    return any(tags & parse_wheel_filename(name)[3] for name in names)


def test_every_locked_package_has_a_wheel_for_each_python_that_its_environment_names():
    for project, python in itertools.product(PROJECTS, PYTHONS):
        if fits(project, python):
            minor = int(python.removeprefix("3."))
            tags = {
                *cpython_tags((3, minor), platforms=PLATFORMS),
                *compatible_tags((3, minor), f"cp3{minor}", PLATFORMS),
            }
            packages = needed(project, python)
            lacking = {package["name"] for package in packages if not installable(package, tags)}
            assert lacking <= BUILT | BUILT_FOR.get(python, set()), (project.name, python)


def test_the_workflow_and_jax_have_every_python_and_tensorflow_those_that_it_has_wheels_for():
    assert all(fits(REPOSITORY, python) for python in PYTHONS)
    fitting = {path.name: [one for one in PYTHONS if fits(path, one)] for path in PROJECTS[1:]}
    assert fitting["jax"] == fitting["pytorch"] == fitting["archive"] == list(PYTHONS)
    assert fitting["train"] == ["3.11", "3.12"]
