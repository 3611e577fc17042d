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

from pate._labeling.runs.run import Run, Stage, StageState, first_stage
from scripts.pages import mathml, on_page_content, on_page_markdown, on_post_page, reference
from tests import test_door
from tests.test_layers import PRIVATE_PATH

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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


@pytest.mark.parametrize("address", [None, "https://pages.example/pate/"])
def test_whoever_publishes_names_the_address(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mkdocs.config import load_config

    if address:
        monkeypatch.setenv("SITE_URL", address)
    settings: dict[str, Any] = {"plugins": [], "theme": {"name": "mkdocs"}}
    assert load_config(str(ROOT / "mkdocs.yml"), **settings).site_url == address


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
        ("index.md", "[gone](nowhere.md)"),
        ("privacy.md", "[gone](accounting.md#no-such-heading)"),
        ("lost.md", "# A page that no other leads to"),
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


@pytest.mark.parametrize("tex", [r"\nonesuch{x}", "a & b", r"\begin{aligned} a &= b \end{aligned}"])
def test_tex_that_would_be_shown_as_it_is_written_is_refused(tex: str) -> None:
    with pytest.raises(ValueError, match="Expected TeX that latex2mathml knows"):
        mathml(tex)


def test_a_console_shows_what_is_typed_by_a_prompt() -> None:
    """The lines without one are output, which the copy button leaves out."""
    consoles = blocks("console")
    assert len(consoles) > 30
    assert [
        block for block in consoles if not re.search(r"^ *\$ ", block, flags=re.MULTILINE)
    ] == []


GROUNDS = {"default": ("#ffffff", "#f5f5f5"), "slate": ("#1e2129", "#272a35")}  # page and code


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colors by the Web Content Accessibility Guidelines."""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_text_is_legible_on_its_ground() -> None:
    text = (DOCS / "stylesheets" / "extra.css").read_text()
    header = re.findall(r"--md-primary-fg-color: (#\w{6})", text)
    assert header and all(contrast(color, "#ffffff") >= 4.5 for color in header)
    for scheme, grounds in GROUNDS.items():
        (rule,) = re.findall(
            rf'^\[data-md-color-scheme="{scheme}"\] {{(.*--.*)}}', text, re.MULTILINE
        )
        colors = re.findall(r"(#\w{6});", rule)
        assert len(colors) == 4
        assert all(contrast(color, ground) >= 4.5 for color in colors for ground in grounds)
    assert contrast("#009485", "#ffffff") < 4.5  # the theme's own teal


def test_the_search_and_the_lists_of_pages_have_names() -> None:
    """The theme names a list by a label without a text, where its section has a page."""
    icon = '<span class="md-nav__icon md-icon"></span>'
    title = f'<label class="md-nav__title" for="__nav_1">\n {icon}\n Start\n </label>'
    nav = f'<nav class="md-nav" aria-labelledby="__nav_1_label" aria-expanded="true">\n{title}'
    named = on_post_page(f'<div class="md-search" role="dialog"></div>{nav}</nav>')
    assert '<div class="md-search" role="dialog" aria-label="Search">' in named
    assert '<nav class="md-nav" aria-label="Start" aria-expanded="true">' in named
    assert title in named and "aria-labelledby" not in named


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


def test_a_new_export_is_shown_at_the_end_of_its_page(tmp_path: Path) -> None:
    text = (DOCS / "api" / "models.md").read_text()
    (page := tmp_path / "mechanisms.md").write_text(
        "# pate.mechanisms\n\n::: pate.mechanisms.Law\n"
    )
    shown = reference(tmp_path)[page.name]
    assert "\n## More\n" in shown and shown.count("::: pate.mechanisms.Law\n") == 1
    assert "\n::: pate.mechanisms.NoisyMax\n" in shown
    (tmp_path / "models.md").write_text(text)
    assert reference(tmp_path)["models.md"] == text


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


def test_a_private_class_in_a_signature_is_found() -> None:
    assert {cls for _, cls in named_by(first_stage)} == {Run, Stage}
    assert ("Run.state(return)", StageState) in set(named_by(Run))


def test_a_corner_of_a_table_without_a_text_is_no_heading() -> None:
    row = '<tr><th></th><th style="text-align: right;"></th><th>k</th></tr>'
    assert on_page_content(row) == (
        '<tr><td></td><td style="text-align: right;"></td><th>k</th></tr>'
    )


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
