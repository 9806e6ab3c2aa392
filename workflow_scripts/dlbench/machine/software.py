"""With what software a process runs: system, packages, and the libraries that it has loaded.

Needs the standard library only.
"""

import ctypes
import hashlib
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from dlbench.common.files import written_whole

# Libraries that set the speed, by their file names, and those that say their own version.
LIBRARIES = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|nccl|rccl|cufft|mpi|ucp|fabric|mkl_rt|iomp5|gomp|"
    r"tcmalloc|jemalloc|mimalloc)(?:[.\-_][\w.\-]*)?\.so[\w.]*"
)


def system(files):
    """The operating system; in an image the image's, but for the kernel.

    Args:
        files: hardware.Files.
    """
    return {
        "os": files.ask("software.os", lambda: _os_name(files)),
        "kernel": platform.release(),
        "glibc": " ".join(platform.libc_ver()) or None,
    }


def packages(path=None):
    """All installed packages as sorted lines `name==version`; of two the one that is imported.

    Args:
        path: folders to look in; None: those of this Python.
    """
    if path is None:
        # What setuptools has within itself is there once somebody has imported it.
        path = [folder for folder in sys.path if Path(folder).name != "_vendor"]
    found = {}
    for distribution in metadata.distributions(path=path):
        name = distribution.metadata["Name"]  # None where an installation was cut short
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def listed(lines):
    """The content of the file that a list of packages is kept in; its digest is the list's."""
    return "".join(f"{line}\n" for line in lines).encode()


def keep(lines, folder):
    """Keep a list of packages in a folder, once, under its digest. Returns the digest."""
    content = listed(lines)
    digest = hashlib.sha256(content).hexdigest()
    path = folder and Path(folder) / f"{digest}.txt"
    if path and not path.exists():
        with written_whole(path) as part:
            part.write_bytes(content)
    return digest


def loaded(maps):
    """Versions of the libraries in a process's memory, by their own word or their file's name.

    Args:
        maps: the text of /proc/self/maps.
    """
    found = {}
    for path in sorted(set(re.findall(r"\s(/\S+\.so\S*)$", maps, re.M))):
        match = LIBRARIES.fullmatch(Path(path).name)
        if match and match[1] not in found:
            found[match[1]] = _own_word(match[1], path) or _real_name(path)
    return found


def _os_name(files):
    try:
        text = files.text("etc/os-release")
    except FileNotFoundError:
        text = files.text("usr/lib/os-release")
    match = re.search(r"^PRETTY_NAME=(.*)$", text, re.M)
    if not match:
        raise ValueError("no PRETTY_NAME in os-release")
    return match[1].strip("\"'")


def _real_name(path):
    """`libcudart.so.12.5.82` behind `libcudart.so.12`."""
    return Path(path).resolve().name


def _own_word(name, path):
    """What a library says of its version when asked, None for those that have no such function."""
    asked = {"mpi": _mpi, "nccl": _nccl, "cudnn": _cudnn, "cudart": _cudart}.get(name)
    try:
        return asked and asked(ctypes.CDLL(path))
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


def dotted(number, major):
    """
    >>> dotted(22105, 10000), dotted(8907, 1000), dotted(90300, 10000)
    ('2.21.5', '8.9.7', '9.3.0')
    """
    return f"{number // major}.{number % major // 100}.{number % 100}"
