"""From a page to one file of HTML that needs nothing but itself."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pate._reporting.page import Bar, Page


def render(page: Page) -> str:
    """Return ``page`` as HTML without scripts or addresses, in which every text of the run is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    return environment.get_template("page.html").render(page=page)
