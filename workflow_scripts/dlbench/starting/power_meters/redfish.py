"""Redfish, the service of a server's management controller: `power_meter: redfish URL`.

This file is a program that prints the watts of a resource once a second: PowerConsumedWatts of
Power, PowerWatts of EnvironmentMetrics, Reading of a Sensor; of what counts EnergykWh, the mean
between two of its values. They are the chassis', with the losses of its power supplies.
- In URL {node} is the name of the node. SSL_CERT_FILE names a site's own certificate.
- User and password are DLBENCH_REDFISH_USER and DLBENCH_REDFISH_PASSWORD, or those of the host in
  ~/.netrc. They are sent over https only, or to this machine.

Source: DMTF, schemas Power, EnvironmentMetrics and Sensor (redfish.dmtf.org/schemas). Not run on a
server: tested with a service of such resources.
"""

import base64
import json
import netrc
import os
import platform
import shlex
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SOURCE = "node with losses of its supply: Redfish"
EVERY_S, TIMEOUT_S = 1.0, 10.0
JOULES_PER_KWH = 3.6e6
USER, PASSWORD = "DLBENCH_REDFISH_USER", "DLBENCH_REDFISH_PASSWORD"
LOCAL = ("localhost", "127.0.0.1")


def open_meter(arguments: list[str], log: Path, nodes: int) -> Any:
    from dlbench.starting import power  # the program does without

    command = shlex.join([sys.executable, "-I", __file__, *arguments])
    return power.Meter(command, log, nodes, SOURCE)


def main(url: str) -> str:
    """Print watts for ever; returns why it ends, if another attempt would not help."""
    url = url.replace("{node}", platform.node().partition(".")[0])
    try:
        request = _request(url)
    except (ValueError, OSError, netrc.NetrcParseError) as error:
        return str(error)
    before: tuple[float, float] | None = None  # kWh, and when they were read
    while True:
        now_s = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http(s)
                watts, kwh = reading(json.load(answer))
            if kwh is not None and (not before or kwh != before[0]):
                if before:
                    watts = (kwh - before[0]) * JOULES_PER_KWH / (now_s - before[1])
                before = kwh, now_s
            if watts is not None:
                print(watts, flush=True)
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                return f"{url}: {error}; {USER} and {PASSWORD} say who asks"
            print(f"{url}: {error}", flush=True)
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - now_s)))


def reading(resource: dict[str, Any]) -> tuple[float | None, float | None]:
    """(watts, None) or (None, kWh) of a resource. Raises ValueError: it has neither.

    >>> reading({"PowerControl": [{"PowerConsumedWatts": 344}]})
    (344, None)
    >>> reading({"ReadingType": "EnergykWh", "Reading": 12.5})
    (None, 12.5)
    """
    found = {
        "Power": (resource.get("PowerWatts") or {}).get("Reading"),
        "EnergykWh": (resource.get("EnergykWh") or {}).get("Reading"),
        resource.get("ReadingType"): resource.get("Reading"),
    }
    control: dict[str, Any] = next(iter(resource.get("PowerControl") or ()), {})
    watts, kwh = control.get("PowerConsumedWatts", found["Power"]), found["EnergykWh"]
    if watts is None and kwh is None:
        raise ValueError("expected PowerConsumedWatts, PowerWatts, EnergykWh or a Sensor of these")
    return watts, kwh if watts is None else None


def _request(url):
    place = urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname or "@" in place.netloc:
        raise ValueError(f"expected redfish https://HOST/..., the user in {USER}")
    user, password = os.environ.get(USER), os.environ.get(PASSWORD)
    file = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    if password is None and file.exists():
        user, _, password = netrc.netrc(file).authenticators(place.hostname) or (user, "", None)
    request = urllib.request.Request(url)  # noqa: S310 - http(s), see above
    if password is not None:
        if place.scheme == "http" and place.hostname not in LOCAL:
            raise ValueError(f"{url}: a password is not sent over http: expected https")
        coded = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {coded}")
    return request


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
