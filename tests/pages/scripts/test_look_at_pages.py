"""A browser looks at pages, and finds what is wrong with them."""

import shutil
from pathlib import Path

import pytest

from scripts.look_at_pages import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser is here"),
]
PAGE = (
    '<html lang="en"><meta name="viewport" content="width=device-width"><title>page</title>'
    "<style>:root {{ color-scheme: light dark }}</style><body><main><h1>page</h1>{}</main></body>"
)


@pytest.mark.parametrize(
    ("part", "faults"),
    [
        ("<p>ink</p>", []),
        ('<p style="color: #777; background: #888">ink</p>', ["contrast 1.26: ink"]),
        ('<div style="width: 900px">wide</div>', ["scrolls sideways: "]),
        (
            '<div style="width: 90px; overflow: auto"><p style="width: 900px">wide</p></div>',
            ["no keyboard: DIV"],
        ),
        ('<img src="none.png" alt="none">', ["missing file://"]),
    ],
)
def test_faults_of_a_page(
    part: str, faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.html").write_text(PAGE.format(part))
    assert main([str(tmp_path / "looks"), str(tmp_path / "page.html")]) == bool(faults)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4 and len(list((tmp_path / "looks").iterdir())) == 4
    assert all(fault in told[2] for fault in faults) and ("no fault" in told[2]) == (not faults)
