"""Headless Chromium over its DevTools pipe, with the standard library alone."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Chromium reads commands from file descriptor 3 and answers on 4.
_LAUNCH = (
    "import os, sys; read, write = (os.dup(int(n)) for n in sys.argv[1:3]); "
    "os.dup2(read, 3); os.dup2(write, 4); "
    "os.set_inheritable(3, True); os.set_inheritable(4, True); "  # the copies may be 3 and 4
    "os.execvp(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def find_browser():
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Browser:
    """One tab. Events are kept: `logs` of the console, `requests` that the page makes."""

    def __init__(self, executable, profile):
        to_read, self._commands = os.pipe()
        self._answers, to_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), executable, *_FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.logs, self.requests, self._events = [], [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """A command's result; what happens meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path):
        self.send("Page.navigate", url=Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()
        self._events.clear()

    def evaluate(self, expression):
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def resize(self, width, height=900):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def prefer(self, scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path, height=None):
        options = {}
        if height:
            width = self.evaluate("innerWidth")
            options["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            options["captureBeyondViewport"] = True
        data = self.send("Page.captureScreenshot", **options)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self._session = None
        self.send("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._commands)
        os.close(self._answers)

    def _read(self):
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 2**16)
            if not part:
                raise RuntimeError("the browser has gone")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method:
            self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.logs.append((params["type"], str(params["args"])))
        if method == "Runtime.exceptionThrown":
            self.logs.append(("exception", str(params["exceptionDetails"])))
        if method == "Log.entryAdded":
            self.logs.append((params["entry"]["level"], params["entry"]["text"]))
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message
