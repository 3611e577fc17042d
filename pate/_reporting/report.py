"""The report on a run: a page that may be published, or one with private sections."""

import os
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pate._files import atomic_write
from pate._reporting.findings import Findings, read_findings
from pate._reporting.page import Bar, Page
from pate._reporting.private import private_sections
from pate._reporting.sections import public_sections
from pate._runs import REPORT
from pate._validation import require, require_count
from pate._version import __version__


def make_page(root: Path, *, private: bool = False, num_samples: int = 20) -> Page:
    """Return the page on the run in ``root``, at whatever stage it is. Changes nothing.

    Args:
        root: the run's folder.
        private: whether to add the sections on ``private/``; without them nothing in there is read.
        num_samples: number of queries that are shown with their labels.

    Raises:
        ValueError: if ``root`` is no run, or its files are damaged or do not belong together.
    """
    require_count(0, num_samples=num_samples)
    findings = read_findings(root)
    sections = public_sections(findings, num_samples)
    sections += private_sections(findings) if private else ()
    return Page(root.resolve().name, _summary(findings), sections, __version__)


def write_report(
    root: Path, *, output: Path | None = None, private: bool = False, num_samples: int = 20
) -> Path:
    """Write the page on the run in ``root`` and return its file.

    Args:
        root: the run's folder.
        output: the file; None for ``public/report.html`` in the run, or ``private/report.html``
            with private sections.
        private: whether to add the sections on ``private/``.
        num_samples: number of queries that are shown with their labels.

    Raises:
        ValueError: as `make_page` does, or if a page with private sections is to be written into
            ``public/``.
    """
    path = (
        (root / "private" / REPORT.name if private else root / REPORT) if output is None else output
    )
    published = path.resolve().is_relative_to((root / REPORT.parent).resolve())
    require(
        not (private and published),
        "another place than public/ for what must not be published",
        output=str(path),
    )
    text = render(make_page(root, private=private, num_samples=num_samples))
    with atomic_write(path, "w") as file:
        if private:
            os.fchmod(file.fileno(), 0o600)
        file.write(text)
    return path


def render(page: Page) -> str:
    """Return ``page`` as HTML without scripts or addresses, with every text of the run escaped."""
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


def _summary(findings: Findings) -> str:
    if findings.released is None:
        return "No labels were released yet."
    labels = findings.released.labels
    number = labels.facts["num_teachers"]
    teachers = "Many small teachers" if number is None else f"{number:,} teachers"
    return (
        f"{teachers}, {len(labels.ids):,} queries on {len(labels.label_names)} labels, through"
        f" {labels.aggregator['class_path'].rpartition('.')[2]}."
    )
