"""A hook of mkdocs: formulas become MathML for browsers, and notebooks become pages.

A page of the API orders the names of a package by hand; the hook adds the exports that no page
names.
"""

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
APPENDIX = ("appendix/", "design.md", "reproduction")
"""Pages outside of the navigation."""


def mathml(tex: str) -> str:
    r"""Return a displayed formula as MathML.

    Raises:
        ValueError: The formula has a command that is not known, which MathML would show as it is
            written, or an ampersand outside of a table.
    """
    markup = convert(tex, display="block")
    if re.search(r"\\|&(?!#)", markup):
        raise ValueError(f"Expected TeX that latex2mathml knows, got {tex}")
    return markup


def markdown_of(notebook: dict[str, Any]) -> str:
    """Return a notebook's cells, with their text and pictures, as one page."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                parts.append("```text\n" + "".join(output["text"]).rstrip() + "\n```")
            else:
                picture = output["data"]["image/png"].strip()
                parts.append(
                    f'<img alt="What the cell above draws" src="data:image/png;base64,{picture}">'
                )
    return "\n\n".join(parts) + "\n"


def on_files(files: "Files", config: "MkDocsConfig") -> None:
    """Add a page for each notebook, next to the notebook itself."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = markdown_of(json.loads(file.content_string))
            files.append(
                File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page)
            )


def reference(folder: Path) -> dict[str, str]:
    """Return the pages of the API in a folder by their names, with the exports that none names."""
    pages = {path.name: path.read_text() for path in folder.glob("*.md")}
    named = set(re.findall(r"^::: .*\.(\w+)$", "\n".join(pages.values()), flags=re.MULTILINE))
    return {name: page + _others(page, named) for name, page in pages.items()}


def _others(page: str, named: set[str]) -> str:
    """Return a section on the exports of a package, the title of its page, that are not named."""
    package = page.split("\n", 1)[0].removeprefix("# ")
    place = ROOT / package.replace(".", "/")
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    imports = [
        node
        for node in (ast.walk(ast.parse(module.read_text())) if module.exists() else ())
        if isinstance(node, ast.ImportFrom) and node.module != package
    ]
    names = [str(alias.asname) for node in imports for alias in node.names if alias.asname]
    others = [name for name in names if name[0] != "_" and name not in named]
    return "".join(
        ["\n## More\n" * bool(others), *(f"\n::: {package}.{name}\n" for name in others)]
    )


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Complete a page of the API, draw formulas, and lead to the pages of notebooks.

    Search finds the pages of the navigation alone.
    """
    page.meta.setdefault("search", {"exclude": page.file.src_uri.startswith(APPENDIX)})
    if page.file.src_uri.startswith("api/"):
        path = Path(str(page.file.abs_src_path))
        markdown = reference(path.parent)[path.name]
    drawn = re.sub(
        r"^```math\n(.*?)^```$",
        lambda match: f'<div class="formula" tabindex="0">{mathml(match[1])}</div>',
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"(\]\([^)\s]*)\.ipynb\)", r"\1.md)", drawn)


def on_page_content(html: str, **_: object) -> str:
    """Let blocks of code that may be wider than the page take the keyboard, which scrolls them.

    A corner of a table without a text is no heading. Drawings in the colors of the page stand in it.
    """
    for tag, name in re.findall(r'(<img [^>]*src="(?:\.\./)*images/(epsilon\.svg)"[^>]*>)', html):
        drawing = (ROOT / "docs" / "images" / name).read_text()
        html = html.replace(tag, re.sub(r"<style>.*?</style>", "", drawing))
    scrolled = re.sub(r"(<pre[^>]*>(?:<span></span>)?)<code>", r'\1<code tabindex="0">', html)
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", scrolled)


_SCRIPT = """document.documentElement.dataset.from = location.protocol
addEventListener("load", () => setTimeout(() => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, pre code"))
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0 }, 300))"""


def on_post_page(output: str, **_: object) -> str:
    """Name the theme's dialog of search, and its lists of pages, to those who hear a page.

    Search needs a server: a page that was opened from a file does not offer it. Tables that the
    theme wraps to be scrolled take the keyboard.
    """
    named = output.replace("</head>", f"<script>{_SCRIPT}</script></head>", 1)
    named = named.replace('role="dialog">', 'role="dialog" aria-label="Search">')
    return re.sub(
        r'aria-labelledby="__nav_\d[\d_]*_label"([^>]*>\s*<label class="md-nav__title"[^>]*>'
        r'\s*<span class="md-nav__icon md-icon"></span>\s*)([^<]+?)(\s*</label>)',
        r'aria-label="\2"\1\2\3',
        named,
    )


def on_config(config: "MkDocsConfig") -> None:
    """Name the version of the project at the foot of each page."""
    module = (ROOT / "pate" / "_core" / "package.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.*)"', module, flags=re.MULTILINE)
    config.copyright = f"pate {version}"
