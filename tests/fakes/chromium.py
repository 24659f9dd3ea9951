"""A real headless Chromium, driven over its debugging pipe: no driver, no port, no network, no package.

Every page event is kept: what the console said, what was thrown, what was requested.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WITHOUT_COMFORTS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-default-browser-check",
    "--no-first-run",
)


def find_chromium() -> str | None:
    """Path of a Chromium, if this machine has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one tab.

    Attributes:
        console: warnings and errors of the console, and uncaught exceptions.
        requests: addresses of everything that was requested.
    """

    def __init__(self, profile: Path, timeout_s: float = 60.0) -> None:
        program = find_chromium()
        assert program is not None, "look for it before"
        self.console: list[str] = []
        self.requests: list[str] = []
        self._timeout_s = timeout_s
        self._numbers = iter(range(1, 1_000_000))
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._loaded = False
        commands_out, self._commands = os.pipe()
        self._events, events_in = os.pipe()
        script = f'exec "$@" 3<&{commands_out} 4>&{events_in}'
        arguments = [program, *WITHOUT_COMFORTS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *arguments],
            pass_fds=(commands_out, events_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(events_in)
        threading.Thread(target=self._listen, daemon=True).start()
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", {"targetId": page["targetId"], "flatten": True}, session=None)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file and wait until it is loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._loaded = False
        self._call("Page.navigate", {"url": page.resolve().as_uri()})
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._loaded, self._timeout_s), "the page did not load"

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        answer = self._call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until an expression holds: what a click sets off may come an instant later."""
        within = time.monotonic() + self._timeout_s
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < within, f"never so: {expression}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A key, as a person would press it in what has the focus."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", {"type": kind, "key": key, **(text if kind == "keyDown" else {})})

    def _middle(self, selector: str) -> dict[str, float]:
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"(b => ({{x: b.x + b.width / 2, y: b.y + b.height / 2}}))({element}.getBoundingClientRect())")
        return {"x": box["x"], "y": box["y"]}

    def hover(self, selector: str) -> None:
        """The pointer over the middle of the first element that fits."""
        self._call("Input.dispatchMouseEvent", {"type": "mouseMoved", **self._middle(selector)})

    def click(self, selector: str) -> None:
        """A click on the middle of the first element that fits."""
        place = {**self._middle(selector), "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", {"type": kind, **place})

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        wanted = {"format": "png", "captureBeyondViewport": True, "clip": self._all()}
        answer = self._call("Page.captureScreenshot", wanted)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _all(self) -> dict[str, float]:
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def _call(
        self, method: str, parameters: dict[str, Any] | None = None, *, session: str | None = ""
    ) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        with self._arrived:
            assert self._arrived.wait_for(lambda: number in self._answers, self._timeout_s), f"no answer to {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _listen(self) -> None:
        rest = b""
        with os.fdopen(self._events, "rb", buffering=0) as events:
            while data := events.read(1 << 20):
                *messages, rest = (rest + data).split(b"\0")
                for message in messages:
                    with self._arrived:
                        self._take(json.loads(message))
                        self._arrived.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, parameters = message["method"], message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.console.append(json.dumps(parameters["entry"]))
