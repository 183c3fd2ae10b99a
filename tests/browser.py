"""Headless Chromium, controlled by the DevTools protocol over two pipes, without a driver."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests import HANG

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The browser, where there is one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((place for place in map(shutil.which, names) if place), None)


class Browser:
    """One page at a time; what it says on the console and asks the network is kept."""

    def __init__(self, folder: Path) -> None:
        program = chromium()
        assert program is not None
        heard, says = os.pipe()
        listens, spoken = os.pipe()

        def connect_pipes() -> None:
            # the protocol's own numbers: the browser reads from 3 and writes to 4
            os.dup2(os.dup(heard), 3)
            os.dup2(os.dup(spoken), 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=connect_pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(heard)
        os.close(spoken)
        self.out, self.input = os.fdopen(says, "wb", 0), os.fdopen(listens, "rb", 0)
        self.rest = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while True:
            heard = self._message()
            if heard.get("id") == self.number:
                assert "error" not in heard, heard["error"]
                return heard["result"]
            self.events.append(heard)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = self.input.read(1 << 20)
            assert part, "the browser has gone"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())
        self.wait_for_frames()

    def wait_for_frames(self) -> None:
        """Two frames later."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def run(self, script: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def emulate(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def key(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def picture(self, whole: bool = False) -> bytes:
        extra = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            extra["clip"] = {**size, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", **extra)
        return base64.b64decode(shot["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and uncaught exceptions."""
        found = []
        for event in self.events:
            said = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(said["exceptionDetails"]))
            if event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(said["args"]))
            if event.get("method") == "Log.entryAdded":
                found.append(str(said["entry"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for, but for what lies inside the file."""
        sent = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [address for address in sent if not address.startswith("data:")]

    def close(self) -> None:
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=HANG)
        self.out.close()
        self.input.close()
