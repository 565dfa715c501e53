"""A headless Chromium for tests, spoken to over two pipes (its DevTools protocol): no driver, no network, no port."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import HANG_S

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowLeft": 37}
# The browser wants its pipes as 3 and 4, which may be anything here.
_EXEC = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "--window-size=1280,1080",
)


def chromium() -> str | None:
    """The path of a browser, if there is one."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def wanted() -> str:
    """The path of a browser; where there is none the test is skipped, or fails where one must be there."""
    found = chromium()
    if found is None:
        assert not os.environ.get("DUCKKB_TEST_BROWSER"), "this run must have a browser, and there is none"
        pytest.skip(
            "no Chromium is installed here (`apt-get install -y chromium`); the tests without a browser hold the page's bytes, and where DUCKKB_TEST_BROWSER is set, as in CI, this fails"
        )
    return found


class Page:
    """One tab. `problems` are exceptions, errors on the console and violations of policy; `asked` the addresses loaded."""

    def __init__(self, send: Callable[..., dict[str, Any]], listen: Callable[[], None]) -> None:
        self._send = send
        self._listen = listen
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.loaded = 0

    def note(self, event: dict[str, Any]) -> None:
        """Take in an event."""
        about = event.get("params", {})
        match event["method"]:
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.asked.append(about["request"]["url"])
            case "Page.loadEventFired":
                self.loaded += 1

    def open(self, path: Path) -> None:
        self._go("Page.navigate", url=path.as_uri())

    def visit(self, url: str) -> None:
        """Go to an address of this machine."""
        self._go("Page.navigate", url=url)

    def size(self, width: int, height: int) -> None:
        """That of the window."""
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def reload(self) -> None:
        self._go("Page.reload")

    def follow(self, link: str) -> None:
        """Click a link that leads to another page, and wait until that page has loaded.

        The click runs after the answer of the browser, which else could get lost with the page that is left.
        """
        before = self.loaded
        self.run(f"setTimeout(() => document.querySelector({json.dumps(link)}).click()), 0")
        self._wait_for_load(before)

    def _go(self, method: str, **parameters: str) -> None:
        before = self.loaded
        self._send(method, **parameters)
        self._wait_for_load(before)

    def _wait_for_load(self, before: int) -> None:
        while self.loaded == before:
            self._listen()

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        done = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, is_so: Callable[[], Any]) -> None:
        """Go on when a condition holds."""
        until = time.monotonic() + HANG_S
        while not is_so():
            assert time.monotonic() < until, "the page did not get there"
            self.run("new Promise((done) => requestAnimationFrame(() => done(1)))")

    def press(self, key: str) -> None:
        text: dict[str, Any] = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": _KEYS[key]}
        self._send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self._send("Input.insertText", text=text)

    def dark(self, is_dark: bool) -> None:
        """What the system wants."""
        wish = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[wish])

    def names(self) -> list[tuple[str, str]]:
        """Role and accessible name of everything that is not ignored."""
        nodes = self._send("Accessibility.getFullAXTree")["nodes"]
        shown = (node for node in nodes if not node["ignored"])
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]

    def picture(self, form: str = "png", **how: Any) -> bytes:
        """The window as PNG, or in another form (`webp`, with its `quality`)."""
        return base64.b64decode(self._send("Page.captureScreenshot", format=form, **how)["data"])


@contextmanager
def browsing(browser: str) -> Iterator[Page]:
    """A tab in a browser of its own, with a profile that is thrown away."""
    to_read, to_write = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-c", _EXEC, str(to_read[0]), str(to_write[1]), *command],
            pass_fds=(to_read[0], to_write[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile},
        )
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            yield _first_tab(_Wire(to_write[0], to_read[1]))
        finally:
            process.kill()
            process.wait()
            os.close(to_read[1])
            os.close(to_write[0])


class _Wire:
    """Messages are JSON, each ended by NUL."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._held = b""
        self._number = 0
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None
        fcntl.fcntl(write, fcntl.F_SETFL, fcntl.fcntl(write, fcntl.F_GETFL) & ~os.O_NONBLOCK)

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                return dict(told["result"])
            if "method" in told:
                self.on_event(told)

    def listen(self) -> None:
        """Wait for one event."""
        told = self._next()
        if "method" in told:
            self.on_event(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            piece = os.read(self._read, 1 << 20) if wait_for([self._read], HANG_S) else b""
            assert piece, "the browser does not answer"
            self._held += piece
        message, _, self._held = self._held.partition(b"\0")
        return dict(json.loads(message))


def _first_tab(wire: _Wire) -> Page:
    target = wire.send("Target.createTarget", url="about:blank")["targetId"]
    session = wire.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = Page(lambda method, **parameters: wire.send(method, session, **parameters), wire.listen)
    wire.on_event = page.note
    for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
        wire.send(f"{domain}.enable", session)
    return page
