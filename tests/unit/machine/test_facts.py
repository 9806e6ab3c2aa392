"""The software in a run's log, and a machine of which nothing can be read."""

import os
import platform

import pytest

from dlbench.machine import facts


def test_packages_are_listed_once_each_the_imported_first(tmp_path):
    packages = ("a", "My_Package", "2.0"), ("b", "my.package", "1.0"), ("b", "other", "3")
    for folder, name, version in packages:
        place = tmp_path / folder / f"{name}-{version}.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "b" / "half-1.dist-info").mkdir()
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert facts.installed_packages(folders) == ["my-package==2.0", "other==3"]


def test_a_list_of_packages_is_kept_once_under_the_digest_of_its_file(tmp_path):
    name = facts.keep_list(["a==1", "b==2"], tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "a==1\nb==2\n" and path.name == f"{name}.txt"
    kept = path.stat().st_mtime_ns
    assert facts.keep_list(["a==1", "b==2"], tmp_path) == name
    assert path.stat().st_mtime_ns == kept
    assert facts.keep_list(["a==1"], None) != name


def test_a_folder_that_cannot_be_written_costs_the_list_and_not_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    found = facts.gather(framework={"python": "3"}, packages=tmp_path / "file" / "in")
    assert found["software"]["packages_sha256"] is None
    assert "software.packages_sha256" in found["unknown"]


HASH = "abcdefghijklmnopqrstuvwxyz234567"


@pytest.mark.parametrize(
    ("environ", "origin"),
    [
        ({"PATH": "/usr/bin", "EBVERSIONCUDA": "12", "CMAKE_PREFIX_PATH": "/usr:/opt/view"}, None),
        ({"LOADEDMODULES": "GCCcore/12.3.0:tools/cuda/12.1:intel",
          "_LMFILES_": "/cvmfs/all/GCCcore/12.3.0.lua:/sw/tools/cuda/12.1:/home/you/m/intel"},
         {"module": {"GCCcore": "12.3.0", "tools/cuda": "12.1", "intel": "intel"},
          "modulefiles": "/cvmfs/all:/home/(user)/m:/sw"}),
        ({"SPACK_ENV": "/projects/me/env", "SPACK_ROOT": "/opt/spack", "SPACK_LOADED_HASHES": HASH,
          "CMAKE_PREFIX_PATH": f"/opt/spack/zen3/open-mpi-4.1.5-{HASH}:/x/zlib-1.3-{HASH[:7]}"},
         {"spack": {"open-mpi": f"4.1.5-{HASH}", "zlib": f"1.3-{HASH[:7]}"},
          "SPACK_ENV": "/projects/(user)/env", "SPACK_ROOT": "/opt/spack"}),
        ({"EBROOTCUDA": "/pfs/home/me/eb/CUDA/12", "EASYBUILD_PREFIX": "/pfs/home/me", "TOKEN": "x",
          "EESSI_VERSION": "2023.06", "EESSI_SOFTWARE_PATH": "/cvmfs/versions/2023.06/zen3"},
         {"EBROOTCUDA": "~/eb/CUDA/12", "EASYBUILD_PREFIX": "~",
          "EESSI_VERSION": "2023.06", "EESSI_SOFTWARE_PATH": "/cvmfs/versions/2023.06/zen3"}),
    ],
)  # fmt: skip
def test_where_software_came_from_is_told_without_names_of_users(environ, origin):
    found = facts.origin({"HOME": "/pfs/home/me", "USER": "me"} | environ)
    assert found == ({"origin": origin} if origin else {})


def test_loaded_libraries_are_named_by_their_files():
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 1 /opt/cuda/lib/libcufft.so.11.2.3\n"
        "7f00-7f01 r--p 00000000 08:01 1 /opt/cuda/lib/libcufft.so.11.2.3\n"
        "7f02-7f03 r-xp 00000000 08:01 2 /usr/lib/libtcmalloc_minimal.so.4\n"
        "7f04-7f05 r-xp 00000000 08:01 3 /usr/lib/libmpi_cxx.so.40\n"
        "7f06-7f07 r-xp 00000000 08:01 4 /usr/lib/libmpiany.so.1\n"
        "7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n"
    )
    found = facts.loaded_libraries(maps)
    assert found["cufft"] == "libcufft.so.11.2.3"
    assert found["tcmalloc"] == "libtcmalloc_minimal.so.4"
    assert "libmpiany.so.1" not in found.values()


def test_this_machine_is_told_as_python_knows_it():
    found = facts.gather(framework={"python": platform.python_version()})
    assert found["hardware"]["cpu"]["threads"] == os.cpu_count()
    assert found["limits"]["cpus"] == len(os.sched_getaffinity(0))
    assert found["present"]["host"] == platform.node()
    assert found["software"]["kernel"] == platform.release()
    assert "pytest==" in "\n".join(facts.installed_packages())


def test_a_machine_of_which_nothing_can_be_read_is_still_an_event(tmp_path):
    found = facts.gather(root=tmp_path)
    assert found["hardware"]["cpu"]["model"] is None
    assert found["software"]["os"] is None
    assert {"cpu", "memory", "software.os", "libraries"} <= found["unknown"].keys()
