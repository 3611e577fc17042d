"""The pages of docs/ make a site without a warning, and the site loads nothing from elsewhere."""

import logging
import pydoc
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("latex2mathml")  # of the packages of pages, which only slow tests need
from scripts.pages import on_page_markdown, reference
from tests import test_door

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.slow
PACKAGES = ("pate", *(f"pate.{name}" for name in test_door.PACKAGES))


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


@pytest.mark.parametrize(
    ("place", "left_out"),
    [
        ("privacy.md", False),
        ("appendix/proofs.md", True),
        ("reproduction/one_shot_noises.md", True),
    ],
)
def test_search_finds_the_navigation_alone(place: str, left_out: bool) -> None:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=place), meta={})
    on_page_markdown("# A page", page)
    assert page.meta["search"]["exclude"] is left_out


def blocks(language: str) -> list[str]:
    pages = (page.read_text() for page in DOCS.rglob("*.md"))
    pattern = re.compile(rf"^ *```{language}\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in pattern.findall(page)]


@cache
def documented() -> dict[str, Any]:
    """Return what the reference shows, by its path."""
    pages = "\n".join(reference(DOCS / "api").values())
    return {
        path: pydoc.locate(path)
        for path in re.findall(r"^::: ([\w.]+)$", pages, flags=re.MULTILINE)
    }


def exported(package: str) -> dict[str, Any]:
    """Return what a package exports, by name."""
    module = import_module(package)
    names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
    return {
        name: getattr(module, name)
        for name in names
        if not isinstance(getattr(module, name), ModuleType)
    }


def test_what_is_documented_is_exported() -> None:
    for path, value in documented().items():
        package, _, name = path.rpartition(".")
        assert package in PACKAGES and exported(package).get(name) is value, path


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_exported_is_documented(package: str) -> None:
    shown, names = {id(value) for value in documented().values()}, exported(package)
    assert names
    assert [name for name, value in names.items() if id(value) not in shown] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?([^\" >]+)", page.read_text()
        )
        assert loaded
        assert not [place for place in loaded if place.startswith(("http", "//"))], page
        parts = Parts(page)
        assert max(Counter(parts.ids).values()) == 1, (page, Counter(parts.ids).most_common(1))
        assert "math" not in parts.languages, page
    card = (tmp_path / "mechanisms" / "stable-top-k.html").read_text()
    assert "pate 0." in card and '<code tabindex="0">' in card
    assert not re.search(r"<pre[^>]*>(<span></span>)?<code>", card)
    assert 'class="formula" tabindex="0"' in card
    assert 'role="dialog" aria-label="Search"' in card and 'aria-labelledby="__nav' not in card
    assert 'id="pate.label"' in (tmp_path / "api" / "pate.html").read_text()
    assert Parts(tmp_path / "notebooks" / "pipeline.html").pictures == 1
    # the theme copies what is shown under the attribute by which our stylesheet hides prompts and
    # output
    assert "[data-md-copying] :is(.gp, .go)" in (tmp_path / "stylesheets" / "extra.css").read_text()
    assert any(
        "data-md-copying" in script.read_text()
        for script in tmp_path.glob("assets/javascripts/bundle*.js")
    )


class Parts(HTMLParser):
    """What a built page holds: ids, languages of its blocks of code, pictures within the page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.languages: set[str] = set()
        self.pictures = 0
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag says."""
        named = dict(attrs)
        self.ids += [value for value in (named.get("id"),) if value]
        self.languages |= set(re.findall(r"language-(\w+)", named.get("class") or ""))
        self.pictures += tag == "img" and (named.get("src") or "").startswith("data:image/png")
