"""Report what a compute node has, as JSON; `dlbench check-site` runs this in a job.

The two exchange files in a shared folder, which also shows how long files take to become visible
and how far the clocks differ. The program must run under Python 3.6, which a node may have.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = 3
FILE_TIMEOUT_S = 60.0  # to wait for a file
LOOKUP_TIMEOUT_S = 8.0  # to resolve a name
CONNECT_TIMEOUT_S = 5.0
# Run by the workflow's Python, whose library can load environment modules.
LOAD_MODULES = """
import json, sys
sys.path.insert(0, "workflow_scripts")
from dlbench.starting import start_command
try:
    print(json.dumps(start_command.load_modules(sys.argv[1:])))
except ValueError as error:
    sys.exit(str(error))
"""
FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where check-site has put its request")
    folder = parser.parse_args().folder
    me = f"{platform.node()}.{os.getpid()}"
    request = wait_for(os.path.join(folder, "request.json"))
    report = {"host": platform.node(), "token": request and request["token"]}
    if request:
        rounds = [measure_round_trip(folder, f"{me}.{number}") for number in range(ROUNDS)]
        report.update(inspect_node(request), rounds=rounds)
        report["others"] = find_others(folder, me, request)
    write(os.path.join(folder, f"report.{me}.json"), report)


def measure_round_trip(folder, name):
    """Write a file and wait for the answer of check-site: {"round_trip_s", "offset_s"}, or None.

    The offset is the other clock less this one, to within half the round trip.
    """
    started_s = time.time()
    write(os.path.join(folder, f"hello.{name}.json"), {"time": started_s})
    answer = wait_for(os.path.join(folder, f"answer.{name}.json"))
    finished_s = time.time()
    if not answer:
        return None
    return {
        "round_trip_s": finished_s - started_s,
        "offset_s": answer["time"] - (started_s + finished_s) / 2,
    }


def find_others(folder, me, request):
    """Resolve the names of all nodes of the job, and connect to one other node.

    Returns {"unknown": {address: reason}, "connection": None, or the address and why it failed,
    "own": why this node cannot resolve its own name, or ""}; None on a single node.
    """
    if request["nodes"] < 2:
        return None
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen(request["nodes"])
        write(os.path.join(folder, f"listens.{me}.json"), [name, server.getsockname()[1]])
        nodes = [content for _, content in wait_for_all(folder, "listens", request["nodes"])]
        names = sorted({node[0] for node in nodes})
        pattern = request["node_address"] or "{node}"
        addresses = {name: pattern.replace("{node}", name) for name in names}
        unknown = look_up(addresses.values())
        for node_name in names:  # as the scheduler itself reaches it
            if addresses[node_name] in unknown and node_name in request["addresses"]:
                addresses[node_name] = request["addresses"][node_name]
        unknown = look_up(addresses.values())
        after = [node for node in nodes if node[0] > name] or nodes
        host, port = addresses[after[0][0]], after[0][1]
        failure = None
        try:
            if host not in unknown:
                socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failure = f"{host} port {port}: {error.strerror or error}"
        # The others connect to this one meanwhile.
        write(os.path.join(folder, f"connected.{me}.json"), name)
        wait_for_all(folder, "connected", request["nodes"])
    unresolved = {
        node_name: unknown[address]
        for node_name, address in addresses.items()
        if address in unknown
    }
    own_failures = look_up([socket.gethostname()])
    return {"unknown": unresolved, "connection": failure, "own": "; ".join(own_failures.values())}


def look_up(names):
    """{name: reason} for names that cannot be resolved in LOOKUP_TIMEOUT_S."""
    answers = {}

    def resolve(name):
        try:
            socket.getaddrinfo(name, None)
            answers[name] = ""
        except (OSError, UnicodeError) as error:
            answers[name] = getattr(error, "strerror", None) or str(error)

    threads = {name: threading.Thread(target=resolve, args=(name,), daemon=True) for name in names}
    for thread in threads.values():
        thread.start()
    deadline_s = time.monotonic() + LOOKUP_TIMEOUT_S
    for thread in threads.values():
        thread.join(max(0, deadline_s - time.monotonic()))
    late = f"no answer within {LOOKUP_TIMEOUT_S:g} s"
    return {name: answers.get(name, late) for name in threads if answers.get(name, late)}


def wait_for_all(folder, kind, number):
    """[(file, JSON in it)] of `number` nodes, or of fewer if others do not write in time."""
    deadline_s = time.monotonic() + FILE_TIMEOUT_S
    while True:
        names = sorted(n for n in os.listdir(folder) if re.match(rf"{kind}\..*\.json$", n))
        if len(names) >= number or time.monotonic() > deadline_s:
            return [(name, wait_for(os.path.join(folder, name))) for name in names]
        time.sleep(0.02)


def inspect_node(request):
    """The facts about this node that the request asks for."""
    report = {"modules": load_modules(request)}
    report["cores"] = len(os.sched_getaffinity(0))
    report["pythons"] = {
        python: probe_python(python, package) for python, package in request["pythons"].items()
    }
    report["gpus"] = gpus()
    report["driver"] = driver()
    report["programs"] = [(names, first_installed(names)) for names in request["programs"]]
    report["mpi"] = None if request["mpi"] is None else mpi_programs(request["mpi"])
    report["srun_mpi"] = run_command(["srun", "--mpi=list"])[1] if request["srun_mpi"] else None
    report["mpi_type"] = mpi_type() if request["srun_mpi"] else None
    report["tmpdir"] = temporary_space(request["tmpdir"])
    report["images"] = {name: run_command(command) for name, command in request["images"].items()}
    return report


def load_modules(request):
    """Load the site's modules into this process's environment. Returns None, or why that failed."""
    if not request["modules"]:
        return None
    code, output = run_command([request["python"], "-c", LOAD_MODULES] + request["modules"])
    if code:
        return output
    os.environ.update(json.loads(output.splitlines()[-1]))
    return None


def probe_python(python, package):
    """(version, whether it has a package), or (None, error output) if it does not start."""
    code, output = run_command([python, "--version"])
    if code:
        return None, output
    return output.split()[-1], run_command([python, "-I", "-c", FIND, package])[0] == 0


def gpus():
    """The number of GPUs that NVIDIA's driver lists; None without a driver."""
    if not shutil.which("nvidia-smi"):
        return None
    return sum(
        line.startswith("GPU ") for line in run_command(["nvidia-smi", "-L"])[1].splitlines()
    )


def driver():
    """The version of NVIDIA's driver; None without one, or if nvidia-smi fails."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    code, output = run_command(query)
    match = re.search(r"^\d+(\.\d+)+$", output, re.MULTILINE)  # failures are printed, too
    return None if code or not match else match.group()


def mpi_programs(requested):
    """[(path, version or error output, whether it starts)] of each installed mpirun."""
    programs = []
    for mpirun, variables in requested:
        path = shutil.which(mpirun)
        if path:
            code, output = run_command([path, "--version"], variables)
            match = re.search(r"(Open MPI|MPICH|Intel\(R\) MPI)\D*([\d.]*\d)", output)
            version = " ".join(match.groups()) if match else output
            programs.append((path, version, code == 0))
    return programs


def mpi_type():
    """srun's default for --mpi; None if Slurm does not say."""
    match = re.search(r"MpiDefault\s*=\s*(\S+)", run_command(["scontrol", "show", "config"])[1])
    return os.environ.get("SLURM_MPI_TYPE") or (match and match.group(1))


def temporary_space(folder):
    """{"folder", "free_mb" or "error"} of the folder for temporary files."""
    folder = folder or os.environ.get("TMPDIR") or "/tmp"
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return {"folder": folder, "error": str(error)}
    return {"folder": folder, "free_mb": shutil.disk_usage(folder).free // 2**20}


def first_installed(names):
    """The first of some programs that is on PATH, or None."""
    return next((name for name in names if shutil.which(name)), None)


def run_command(command, variables=None):
    """(exit code, stdout and stderr) of a command; (127, reason) if it cannot be started."""
    try:
        finished = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=120, env=dict(os.environ, **(variables or {})), check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return finished.returncode, finished.stdout.decode(errors="replace").strip()


def wait_for(path):
    """The JSON in a file as soon as the file exists; None after FILE_TIMEOUT_S."""
    deadline_s = time.monotonic() + FILE_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            # NFS may cache that a file is missing; listing the folder refreshes the cache.
            os.listdir(os.path.dirname(path))
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        time.sleep(0.02)
    return None


def write(path, content):
    """Write JSON atomically, since the other side reads the file as soon as it exists."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.rename(part, path)


if __name__ == "__main__":
    sys.exit(main())
