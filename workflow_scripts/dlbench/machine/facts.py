"""The event `machine` of a log: hardware, software and limits of a process, read at its start.

    hardware    facts that nodes of one kind share: processor, memory, network, GPUs
    software    system, digest of the installed packages, framework
    limits      how much of the node this process may use
    libraries   versions of the libraries that the process has loaded
    variables   of the environment, by an allow-list (redaction.py)
    present     of this node at this moment: host, clocks, GPUs' UUIDs, the CPUs it may use
    unknown     why facts are None
    gathered_s  how long reading the facts took

The first five are compared between repeats; fingerprints.py has digests of the first two.
"""

import ctypes
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from dlbench.common.files import atomic_write
from dlbench.machine import hardware, limits, redaction
from dlbench.machine.gpus import gather_facts
from dlbench.machine.hardware import Files

# Libraries that decide the speed of training, by their file names.
LIBRARIES = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|nccl|rccl|cufft|mpi|ucp|fabric|mkl_rt|iomp5|gomp|"
    r"tcmalloc|jemalloc|mimalloc)(?:[.\-_][\w.\-]*)?\.so[\w.]*"
)

# Set by modules of EasyBuild and by the start of Spack and EESSI:
# https://docs.easybuild.io/configuration, https://github.com/EESSI/docs/pull/601.
ORIGIN = re.compile(
    "EBROOT.+|EASYBUILD_PREFIX|SPACK_(?:ROOT|ENV)|"
    "EESSI_(?:VERSION|SOFTWARE_PATH|SOFTWARE_SUBDIR|ACCELERATOR_TARGET)"
)
# The folder of a package, by default: https://spack.readthedocs.io/en/latest/config_yaml.html
SPACK_PREFIX = re.compile("(.+)-([^-]+-[a-z2-7]{7,32})")


def system(files: Files) -> dict[str, str | None]:
    """The operating system; in a container the image's, with the kernel of the node."""
    return {
        "os": files.fact("software.os", lambda: _os_name(files)),
        "kernel": platform.release(),
        "glibc": " ".join(platform.libc_ver()) or None,
    }


def installed_packages(path: list[str] | None = None) -> list[str]:
    """The installed packages as sorted lines `name==version`.

    If a package is installed twice, the version is the one that Python imports.

    `path`: folders to look in; None: those of this Python.
    """
    if path is None:
        # setuptools adds its vendored packages to the path when it is imported.
        path = [folder for folder in sys.path if Path(folder).name != "_vendor"]
    versions: dict[str, str] = {}
    for distribution in metadata.distributions(path=path):
        described = distribution.metadata
        if (
            name := "Name" in described and described["Name"]
        ):  # else an installation was interrupted
            versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def origin(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Where software came from, of modules, EasyBuild, Spack and EESSI; {} without them.

    `module`: {name: version} of the loaded ones; `modulefiles`: the folders that have their files;
    `spack`: {name: version and hash} of packages whose prefixes are in CMAKE_PREFIX_PATH, where
    `spack load` and Spack's modules put them; variables of ORIGIN that are set.
    """

    def listed(name):
        return redaction.without_user(environ.get(name, ""), environ).split(":")

    loaded, prefixes = listed("LOADEDMODULES"), map(os.path.basename, listed("CMAKE_PREFIX_PATH"))
    files = zip(loaded, listed("_LMFILES_"), strict=False)
    folders = {file.removesuffix(".lua").removesuffix(f"/{name}") for name, file in files}
    versions = (f"/{name}".rpartition("/") for name in loaded if name)
    found = {
        "module": {name[1:] or version: version for name, _, version in versions},
        "modulefiles": ":".join(sorted(folders - {""})),
        "spack": {match[1]: match[2] for match in map(SPACK_PREFIX.fullmatch, prefixes) if match},
        **{name: ":".join(listed(name)) for name in environ if ORIGIN.fullmatch(name)},
    }
    found = {name: value for name, value in found.items() if value}
    return {"origin": found} if found else {}


def keep_list(lines: Iterable[str], folder: str | Path | None) -> str:
    """Write a list of packages into a folder, named by its SHA-256, unless the file exists.

    Returns the digest of the list.
    """
    content = "".join(f"{line}\n" for line in lines).encode()
    digest = hashlib.sha256(content).hexdigest()
    path = folder and Path(folder) / f"{digest}.txt"
    if path and not path.exists():
        with atomic_write(path) as part:
            part.write_bytes(content)
    return digest


def loaded_libraries(maps: str) -> dict[str, str]:
    """Versions of the loaded libraries that matter for the speed of this process.

    A version is what the library itself returns, or else its file name.
    """
    versions: dict[str, str] = {}
    for path in sorted(set(re.findall(r"\s(/\S+\.so\S*)$", maps, re.M))):
        match = LIBRARIES.fullmatch(Path(path).name)
        if match and match[1] not in versions:
            # Else its file: `libcudart.so.12.5.82`, to which libcudart.so.12 links.
            versions[match[1]] = _reported_version(match[1], path) or Path(path).resolve().name
    return versions


def _os_name(files):
    try:
        text = files.text("etc/os-release")
    except FileNotFoundError:
        text = files.text("usr/lib/os-release")
    match = re.search(r"^PRETTY_NAME=(.*)$", text, re.M)
    if not match:
        raise ValueError("no PRETTY_NAME in os-release")
    return match[1].strip("\"'")


def _reported_version(name, path):
    """The version that a library's own function returns; None if it has no such function."""
    read = {"mpi": _mpi, "nccl": _nccl, "cudnn": _cudnn, "cudart": _cudart}.get(name)
    try:
        return read and read(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return None


def _mpi(library):
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    if library.MPI_Get_library_version(text, ctypes.byref(length)):
        return None
    return re.sub(r"\s+", " ", text.value.decode(errors="replace")).strip()[:200]


def _nccl(library):
    number = ctypes.c_int()
    return None if library.ncclGetVersion(ctypes.byref(number)) else dotted(number.value, 10000)


def _cudnn(library):
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = library.cudnnGetVersion()
    return dotted(number, 10000 if number >= 90000 else 1000)


def _cudart(library):
    number = ctypes.c_int()
    failed = library.cudaRuntimeGetVersion(ctypes.byref(number))
    return None if failed else f"{number.value // 1000}.{number.value % 1000 // 10}"


def dotted(number: int, major: int) -> str:
    """A version from one number, in which `major` is the value of one major version.

    >>> dotted(22105, 10000), dotted(8907, 1000), dotted(90300, 10000)
    ('2.21.5', '8.9.7', '9.3.0')
    """
    return f"{number // major}.{number % major // 100}.{number % 100}"


def gather(
    gpus: Sequence[int | str] = (),
    framework: dict[str, Any] | None = None,
    packages: str | Path | None = None,
    root: str | Path = "/",
    variables: redaction.Variables = redaction.NO_MORE,
) -> dict[str, Any]:
    """The fields of the event.

    Args:
        gpus: selectors of the GPUs of this process (gpus.visible_gpus).
        framework: facts of Python and the framework, plain values; None if another program
            trains, with another Python.
        packages: folder in which the list of installed packages is saved; None: nowhere.
        root: of the file system whose /proc and /sys are read.
        variables: of frameworks, those that are recorded.
    """
    start = time.perf_counter()
    files = hardware.Files(root)
    of_gpus = gather_facts(gpus, files.unknown)
    kinds = {name: of_gpus[name] for name in ("driver", "cuda_driver", "kinds")}
    if framework is None:
        sha256, files.unknown["software.packages_sha256"] = None, "another program's"
    else:
        sha256 = files.fact(
            "software.packages_sha256", lambda: keep_list(installed_packages(), packages)
        )
    return {
        "hardware": hardware.constant_facts(files) | {"gpus": kinds},
        "software": system(files) | (framework or {}) | {"packages_sha256": sha256},
        "limits": limits.read(files),
        "libraries": files.fact(
            "libraries", lambda: loaded_libraries(files.text("proc/self/maps"))
        ),
        "variables": redaction.recorded_variables(more=variables),
        "present": {
            **hardware.present_facts(files),
            "cpus": sorted(os.sched_getaffinity(0)),
            "gpus": of_gpus["devices"],
            "gpu_links": of_gpus["links"],
        },
        "unknown": files.unknown,
        "gathered_s": round(time.perf_counter() - start, 6),
    }
