"""The pages of docs/ make a site without a warning, and the site loads nothing from elsewhere."""

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROOMS = ("pate", "pate.mechanisms", "pate.aggregators", "pate.accounting", "pate.data", "pate.models", "pate.testing")


@pytest.fixture
def quiet() -> None:
    logging.getLogger("mkdocs").setLevel(logging.WARNING)


def build(folder: Path, docs: Path) -> None:
    """Build the pages alone, strictly: no theme, no reference of the code, which take long."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    settings: dict[str, Any] = {
        "docs_dir": str(docs),
        "site_dir": str(folder),
        "plugins": [],
        "theme": {"name": "mkdocs"},
    }
    build_site(load_config(str(ROOT / "mkdocs.yml"), strict=True, **settings))


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_every_page_has_a_place_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    build(tmp_path, DOCS)
    made = {path.relative_to(tmp_path).with_suffix(".md") for path in tmp_path.rglob("*.html")}
    assert {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} <= made


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("index.md", "[gone](nowhere.md)"),
        ("privacy.md", "[gone](accounting.md#no-such-heading)"),
        ("lost.md", "# A page that no other leads to"),
    ],
)
def test_what_leads_nowhere_is_found(page: str, line: str, tmp_path: Path) -> None:
    from mkdocs.exceptions import Abort

    docs = tmp_path / "docs"
    for path in DOCS.rglob("*.md"):
        copy = docs / path.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(f"# {path.stem}\n")
    with (docs / page).open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(Abort):
        build(tmp_path / "site", docs)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference(room: str) -> None:
    text = (DOCS / "api" / f"{room.removeprefix('pate.')}.md").read_text()
    own = (ROOT / room.replace(".", "/") / "__init__.py").read_text()
    listed = re.search(r"^__all__ = \[(.*?)\]", own, flags=re.DOTALL | re.MULTILINE)
    names = (
        re.findall(r'"(\w+)"', listed[1]) if listed else re.findall(r" import (\w+) as \1$", own, flags=re.MULTILINE)
    )
    assert names
    for name in names:
        assert re.search(rf"^::: {room}\.{name}$|`{name}`", text, flags=re.MULTILINE), name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?([^\" >]+)", page.read_text())
        assert loaded
        assert not [place for place in loaded if place.startswith(("http", "//"))], page
    assert 'id="pate.label"' in (tmp_path / "api" / "pate.html").read_text()
