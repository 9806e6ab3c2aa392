"""One short job that reports from compute nodes: workflow_scripts/check_node.py.

- The scheduler's program submits it, with the settings of the profile, and waits for its end.
- The nodes and this machine write files for one another into a folder of the results. This shows
  whether the folder is shared, how long files take to appear, and how far the clocks differ.
"""

import contextlib
import json
import math
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.cluster.remarks import Remark, fix, note, ok
from dlbench.common import own_code, plugins, tools
from dlbench.common.files import write_json
from dlbench.images import cuda_drivers
from dlbench.schedulers import JobRequest, output_of

FOLDER = Path("results/site_check")
PROGRAM = "workflow_scripts/check_node.py"
MINUTES = 5  # limit of the job, which takes seconds
LATE_FILES_S = 5.0  # after the end of a job that failed, until its last files appear
SKEW_S = 1.0  # of clocks; beyond this, times in logs of several nodes are misleading
FREE_MB = 1024
LAUNCH_FAILED = re.compile(r"launch failed|\bMPI\b", re.IGNORECASE)  # in the output of srun
SCRIPT = """#!/bin/sh
cd {here} || exit 1
for python in {python} python3; do
    "$python" -c '' 2>/dev/null && exec {before} "$python" {program} {folder}
done
echo "neither {python} nor python3 can be started on $(hostname)" >&2
exit 1
"""


def run(
    scheduler: str,
    job: JobRequest,
    request: Mapping[str, Any],
    timeout_s: float,
    latency_s: float,
) -> list[dict[str, Any]]:
    """Submit the job and return the reports of check_node.py, one for each node.

    Args:
        scheduler: name of a file in schedulers/.
        request: what check_node.py checks.
        timeout_s: how long the job may wait in the queue.
        latency_s: for which Snakemake waits for the files of a job that has succeeded.

    Raises:
        Error: the job was refused, waited too long, or ended without a report.
    """
    module = plugins.load("schedulers", scheduler)
    folder = FOLDER.absolute() / secrets.token_hex(8)
    write_json(folder / "request.json", {**request, "nodes": job.nodes, "token": folder.name})
    script = folder / "job.sh"
    before = module.on_each_node(job) if job.nodes > 1 or job.speaks_mpi else []
    script.write_text(_script(folder, before))
    command = module.wait_command(job, script, folder)
    with open(folder / "submitted.out", "wb") as output:
        try:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Error(f"{command[0]} cannot be started: {error}") from None
    try:
        reports = _wait_for_reports(process, folder, job.nodes, timeout_s, latency_s)
        if reports is None:
            raise Error(_describe_timeout(module, scheduler, folder, timeout_s))
    finally:
        _end(process, module, folder)
    if not reports:
        raise Error(_describe_missing_report(folder, command))
    shutil.rmtree(folder, ignore_errors=True)
    return reports


def remarks(reports: Sequence[Mapping[str, Any]], expected: Mapping[str, Any]) -> Iterator[Remark]:
    """Yield remarks on nodes; equal remarks on several nodes are joined.

    Args:
        reports: of check_node.py.
        expected: {"cores", "gpus" (None if devices are CPUs), "latency_s", "modules",
            "packages": {python: package}, "environments": names of those of the runs,
            "mpi_across": None or {"component", "shells"}, "own_name": whether runs need the name
            that a node has for itself}.
    """
    hosts: dict[Remark, list[str]] = {}
    for report in reports:
        for remark in _remarks(report, expected):
            hosts.setdefault(remark, []).append(report["host"])
    for remark, names in hosts.items():
        yield Remark(remark.mark, f"{', '.join(names)}: {remark.text}")


def _script(folder, before):
    return SCRIPT.format(
        here=shlex.quote(str(Path.cwd())),
        python=shlex.quote(sys.executable),
        before=shlex.join(before),
        program=shlex.quote(str(own_code.project_path(PROGRAM))),
        folder=shlex.quote(str(folder)),
    )


def _wait_for_reports(process, folder, nodes, timeout_s, latency_s):
    """The reports of all nodes, or fewer if the job has ended; None if it waited too long."""
    started, answered, ended_at = time.monotonic(), False, None
    while True:
        answered = _answer_nodes(folder) or answered
        reports = _reports(folder)
        if len(reports) == nodes:
            return reports
        now = time.monotonic()
        if process.poll() is not None:
            ended_at = ended_at or now
            late_s = LATE_FILES_S if process.returncode else latency_s
            if now - ended_at > late_s or not _job_id(folder):
                return reports
        if now - started > timeout_s + (MINUTES * 60 if answered else 0):
            return reports if answered else None
        time.sleep(0.02 if answered else 0.3)


def _answer_nodes(folder):
    """Answer new hello files of nodes. Returns whether there are any."""
    hellos = list(folder.glob("hello.*.json"))
    for hello in hellos:
        answer = hello.with_name("answer" + hello.name.removeprefix("hello"))
        if not answer.exists():
            write_json(answer, {"time": time.time()})
    return bool(hellos)


def _reports(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("report.*.json"))]


def _job_id(folder):
    """The id of the job, from the output of the submit command, or None."""
    match = re.search(r"\d+(\.[\w.-]+)?", (folder / "submitted.out").read_text(errors="replace"))
    return match and match[0]


def _end(process, module, folder):
    """End the job and the program that waits for it."""
    if process.poll() is not None:
        return
    job_id = _job_id(folder)
    if job_id:
        with contextlib.suppress(Error):  # it has just ended
            output_of([module.CANCEL, job_id])
    process.terminate()
    process.wait()


def _describe_timeout(module, scheduler, folder, timeout_s):
    job_id = _job_id(folder)
    state_of_job = module.job_states({job_id}).get(job_id) if job_id else None
    state = f" ({state_of_job.state})" if state_of_job else ""
    return (
        f"job {job_id or 'without a number'} of the check waited for more than {timeout_s:g} s in "
        f"the queue{state} and was cancelled: ask {scheduler} why it does not start, or give it "
        "longer by --timeout"
    )


def _describe_missing_report(folder, command):
    job_id = _job_id(folder)
    message = _last_lines(folder / "submitted.out")
    if not job_id:
        return f"the job of the check was refused: {message or 'no message'} (by: {command[0]})"
    printed = " | ".join(filter(None, map(_last_lines, _output_files(folder))))
    if LAUNCH_FAILED.search(printed):
        return (
            f"job {job_id} of the check could not start its processes, as those of runs by srun "
            f"are started: {printed}; Slurm's default protocol of MPI may not work here: export "
            "SLURM_MPI_TYPE as another one of `srun --mpi=list`, or use another launcher. "
            f"What is left of the job is in {folder}"
        )
    return (
        f"job {job_id} of the check ended without an answer from its node"
        f"{': ' + printed if printed else ''}; expected this folder, with its Python "
        f"({sys.executable}), on compute nodes under the same path: {Path.cwd()}. "
        f"What is left of the job is in {folder}"
    )


def _output_files(folder):
    """Files that may contain the job's output."""
    ours = ("request.json", "job.sh", "submitted.out")
    names = ("hello.", "answer.", "report.", "listens.", "connected.")
    return [p for p in folder.iterdir() if p.name not in ours and not p.name.startswith(names)]


def _last_lines(path):
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    return " | ".join(list(filter(None, lines))[-3:])


def _remarks(report, expected):
    if not report["token"]:
        yield fix(
            "does not see what is written into the results here: is that folder on a file system "
            "which all nodes share?"
        )
        return
    yield from _files(report, expected["latency_s"])
    yield from _clock(report)
    if report["others"]:
        yield from _others(report["others"], expected["own_name"])
    if report["modules"]:
        yield fix(report["modules"])
    elif expected["modules"]:
        yield ok(f"modules {', '.join(expected['modules'])} are loaded")
    for python, (version, output) in report["pythons"].items():
        yield _python(python, version, output, expected["packages"][python])
    yield from _devices(report, expected)
    yield from _programs(report, expected["mpi_across"])
    yield _temporary_folder(report["tmpdir"])
    for name, (code, output) in report["images"].items():
        last = (output.splitlines() or ["no message"])[-1]
        if code:
            yield fix(
                f"image {name} does not start (exit code {code}): {last}; is the runtime set up on "
                "compute nodes as it is here, with the image's folders? (docs/containers.md)"
            )
        else:
            yield ok(f"image {name} starts, {last}")


def _files(report, latency_s):
    trips = [exchange["round_trip_s"] for exchange in report["rounds"] if exchange]
    if len(trips) < len(report["rounds"]):
        yield fix(
            "a file that was written here, after the node looked for it, was not seen there: the "
            "results are not shared, or their file system shows new files late; put them elsewhere"
        )
    elif max(trips) > latency_s:
        yield fix(
            f"files take {max(trips):.0f} s to be seen there and back, and Snakemake waits "
            f"{latency_s:g} s for them: set latency-wait to {math.ceil(2 * max(trips))} in the "
            "profile"
        )
    else:
        yield ok(f"files in the results are seen there and back within {max(trips):.2f} s")


def _clock(report):
    fastest = min(filter(None, report["rounds"]), key=lambda r: r["round_trip_s"], default=None)
    if not fastest:
        yield note("clock not compared, since no file came through")
        return
    offset_s, within_s = fastest["offset_s"], fastest["round_trip_s"] / 2
    apart_s = round(-offset_s, 2) + 0.0  # never -0.0
    text = f"its clock is {apart_s:+.2f} s from that here (to within {within_s:.2f} s)"
    if abs(offset_s) - within_s > SKEW_S:
        yield fix(f"{text}: ask for its clock to be set (NTP); times in logs would mislead")
    elif within_s > SKEW_S:
        yield note(f"{text}: files travel too slowly to say more")
    else:
        yield ok(text)


def _others(others, own_name):
    """Remarks on whether processes on several nodes can connect to one another."""
    remedy = "put the names of all nodes into DNS or /etc/hosts, or say site.node_address"
    if others["unknown"]:
        names = ", ".join(f"{name} ({why})" for name, why in others["unknown"].items())
        yield fix(f"does not know {names}: runs across nodes would not start; {remedy}")
    elif others["connection"]:
        yield fix(
            f"cannot connect to another node at {others['connection']}: runs across nodes need any "
            "port of the others; ask for the firewall, or name another network in site.node_address"
        )
    else:
        yield ok("the other nodes are known, and a free port of one is reached")
    if others["own"] and own_name:
        yield fix(
            f"does not know its own name ({others['own']}), where JAX listens: runs across nodes "
            "would not start; put it into DNS or /etc/hosts with an address of that node"
        )


def _python(python, version, output, package):
    if version is None:
        return fix(
            f"{python} cannot be started: {output}; where it leads (readlink -f) must be on a file "
            "system that compute nodes see, also the Python that uv installed "
            "(UV_PYTHON_INSTALL_DIR)"
        )
    if not output:
        return fix(
            f"{python} has no {package}: is its folder seen there as it is here? Or make it anew"
        )
    return ok(f"{python}, {version}, with {package}")


def _devices(report, expected):
    if report["cores"] < expected["cores"]:
        yield fix(
            f"a job that asks for {expected['cores']} cores may use {report['cores']}: correct "
            "site.cores_per_node or threads_per_device"
        )
    else:
        yield ok(f"{report['cores']} cores may be used, and runs ask for {expected['cores']}")
    if expected["gpus"] is None:
        return
    if report["gpus"] is None:
        yield fix("no nvidia-smi, so no NVIDIA driver: does the profile name a queue with GPUs?")
    elif report["gpus"] != expected["gpus"]:
        yield fix(
            f"nvidia-smi lists {report['gpus']} GPUs in a job that asks for {expected['gpus']}: "
            "correct site.devices_per_node or site.job.gpu_request"
        )
    else:
        yield ok(f"{report['gpus']} GPUs are listed by nvidia-smi")
    if driver := report["driver"]:
        misfits = list(cuda_drivers.misfits(expected["environments"], driver))
        for misfit in misfits:
            yield fix(f"envs/{misfit.environment} {misfit.reason}: {misfit.remedy}")
        if not misfits:
            yield ok(f"driver {driver} is new enough for the CUDA of the environments")


def _programs(report, mpi_across):
    for names, program in report["programs"]:
        if program:
            yield ok(f"{program} is on the path")
        else:
            yield fix(
                f"{' or '.join(names)} is not on the path: load it by site.modules, or leave out "
                "runs that need it"
            )
    if report["mpi"] is not None:
        yield from _mpi(report, mpi_across)
    if report["srun_mpi"] is not None:
        yield _srun_mpi(report["srun_mpi"], report["mpi_type"])


def _mpi(report, across):
    if not report["mpi"]:
        yield fix(
            "no mpirun on the path or in the trainer's environment: load MPI by site.modules, or "
            + tools.dlbench_command("environment envs/train --extra horovod")
        )
        return
    path, output, works, components = report["mpi"][0]
    yield ok(f"{path} is {output}") if works else fix(f"{path} does not work: {output}")
    if not works or not across or not components or across["component"] in components:
        return
    why = f"{path} was not built for the scheduler ({across['component']} of ompi_info)"
    if report["remote_shell"]:
        yield ok(f"{why}: it is told a job's nodes and starts on them by {report['remote_shell']}")
    else:
        yield fix(
            f"{why}, and {' or '.join(across['shells'])}, by which it could start processes on "
            "other nodes, is not on the path: load one, or another Open MPI, by site.modules"
        )


def _srun_mpi(listed, chosen):
    kinds = sorted(set(re.findall(r"\b(pmix\w*|pmi2|cray_shasta)\b", listed)))
    if not kinds:
        return fix(f"srun knows no protocol of MPI ({listed}): use the launcher mpirun")
    if chosen not in kinds:
        best = "pmix" if "pmix" in kinds else kinds[0]
        return fix(
            f"srun speaks {chosen or 'nothing'} to MPI and knows {', '.join(kinds)}: "
            f"export SLURM_MPI_TYPE={best}"
        )
    return ok(f"srun speaks {chosen} to MPI")


def _temporary_folder(room):
    if "error" in room:
        return fix(
            f"temporary files cannot be written: {room['error']}; name a folder of the nodes as "
            "tmpdir in the profile's default-resources"
        )
    text = f"{room['free_mb']} MiB are free for temporary files in {room['folder']}"
    if room["free_mb"] < FREE_MB:
        return fix(f"{text}: name a larger one as tmpdir in the profile's default-resources")
    return ok(text)
