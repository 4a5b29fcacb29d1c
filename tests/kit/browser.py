"""A headless Chromium driven over its DevTools socket: enough to click, hover, print and see what a
page asked for."""

import asyncio
import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """The browser's command, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page. `events` are all that the browser told about it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number, self._session = socket, 0, ""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            else:
                self.events.append((told["method"], told["params"]))

    async def ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        waiting = self._answers[self._number] = asyncio.get_running_loop().create_future()
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        told = await asyncio.wait_for(waiting, 60)
        assert "error" not in told, (method, told)
        return told["result"]

    async def open(self, file: Path, *, scripts: bool = True) -> None:
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.ask(f"{domain}.enable")
        if not scripts:
            await self.ask("Emulation.setScriptExecutionDisabled", value=True)
        await self.ask("Page.navigate", url=file.resolve().as_uri())
        await self.until(lambda: any(name == "Page.loadEventFired" for name, _ in self.events))

    async def unfold(self) -> None:
        """Open every folded part, by the DOM, as a page without scripts needs it."""
        root = (await self.ask("DOM.getDocument"))["root"]["nodeId"]
        for node in (await self.ask("DOM.querySelectorAll", nodeId=root, selector="details"))["nodeIds"]:
            await self.ask("DOM.setAttributeValue", nodeId=node, name="open", value="")

    async def until(self, happened: Callable[[], bool], seconds: float = 60) -> None:
        for _ in range(int(seconds / 0.02)):
            if happened():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("waited in vain")

    async def look(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is on the screen, after it was scrolled there."""
        x, y = await self.look(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}}); "
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    async def hover(self, selector: str) -> None:
        x, y = await self.middle(selector)
        await self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def click(self, selector: str) -> None:
        x, y = await self.middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str) -> None:
        code = {"Enter": 13, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def pdf(self) -> bytes:
        return base64.b64decode((await self.ask("Page.printToPDF", printBackground=True))["data"])

    def asked_for(self) -> list[str]:
        """Every address that was requested."""
        return [told["request"]["url"] for name, told in self.events if name == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Exceptions and errors on the console."""
        thrown = [str(told) for name, told in self.events if name == "Runtime.exceptionThrown"]
        logged = [
            str(told["entry"]["text"])
            for name, told in self.events
            if name == "Log.entryAdded" and told["entry"]["level"] == "error"
        ]
        called = [
            str(told)
            for name, told in self.events
            if name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert")
        ]
        return thrown + logged + called


def in_browser(visit: Callable[[Tab], Any]) -> None:
    """Start a browser, give `visit` a tab, and stop the browser."""
    command = chromium()
    assert command is not None

    async def go(address: str) -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            try:
                await visit(tab)
            finally:
                tab._reader.cancel()
                await asyncio.gather(tab._reader, return_exceptions=True)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            "--remote-debugging-address=127.0.0.1",
            "--window-size=1200,900",
            f"--user-data-dir={home}",
            "about:blank",
        ]
        process = subprocess.Popen(
            [command, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"HOME": home},
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"DevTools listening on (ws://\S+)", line):
                    asyncio.run(go(found[1]))
                    break
            else:
                raise AssertionError("the browser did not start")
        finally:
            process.terminate()
            process.communicate(timeout=30)
