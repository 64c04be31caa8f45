"""A page in headless Chromium, driven by its DevTools protocol over two pipes."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_COMMANDS, _ANSWERS = 3, 4
"""Descriptors that the browser has them at."""


@dataclass
class Page:
    """A tab. ``errors``: what its console said, and what was refused or failed to load."""

    commands: BinaryIO
    answers: BinaryIO
    password: str
    session: str | None = None
    number: int = 0
    errors: list[str] = field(default_factory=list[str])

    def call(self, method: str, **parameters: object) -> dict[str, object]:
        """The answer to a command; events before it are handled."""
        number = self.send(method, **parameters)
        while (message := self.receive()).get("id") != number:
            self.handle(message)
        assert "error" not in message, message
        return message["result"]

    def send(self, method: str, **parameters: object) -> int:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        return self.number

    def receive(self) -> dict[str, object]:
        gathered = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser is gone"
            gathered += byte
        return json.loads(gathered)

    def handle(self, message: dict[str, object]) -> None:
        """Events: a dialog for the password is answered, all else is let through."""
        method, said = message.get("method"), message.get("params", {})
        if method == "Fetch.authRequired":
            answer = {"response": "ProvideCredentials", "username": "", "password": self.password}
            self.send("Fetch.continueWithAuth", requestId=said["requestId"], authChallengeResponse=answer)
        elif method == "Fetch.requestPaused":
            self.send("Fetch.continueRequest", requestId=said["requestId"])
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(json.dumps(said))

    def open(self, url: str) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Fetch.enable", handleAuthRequests=True)
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> object:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str, seconds: float = 120.0) -> None:
        """Wait until the expression is true on the page."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, (expression, self.evaluate("document.body.innerText"), self.errors)
            time.sleep(0.05)

    def picture(self) -> bytes:
        return base64.b64decode(str(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser(folder: Path, password: str) -> Generator[Page]:
    to_browser, from_browser = os.pipe(), os.pipe()

    def place() -> None:
        os.dup2(to_browser[0], _COMMANDS)
        os.dup2(from_browser[1], _ANSWERS)

    process = subprocess.Popen(
        [str(CHROMIUM), *_FLAGS, f"--user-data-dir={folder}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=place,
        close_fds=False,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    with os.fdopen(to_browser[1], "wb") as commands, os.fdopen(from_browser[0], "rb") as answers:
        try:
            yield Page(commands, answers, password)
        finally:
            process.kill()
            process.wait()
