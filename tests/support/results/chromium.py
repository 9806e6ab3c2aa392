"""Headless Chromium for tests, controlled through its debugging pipe: no driver, no network.

The protocol is that of https://chromedevtools.github.io/devtools-protocol/: JSON objects, each
ended by a zero byte, read by the browser from file descriptor 3 and written to 4.
"""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
FLAGS = ("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
         "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update")  # fmt: skip
DEADLINE_S = 60


def installed():
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browser():
    """Yield a function that opens a page: page(path, width, height, dark, phone) -> Page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        to_browser, from_browser = (_pipe() for _ in range(2))

        def descriptors():
            os.dup2(to_browser[0], 3)
            os.dup2(from_browser[1], 4)

        command = [installed(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(command, close_fds=False, preexec_fn=descriptors, **silent)
        os.close(to_browser[0])
        os.close(from_browser[1])
        connection = _Connection(to_browser[1], from_browser[0])
        try:
            yield lambda path, **options: Page(connection, path, **options)
            connection.send("Browser.close")
            process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])


def _pipe():
    """A pipe whose ends are none of the browser's descriptors."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends


class _Connection:
    def __init__(self, write, read):
        self._write, self._read, self._rest = write, read, b""
        self._ids = itertools.count(1)
        self.events = []

    def send(self, method, session=None, **params):
        """Send a command and return its result; earlier events are kept."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._write, content) :]
        return self.wait(lambda m: m.get("id") == number, method)

    def wait(self, wanted, what, deadline_s=DEADLINE_S):
        """Wait for the first matching message among earlier and later events."""
        end = time.monotonic() + deadline_s
        while True:
            message = self._next(end, what)
            if wanted(message):
                assert "error" not in message, (what, message["error"])
                return message.get("result", message)
            self.events.append(message)

    def _next(self, end, what):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            assert ready, f"the browser does not answer {what}"
            part = os.read(self._read, 1 << 20)
            assert part, f"the browser ended at {what}"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


class Page:
    """A loaded page, with its console messages and requests.

    `load_s` is from the start of the navigation to the end of the load event.
    """

    def __init__(self, connection, path, width=1280, height=900, dark=False, phone=False):
        self._connection = connection
        target = connection.send("Target.createTarget", url="about:blank")["targetId"]
        attached = connection.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1}
        self.send("Emulation.setDeviceMetricsOverride", mobile=phone, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.resolve().as_uri())
        self._loaded()
        self.load_s = self.run(
            "const [n] = performance.getEntriesByType('navigation'); return n.loadEventEnd / 1e3"
        )

    def _loaded(self):
        def is_load(message):
            return (
                message.get("method") == "Page.loadEventFired"
                and message.get("sessionId") == self._session
            )

        if not any(map(is_load, self._connection.events)):
            self._connection.wait(is_load, "the load event")

    def send(self, method, **params):
        return self._connection.send(method, self._session, **params)

    def run(self, body):
        """The value that the body of an asynchronous function returns, run in the page."""
        options = {"awaitPromise": True, "returnByValue": True}
        expression = f"(async () => {{ {body} }})()"
        answer = self.send("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, text=""):
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
        values = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **values)
        self.send("Input.dispatchKeyEvent", type="keyUp", **values)

    @property
    def complaints(self):
        """Messages on the console, and uncaught exceptions."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [e["params"] for e in self._own() if e["method"] in kinds]

    @property
    def requests(self):
        """Requested addresses, without data: URLs."""
        sent = [e for e in self._own() if e["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith("data:")]

    def _own(self):
        return [e for e in self._connection.events if e.get("sessionId") == self._session]

    def pdf(self):
        options = {"printBackground": True, "preferCSSPageSize": True}
        made = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, **options)
        return base64.b64decode(made["data"])
