"""The command `pate report`: a page that may be published, or one with private sections."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pate._core.accounting.cost import format_epsilon, format_exact
from pate._core.files.writing import atomic_write
from pate._core.package import __version__
from pate._core.validation import require, require_count
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.runs.run import REPORT
from pate.lab.report.page import Bar, read_findings
from pate.lab.report.sections import PRIVATE, PUBLIC, words_of, wrapped


def report(
    run: Path, *, output: Path | None = None, private: bool = False, num_samples: int = 20
) -> None:
    """Write one page of HTML on a run.

    It shows the privacy statement, the ledger, queries and answers, samples with their labels, the
    student's figures and curves, and the settings. It follows only from public files, public and
    test records and the ledger, and may be published.

    Args:
        run: folder of the run, at any stage.
        output: the file; None for public/report.html in the run, or private/report.html with
            --private.
        private: add the teachers' votes and losses: PRIVATE, not to be published.
        num_samples: number of queries shown with their labels.

    Raises:
        ValueError: as `make_page` does, or if a page with private sections is to be written into
            ``public/``.
    """
    default = run / "private" / REPORT.name if private else run / REPORT
    path = default if output is None else output
    published = path.resolve().is_relative_to((run / REPORT.parent).resolve())
    require(
        not (private and published),
        "another place than public/ for what must not be published",
        output=str(path),
    )
    text = make_page(run, private=private, num_samples=num_samples)
    with atomic_write(path, "w") as file:
        if private:
            os.fchmod(file.fileno(), 0o600)
        file.write(text)
    print(f"{path}{' (PRIVATE: not to be published)' if private else ''}")


main = partial(run_command, "report", report, special={"--private": FLAG})


def make_page(root: Path, *, private: bool = False, num_samples: int = 20) -> str:
    """Return the page on the run in ``root`` as HTML, at whatever stage it is. Changes nothing.

    It has no scripts or addresses, and every text of the run is escaped.

    Args:
        root: the run's folder.
        private: whether to add the sections on ``private/``. Without them nothing in there is read.
        num_samples: number of queries that are shown with their labels.

    Raises:
        ValueError: if ``root`` is no run, or its files are damaged or do not belong together.
    """
    require_count(0, num_samples=num_samples)
    findings = read_findings(root)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    environment.filters |= {"epsilon": format_epsilon, "exact": format_exact, "wrapped": wrapped}
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    words = words_of(findings, num_samples)
    macros: Any = environment.get_template("sections.html").make_module(words)
    titles = {"statement": PUBLIC["statement"]} if findings.released is None else PUBLIC
    sections = []
    for anchor, title in (titles | (PRIVATE if private else {})).items():
        content = getattr(macros, anchor.replace("-", "_"))()
        if content.strip():
            section = {"anchor": anchor, "title": title, "content": content}
            sections.append(section | {"private": anchor in PRIVATE})
    return environment.get_template("page.html").render(
        title=root.resolve().name,
        summary=macros.headline(),
        sections=sections,
        private=private,
        version=__version__,
    )
