"""The pages of docs/ make a site without a warning, and the site loads nothing from elsewhere."""

import ast
import inspect
import logging
import pydoc
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args
from xml.etree import ElementTree

import pytest

pytest.importorskip("latex2mathml")  # of the packages of pages, which only slow tests need
from scripts.pages import mathml, on_page_markdown, reference
from tests import test_door
from tests.test_layers import PRIVATE_PATH

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


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("privacy.md", "[gone](accounting.md#no-such-heading)"),
        *(
            pytest.param(*wrong, marks=pytest.mark.slow)
            for wrong in [
                ("index.md", "[gone](nowhere.md)"),
                ("lost.md", "# A page that no other leads to"),
            ]
        ),
        ("index.md", None),
    ],
)
def test_what_leads_nowhere_is_found(page: str, line: str | None, tmp_path: Path) -> None:
    from mkdocs.exceptions import Abort

    docs = tmp_path / "docs"
    for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")):
        copy = docs / path.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(f"# {path.stem}\n" if path.suffix == ".md" else '{"cells": []}')
    with (docs / page).open("a") as file:
        file.write(f"\n{line or 'Nothing is wrong.'}\n")
    with pytest.raises(Abort) if line else nullcontext():
        build(tmp_path / "site", docs)


def blocks(language: str) -> list[str]:
    pages = (page.read_text() for page in DOCS.rglob("*.md"))
    pattern = re.compile(rf"^ *```{language}\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in pattern.findall(page)]


def test_formulas_are_well_formed() -> None:
    formulas = blocks("math")
    assert len(formulas) > 10
    for tex in formulas:
        assert ElementTree.fromstring(mathml(tex)).get("display") == "block"


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


def test_the_reference_names_no_private_path() -> None:
    for path, value in documented().items():
        public = (
            [member for name, member in vars(value).items() if name[0] != "_"]
            if isinstance(value, type)
            else []
        )
        for text in (getdoc(item) for item in (value, *public)):
            assert not PRIVATE_PATH.search(text or ""), (path, text)


@cache
def classes_named(annotation: Any, module: str) -> set[type]:
    """Return the classes that an annotation in ``module`` names, those that are imported for
    annotations alone, too."""
    if parts := get_args(annotation):
        return {cls for part in parts for cls in classes_named(part, module)}
    if not isinstance(annotation, str):
        return {annotation} if isinstance(annotation, type) else set()
    values = []
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            origin = imported_names(module).get(node.id, module)
            values.append(getattr(import_module(origin), node.id, None))
    return {value for value in values if isinstance(value, type)}


@cache
def imported_names(module: str) -> dict[str, str]:
    """Return the module that each name in ``module`` is imported from."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.name: str(node.module) for node in imports for name in node.names}


def named_by(value: Any) -> Iterator[tuple[str, type]]:
    """Yield the classes of pate in the signature of a function, or in the fields and public methods
    of a class."""
    parts = [value]
    for base in value.__mro__ if isinstance(value, type) else ():
        methods = vars(base).items() if base.__module__.startswith("pate.") else ()
        parts += [
            base,
            *(
                method
                for name, method in methods
                if name[0] != "_" or name in ("__init__", "__call__")
            ),
        ]
    for part in parts:
        function = (
            getattr(part, "fget", None)
            or getattr(part, "func", None)
            or getattr(part, "__func__", part)
        )
        for name, annotation in getattr(function, "__annotations__", {}).items():
            classes = classes_named(annotation, function.__module__) if name[0] != "_" else set()
            yield from (
                (f"{function.__qualname__}({name})", cls)
                for cls in classes
                if cls.__module__[:5] == "pate."
            )


def test_signatures_name_public_classes_alone() -> None:
    values = documented().values()
    public = {id(value) for value in values}
    assert {
        (where, cls) for value in values for where, cls in named_by(value) if id(cls) not in public
    } == set()


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
