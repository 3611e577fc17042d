"""Look at pages in headless Chromium: in two widths, light and dark, with a picture of each.

    python -m scripts.look_at_pages /tmp/looks site/index.html site/mechanisms/stable-top-k.html \
        runs/stays/public/report.html [--axe node_modules/axe-core/axe.min.js]

A page fails if it scrolls sideways, if text has too little contrast with what is painted behind it,
if something that scrolls sideways cannot be reached by the keyboard, if a file is missing, or by
axe-core, where its script is at hand. Needs the command `chromium`, and nothing else.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
# the least contrast of WCAG 2.2, level AA: 4.5, or 3 for text of 24 pixels, or 18.66 in bold
CHECK = """(() => {
const wrong = [], root = document.documentElement;
if (root.scrollWidth > root.clientWidth) wrong.push(`scrolls sideways: ${root.scrollWidth} wide`);
const rgba = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
const sheet = document.body.appendChild(document.createElement("i"));
sheet.style.background = "Canvas"; const canvas = rgba(getComputedStyle(sheet).backgroundColor); sheet.remove();
const ground = node => { if (!node) return canvas.slice(0, 3);
  const own = rgba(getComputedStyle(node).backgroundColor);
  return own[3] === 1 ? own.slice(0, 3) : over(own, ground(node.parentElement)); };
const light = color => color.map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const shown = node => node.checkVisibility({opacityProperty: true, visibilityProperty: true});
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
  if (!text || !shown(node) || node.closest("script, style, noscript")) continue;
  const style = getComputedStyle(node), behind = ground(node);
  const ink = over(rgba(node.closest("svg") ? style.fill : style.color), behind);
  const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
  const size = parseFloat(style.fontSize), bold = style.fontWeight >= 700;
  if (ratio < (size >= 24 || bold && size >= 18.66 ? 3 : 4.5))
    wrong.push(`contrast ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
}
for (const node of document.querySelectorAll("main *, article *"))
  if (shown(node) && node.scrollWidth > node.clientWidth + 1
      && /auto|scroll/.test(getComputedStyle(node).overflowX)
      && node.tabIndex < 0 && !node.querySelector("[tabindex='0'], a, button"))
    wrong.push(`no keyboard: ${node.tagName} ${node.className}`);
return wrong;
})()"""
# themes finish a page after it is loaded, and name no list of buttons beside code
SETTLED = "new Promise(done => setTimeout(done, 700))"
AXE = """axe.run({exclude: ".md-code__nav"}).then(found => found.violations.map(
  each => `axe ${each.id}: ${each.nodes.map(node => node.target).slice(0, 3).join(" | ")}`))"""


OF_SEARCH = (
    "search/search_index.js"  # which a page from a file asks for, though it offers no search
)


class Browser:
    """A page in headless Chromium, which is spoken to through two pipes.

    Args:
        home: a folder for its profile.
    """

    def __init__(self, home: str) -> None:
        asked, self._ask = os.pipe()
        self._answer, answered = os.pipe()
        # it reads from descriptor 3 and writes to 4
        asked, answered = os.dup2(asked, 203), os.dup2(answered, 204)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command = ["chromium", *options, f"--user-data-dir={home}"]

        def lend() -> None:
            os.dup2(asked, 3)
            os.dup2(answered, 4)

        self.process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=lend, stderr=subprocess.DEVNULL
        )
        self._number, self._session, self._rest = 0, None, b""
        self.missing: list[str] = []
        self._urls: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network"):
            self.call(f"{domain}.enable")
        # a theme remembers the scheme of the page before
        forget = "try { localStorage.clear() } catch {}"
        self.call("Page.addScriptToEvaluateOnNewDocument", source=forget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def call(self, method: str, *, until: str | None = None, **parameters: Any) -> Any:
        """Return the answer to a method of the DevTools protocol, after an event if one is named."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._ask, json.dumps(message).encode() + b"\0")
        result, happened = None, until is None
        for each in self._messages():
            if each.get("method") == "Network.requestWillBeSent":
                self._urls[each["params"]["requestId"]] = each["params"]["request"]["url"]
            if each.get("method") == "Network.loadingFailed":
                self.missing.append(f"missing {self._urls[each['params']['requestId']]}")
            happened |= each.get("method") == until
            if each.get("id") == self._number:
                result = each.get("result", each)
            if happened and result is not None:
                return result
        raise RuntimeError(f"Expected an answer of Chromium to {method}")

    def _messages(self) -> Iterator[Any]:
        while True:
            whole, end, rest = self._rest.partition(b"\0")
            if end:
                self._rest = rest
                yield json.loads(whole)
            elif part := os.read(self._answer, 1 << 16):
                self._rest += part
            else:
                return

    def run(self, script: str) -> Any:
        """Return the value of a script in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        return answer["result"].get("value")


def look(browser: Browser, page: Path, picture: Path, axe: str | None, **how: Any) -> list[str]:
    """Return the faults of a page, and take a picture of it."""
    width, scheme = how["width"], how["scheme"]
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    media = {"prefers-color-scheme": scheme, "hover": "hover"}
    features = [{"name": name, "value": value} for name, value in media.items()]
    browser.call("Emulation.setEmulatedMedia", features=features)
    browser.missing.clear()
    browser.call("Page.navigate", until="Page.loadEventFired", url=page.resolve().as_uri())
    browser.run(SETTLED)
    missing = [each for each in browser.missing if not each.endswith(OF_SEARCH)]
    faults = [*missing, *browser.run(CHECK)]
    if axe is not None:
        browser.run(axe)
        faults += browser.run(AXE)
    shot = browser.call("Page.captureScreenshot", captureBeyondViewport=how["whole"])
    picture.write_bytes(base64.b64decode(shot["data"]))
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at all pages; print their faults, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="folder of the pictures")
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--whole", action="store_true", help="pictures of whole pages")
    options = parser.parse_args(arguments)
    if shutil.which("chromium") is None:
        parser.error("Expected the command chromium")
    axe = None if options.axe is None else options.axe.read_text()
    options.output.mkdir(parents=True, exist_ok=True)
    faulty = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, Browser(home) as browser:
        for page in options.pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    picture = options.output / f"{page.stem}-{width}-{scheme}.png"
                    how = {"width": width, "scheme": scheme, "whole": options.whole}
                    faults = look(browser, page, picture, axe, **how)
                    faulty += bool(faults)
                    print(f"{picture.name}: {'; '.join(faults) or 'no fault'}")
    return int(faulty > 0)


if __name__ == "__main__":
    sys.exit(main())
