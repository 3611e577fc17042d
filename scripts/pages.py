"""A hook of mkdocs: formulas become MathML for browsers, and notebooks become pages."""

import json
import re
from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


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


def on_page_markdown(markdown: str, **_: object) -> str:
    """Draw the formulas of a page, and lead to the pages of notebooks."""
    drawn = re.sub(
        r"^```math\n(.*?)^```$",
        lambda match: f'<div class="formula">{mathml(match[1])}</div>',
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"(\]\([^)\s]*)\.ipynb\)", r"\1.md)", drawn)
