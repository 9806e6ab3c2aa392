"""The processes of one pod among the pods of an indexed Job of Kubernetes.

- Pod 0 hosts a rendezvous: each other pod opens a TCP connection to it, sends the ports on which
  its tasks will listen, and receives those of all pods. Pods of other jobs are rejected.
- tf.distribute's tasks get a TF_CONFIG each. Horovod's ranks get its variables for Gloo, whose
  rendezvous server runs in pod 0, so the image needs neither MPI nor ssh.
- The connections stay open. When a process fails or a pod is gone, all processes in all pods are
  ended: they would wait for it for ever.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from dlbench import Error
from dlbench.starting import start_processes

POLL_S = 0.2
HELLO_S = 5.0  # timeout for the first message of a connection
MAX_LINE_BYTES = 1 << 20  # whoever sends a longer line is no pod of this job
Task = tuple[str, int]  # (kind of job, number)
DISCOVERY = ("tf_config", "horovod", "nothing")


def run(pod: "Pod", jobs: dict[str, int], discovery: str, command: list[str]) -> int:
    """Start this pod's processes and wait for all of all pods.

    Args:
        jobs: processes of each kind in all pods together, as in {"chief": 1, "worker": 2}.
        discovery: one of DISCOVERY, how the processes find one another.
        command: what each process runs.

    Returns:
        Exit code of the first that failed, 0 if none did.

    Raises:
        Error: another pod did not connect, or the processes cannot be spread over the pods.
    """
    tasks = layout(jobs, len(pod.hosts))
    prepare = _start_horovod_server if discovery == "horovod" else lambda *_: None
    links, offers, port = pod.rendezvous(
        start_processes.free_ports(len(tasks[pod.index])), lambda: prepare(pod.hosts, len(tasks[0]))
    )
    if discovery == "horovod":
        variables_of_tasks = horovod_variables(pod.index, len(tasks[0]), pod.hosts, port)
    elif discovery == "tf_config":
        variables_of_tasks = tf_configs(pod.index, tasks, pod.hosts, offers)
    else:
        variables_of_tasks = [{} for _ in tasks[pod.index]]
    popen_options = {
        task: {"env": os.environ | variables}
        for task, variables in zip(tasks[pod.index], variables_of_tasks, strict=True)
    }
    code = 1
    try:
        code = start_processes.supervise(
            popen_options, command, start_processes.EXIT_TIMEOUT_S, lambda: _failed(links)
        )
        if code == 0 and pod.index == 0:
            code = _wait_for_exit_codes(links)
    finally:
        _send_exit_code(links, code)
    if code and pod.index:
        # The Job ends all pods once one has failed: pod 0 writes down what happened before.
        time.sleep(pod.linger_s)
    return code


def layout(jobs: dict[str, int], nodes: int) -> list[list[Task]]:
    """The tasks of each pod as (job, index): equally many workers in each, the others in turn.

    >>> layout({"chief": 1, "worker": 2, "ps": 1}, nodes=2)
    [[('chief', 0), ('worker', 0)], [('ps', 0), ('worker', 1)]]
    """
    each, rest = divmod(jobs["worker"], nodes)
    if rest:
        raise Error(f"{jobs['worker']} workers cannot be spread evenly over {nodes} pods")
    others = [(job, i) for job, count in jobs.items() if job != "worker" for i in range(count)]
    return [
        others[node::nodes] + [("worker", node * each + i) for i in range(each)]
        for node in range(nodes)
    ]


def tf_configs(
    index: int, tasks: list[list[Task]], hosts: list[str], ports: list[list[int]]
) -> list[dict[str, str]]:
    """The variables of each task of one pod.

    Args:
        tasks: of all pods, as from `layout`.
        ports: of all pods' tasks, in their order.
    """
    addresses = {
        task: f"{host}:{port}"
        for host, tasks_of_pod, ports_of_pod in zip(hosts, tasks, ports, strict=True)
        for task, port in zip(tasks_of_pod, ports_of_pod, strict=True)
    }
    cluster: dict[str, list[str]] = {}
    for job, number in sorted(addresses):
        cluster.setdefault(job, []).append(addresses[job, number])
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": number}})}
        for job, number in tasks[index]
    ]


def horovod_variables(index: int, each: int, hosts: list[str], port: int) -> list[dict[str, str]]:
    """The variables of each rank of one pod, as horovodrun --gloo sets them.

    Gloo takes the network of the pod's own host name, unless HOROVOD_GLOO_IFACE names another.

    Args:
        each: ranks in a pod.
        port: of the rendezvous server in pod 0.
    """
    return [
        {
            "HOROVOD_RANK": str(index * each + local),
            "HOROVOD_SIZE": str(len(hosts) * each),
            "HOROVOD_LOCAL_RANK": str(local),
            "HOROVOD_LOCAL_SIZE": str(each),
            "HOROVOD_CROSS_RANK": str(index),
            "HOROVOD_CROSS_SIZE": str(len(hosts)),
            "HOROVOD_HOSTNAME": _label(index),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": socket.gethostbyname(hosts[0]),
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }
        for local in range(each)
    ]


class Pod:
    """This pod, and its rendezvous with the others.

    Args:
        index: its number, from 0.
        hosts: the host names of all pods in order.
        port: on which pod 0 listens.
        wait_s: timeout of the rendezvous.
        linger_s: how long a failed pod other than pod 0 waits before it ends.
    """

    def __init__(
        self, index: int, hosts: list[str], port: int, wait_s: float, linger_s: float = 0.0
    ):
        if not 0 <= index < len(hosts):
            raise Error(f"pod {index}: expected a number from 0 to {len(hosts) - 1}")
        self.index, self.hosts, self.port = index, hosts, port
        self.wait_s, self.linger_s = wait_s, linger_s

    def rendezvous(
        self, offer: Any = None, prepare: Callable[[], Any] = lambda: None
    ) -> tuple[dict[int, "Link"], list[Any], Any]:
        """Wait until all pods are connected.

        Args:
            offer: sent to all other pods.
            prepare: called in pod 0 only, once all are connected.

        Returns:
            ({index: Link} to pod 0 or, there, to all others; the offers of all pods; what
            `prepare` returned)

        Raises:
            Error: a pod did not connect in time.
        """
        deadline = time.monotonic() + self.wait_s
        if len(self.hosts) == 1:
            return {}, [offer], prepare()
        if self.index == 0:
            return self._host_rendezvous(offer, prepare, deadline)
        return self._join_rendezvous(offer, deadline)

    def _host_rendezvous(self, offer, prepare, deadline):
        """Pod 0: collect the offers of the others, then send all offers to all."""
        links, offers = {}, {0: offer}
        with socket.create_server(("", self.port), backlog=len(self.hosts)) as server:
            while len(offers) < len(self.hosts):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([server], [], [], left)[0]:
                    missing = [i for i in range(len(self.hosts)) if i not in offers]
                    raise Error(
                        f"pod 0 waited {self.wait_s:g} s for pod {', '.join(map(str, missing))}, "
                        "in vain: is there room for all pods at once?"
                    )
                link = Link(server.accept()[0])
                hello = link.wait(time.monotonic() + HELLO_S)
                index = hello.get("index") if hello else None
                ours = hello and hello.get("to") == self.hosts[0] and "offer" in hello
                if ours and index in range(1, len(self.hosts)):
                    links[index], offers[index] = link, hello["offer"]
                else:
                    link.close()
        everything = [offers[index] for index in range(len(self.hosts))], prepare()
        for link in links.values():
            link.send({"all": everything})
        return links, *everything

    def _join_rendezvous(self, offer, deadline):
        """Any other pod: connect to pod 0, send the index and offer, receive all offers."""
        problem = "no answer"
        while time.monotonic() < deadline:
            try:
                address = self.hosts[0], self.port
                link = Link(socket.create_connection(address, timeout=HELLO_S))
            except OSError as error:  # also a name that does not resolve yet
                problem = error
                time.sleep(POLL_S)
                continue
            link.send({"to": self.hosts[0], "index": self.index, "offer": offer})
            answer = link.wait(deadline)
            if answer:
                return {0: link}, *answer["all"]
            link.close()
            time.sleep(POLL_S)
        raise Error(
            f"pod {self.index} waited {self.wait_s:g} s for pod 0 at {self.hosts[0]} port "
            f"{self.port}, in vain ({problem})"
        )


class Link:
    """A connection over which objects travel as lines of JSON.

    Attributes:
        is_closed: whether the other side has closed it.
        exit_code: what the other side has sent; None if its processes have not ended.
    """

    def __init__(self, connection: socket.socket):
        self.is_closed = False
        self.exit_code: int | None = None
        self._connection, self._buffer = connection, b""
        connection.setblocking(True)
        # A node that loses its power closes nothing.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(self, content: Any) -> None:
        """Send an object. A broken connection is noticed by the next read."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(content).encode() + b"\n")

    def wait(self, deadline: float) -> dict[str, Any] | None:
        """The next object; None after the deadline."""
        while not self.is_closed and time.monotonic() < deadline:
            content = self.read(min(POLL_S, max(0.0, deadline - time.monotonic())))
            if content is not None:
                return content
        return None

    def read(self, timeout_s: float = 0.0) -> dict[str, Any] | None:
        """The next object, or None if none has arrived; an exit code in it sets `exit_code`."""
        if not self.is_closed and select.select([self._connection], [], [], timeout_s)[0]:
            try:
                received = self._connection.recv(1 << 16)
            except OSError:
                received = b""
            self.is_closed = not received
            self._buffer += received
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            self.is_closed = self.is_closed or len(self._buffer) > MAX_LINE_BYTES
            return None
        self._buffer = rest
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            self.is_closed = True
            return None
        self.exit_code = content.get("code", self.exit_code)
        return content

    def close(self) -> None:
        """Close the connection."""
        self.is_closed = True
        self._connection.close()


def _failed(links):
    """(exit code, message) if another pod has failed or is gone, else None."""
    for index, link in links.items():
        link.read()
        if link.exit_code:
            return (
                link.exit_code,
                f"pod {index} failed (exit code {link.exit_code}); this one is ended",
            )
        if link.is_closed and link.exit_code is None:
            return 1, f"pod {index} is gone; this one is ended"
    return None


def _wait_for_exit_codes(links):
    """Exit code once all other pods have ended, as they soon should."""
    deadline = time.monotonic() + start_processes.EXIT_TIMEOUT_S
    while any(link.exit_code is None for link in links.values()):
        failed = _failed(links)
        if not failed and time.monotonic() > deadline:
            left = [str(index) for index, link in links.items() if link.exit_code is None]
            waited_s = start_processes.EXIT_TIMEOUT_S
            failed = 1, f"still there {waited_s:g} s after this pod: {', '.join(left)}"
        if failed:
            print(failed[1], file=sys.stderr)
            return failed[0]
        time.sleep(POLL_S)
    return next((link.exit_code for link in links.values() if link.exit_code), 0)


def _send_exit_code(links, code):
    for index, link in links.items():
        link.send({"code": code})
        if (
            index
        ):  # this is pod 0, which ends; others keep their connection to see whether it is there
            link.close()


def _start_horovod_server(hosts, each):
    """Start Horovod's rendezvous server for Gloo. Returns its port."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    slots = ",".join(f"{_label(index)}:{each}" for index in range(len(hosts)))
    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parse_hosts(slots), len(hosts) * each))
    return port


def _label(index):
    """The host name given to Horovod; pods on one machine, as in tests, need different ones."""
    return f"pod-{index}"
