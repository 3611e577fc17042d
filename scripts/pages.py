"""A hook of mkdocs: formulas become MathML, which browsers draw without a script."""

import re

from latex2mathml.converter import convert


def mathml(tex: str) -> str:
    r"""Return a displayed formula as MathML.

    Raises:
        ValueError: The formula has a command that is not known, which MathML would show as it is written, or an
            ampersand outside of a table.
    """
    markup = convert(tex, display="block")
    if re.search(r"\\|&(?!#)", markup):
        raise ValueError(f"Expected TeX that latex2mathml knows, got {tex}")
    return markup


def on_page_markdown(markdown: str, **_: object) -> str:
    """Draw the formulas of a page."""
    return re.sub(
        r"^```math\n(.*?)^```$",
        lambda match: f'<div class="formula">{mathml(match[1])}</div>',
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )
