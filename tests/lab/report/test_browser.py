"""Pages in a browser: they ask for nothing, fit the window, and are readable in the light and in
the dark."""

import base64
import http.client
import json
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.lab.report.conftest import report

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    DRIVER is None or BROWSER is None, reason="chromium and its driver are not installed"
)

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """A headless browser, spoken to by the WebDriver protocol."""

    def __init__(self, port: int, profile: Path) -> None:
        self._port, self._session = port, ""
        options = {"binary": BROWSER, "args": [*QUIET, f"--user-data-dir={profile}"]}
        logged = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": logged}})
        self._session = f"/session/{answer['sessionId']}"

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request(
                method, self._session + path, None if body is None else json.dumps(body)
            )
            answer = json.loads(connection.getresponse().read())["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def open(
        self, page: Path, *, width: int = 1000, scheme: str = "light", media: str = ""
    ) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media=media, features=features)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._ask("POST", "/url", {"url": page.as_uri()})

    def command(self, name: str, **params: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def run(self, script: str) -> Any:
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def pixels(self) -> Any:
        picture = base64.b64decode(self._ask("GET", "/screenshot"))
        return np.asarray(Image.open(BytesIO(picture)).convert("L"))

    def complaints(self) -> list[str]:
        return [each["message"] for each in self._ask("POST", "/se/log", {"type": "browser"})]

    def asked_for(self, page: Path) -> list[str]:
        """Return the addresses that the browser asked for on behalf of ``page`` since the last
        call."""
        told = self._ask("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(each["message"])["message"] for each in told]
        sent = [
            each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"
        ]
        return [each["request"]["url"] for each in sent if each["documentURL"] == page.as_uri()]

    def quit(self) -> None:
        self._ask("DELETE", "")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Popen([str(DRIVER), f"--port={port}"], stdout=DEVNULL, stderr=DEVNULL) as driver:
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            found = Browser(port, tmp_path_factory.mktemp("profile"))
            yield found
            found.quit()
        finally:
            driver.terminate()


@pytest.fixture(scope="module")
def pages(of_faces: Path, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A public page with pictures, and one with rows of a table and private parts."""
    folder = tmp_path_factory.mktemp("pages")
    pictures, table = folder / "pictures.html", folder / "table.html"
    report(of_faces, f"--output={pictures}", at=pictures)
    report(finished, f"--output={table}", "--private", at=table)
    return [pictures, table]


@pytest.mark.slow
def test_pages_ask_for_nothing(browser: Browser, pages: list[Path]) -> None:
    for page in pages:
        browser.open(page)
        asked = [url for url in browser.asked_for(page) if not url.startswith("data:")]
        assert asked == [page.as_uri()]
        assert browser.complaints() == []


@pytest.mark.slow
def test_a_foreign_address_would_be_seen(
    browser: Browser, pages: list[Path], tmp_path: Path
) -> None:
    """The control: the page refuses what it was not made with, and the browser says so."""
    page = tmp_path / "page.html"
    page.write_text(
        pages[0].read_text().replace("<main>", '<main><img src="http://127.0.0.1:9/a.png">')
    )
    browser.open(page)
    assert "Content Security Policy" in "".join(browser.complaints())


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1000])
def test_pages_fit_the_window(browser: Browser, pages: list[Path], width: int) -> None:
    for page in pages:
        browser.open(page, width=width)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        # what is wider scrolls by itself, and every picture was read
        loaded = "return [...document.images].every(each => each.complete && each.naturalWidth > 0)"
        assert browser.run(loaded)


@pytest.mark.slow
def test_pages_are_light_and_dark(browser: Browser, pages: list[Path]) -> None:
    for page in pages:
        browser.open(page, scheme="light")
        light = browser.pixels()
        browser.open(page, scheme="dark")
        dark = browser.pixels()
        browser.open(page, scheme="dark", media="print")
        printed = browser.pixels()
        assert np.median(light) > 240 > 60 > np.median(dark)
        assert np.median(printed) > 240
        # text stands out from both
        assert light.min() < 80
        assert dark.max() > 200
