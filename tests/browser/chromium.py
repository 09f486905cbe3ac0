"""Debian's Chromium without a window, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium")
_LISTENING = b"DevTools listening on "
_WAIT_SECONDS = 120.0  # a busy machine needs half a minute for the libraries of an audit


class Page:
    """A tab. It records the errors of its console and the addresses that it requests."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_WAIT_SECONDS):
            return await reply

    async def open(self, address: str) -> None:
        """Load a page."""
        self._loaded.clear()
        await self.send("Page.navigate", url=address)
        async with asyncio.timeout(_WAIT_SECONDS):
            await self._loaded.wait()

    async def go(self, fragment: str) -> None:
        """Change the fragment of the address."""
        await self.evaluate(f"location.hash = {json.dumps(fragment)}")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, of a promise when it is kept."""
        reply = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while not (value := await self.evaluate(expression)):
                    await asyncio.sleep(0.05)
                return value
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"never true: {expression}\n{text[:2000]}\n{self.errors}") from None

    async def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.wait_for(f"document.body.innerText.includes({json.dumps(text)})")

    async def click(self, selector: str) -> None:
        """Wait for an element and click it."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.wait_for(f"{found} !== null && !{found}.disabled")
        await self.evaluate(f"{found}.click()")

    async def press(self, key: str) -> None:
        """Press a key."""
        text = key if len(key) == 1 else ""
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the page, and whether the system prefers dark pages."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path: Path, *, full: bool = False) -> None:
        """Write a PNG of the page, or of all of it."""
        reply = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(reply["data"]))

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                future = self._replies.pop(content["id"], None)
                if future is not None and not future.done():
                    if "error" in content:
                        future.set_exception(AssertionError(content["error"]))
                    else:
                        future.set_result(content["result"])
                continue
            self._receive(content["method"], content["params"])

    def _receive(self, method: str, parameters: Any) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(parameters["exceptionDetails"])[:1000])
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(parameters["args"])[:1000])
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    async def close(self) -> None:
        """Stop reading."""
        self._reading.cancel()
        await self._socket.close()


@asynccontextmanager
async def open_browser() -> AsyncIterator["Browser"]:
    """Start Chromium with a new profile, and end it with the block."""
    assert PROGRAM is not None, "Chromium is not installed: apt-get install chromium"
    with tempfile.TemporaryDirectory(prefix="torl-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            "--headless=new",
            "--no-sandbox",  # tests may run as root, and open only pages of torl
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            async with asyncio.timeout(_WAIT_SECONDS):
                while not (line := await process.stderr.readline()).startswith(_LISTENING):
                    assert line, "Chromium did not start"
            drain = asyncio.create_task(process.stderr.read())
            port = line.removeprefix(_LISTENING).decode().split(":")[2].split("/")[0]
            async with aiohttp.ClientSession() as session:
                yield Browser(session, f"http://127.0.0.1:{port}")
            drain.cancel()
        finally:
            process.kill()
            await process.wait()


class Browser:
    """A running Chromium."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open a tab, and close it with the block."""
        async with self._session.put(f"{self._address}/json/new?about:blank") as reply:
            tab = await reply.json(content_type=None)
        socket = await self._session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=256 << 20)
        page = Page(socket)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.send(f"{domain}.enable")
            yield page
        finally:
            await page.close()
            async with self._session.get(f"{self._address}/json/close/{tab['id']}"):
                pass
