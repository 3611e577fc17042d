"""Reports on a run: a page that may be published, one with private sections, or a disclosure.

A disclosure is a model card, and an entry for the registry of deployments. Every sentence of it
follows from the statement, or from other public files, or says that it is the publisher's to write.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pate._core.accounting.cost import format_epsilon, format_exact, format_guess
from pate._core.accounting.statement_words import (
    by_relation,
    describe_conditions,
    describe_ledger,
    ledger_words,
)
from pate._core.files.writing import atomic_write, write_text
from pate._core.validation import require, require_count, require_given
from pate._core.version import __version__
from pate._labeling.runs.run import DISCLOSURE, REPORT
from pate.lab.report.page import Bar, Findings, read_findings, shown
from pate.lab.report.sections import PRIVATE, PUBLIC, SUMMARY, words_of, wrapped


class Section(NamedTuple):
    """A titled part of a page. One that must not be published is ``private`` and marked as such."""

    anchor: str
    title: str
    content: Markup
    private: bool


class Page(NamedTuple):
    """A page on a run: its name, a summary, its sections from the statement on, and the version."""

    title: str
    summary: Markup
    sections: tuple[Section, ...]
    private: bool
    version: str


def make_page(root: Path, *, private: bool = False, num_samples: int = 20) -> Page:
    """Return the page on the run in ``root``, at whatever stage it is. Changes nothing.

    Args:
        root: the run's folder.
        private: whether to add the sections on ``private/``. Without them nothing in there is read.
        num_samples: number of queries that are shown with their labels.

    Raises:
        ValueError: if ``root`` is no run, or its files are damaged or do not belong together.
    """
    require_count(0, num_samples=num_samples)
    findings = read_findings(root)
    template = _template("sections.html", autoescape=True)
    macros: Any = template.make_module(words_of(findings, num_samples))
    titles = {"statement": PUBLIC["statement"]} if findings.released is None else PUBLIC
    sections = []
    for anchor, title in (titles | (PRIVATE if private else {})).items():
        content = getattr(macros, anchor.replace("-", "_"))()
        if content.strip():
            sections.append(Section(anchor, title, content, anchor in PRIVATE))
    return Page(root.resolve().name, macros.headline(), tuple(sections), private, __version__)


def write_report(
    root: Path, *, output: Path | None = None, private: bool = False, num_samples: int = 20
) -> Path:
    """Write the page on the run in ``root`` and return its file.

    Args:
        root: the run's folder.
        output: the file. None for ``public/report.html`` in the run, or ``private/report.html``
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
    return _template("page.html", autoescape=True).render(page=page)


def _template(name: str, **options: Any) -> Template:
    """Return the template in a file next to this one."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
    environment.filters |= {"epsilon": format_epsilon, "exact": format_exact, "wrapped": wrapped}
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    return environment.get_template(name)


YOURS = "Yours to say:"
"""Begins the parts that only the publisher knows."""

CARD, ENTRY = "README.md", "registry.yaml"
"""The files of a disclosure: the model card, and the registry's entry."""


def write_disclosure(root: Path, *, output: Path | None = None) -> Path:
    """Write the disclosure of the run in ``root``; return its folder.

    Raises:
        ValueError: as `read_findings` does, or if nothing was released, or from a fixed seed.
    """
    disclosure = Disclosure(read_findings(root))
    folder = root / DISCLOSURE if output is None else output
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CARD, disclosure.card)
    write_text(folder / ENTRY, _yaml(_rendered(disclosure.entry)))
    return folder


class Disclosure:
    """A disclosure before it is written: each of its sentences is written once.

    Args:
        findings: the public files of a run.

    Raises:
        ValueError: if the run released nothing, or released anything without privacy.
    """

    def __init__(self, findings: Findings) -> None:
        run = findings.run.root
        released = require_given(findings.released, "a run that has released labels", run=run.name)
        self.today, self.learned = released.today, findings.learned
        require(
            self.today["private"],
            "releases, none of an audit or drawn from a fixed seed",
            run=run.name,
        )
        self.name, self.statement, labels = run.resolve().name, self.today.content, released.labels
        guarantees = by_relation(self.statement, "guarantees")
        self.guarantee = [
            f"epsilon = {format_epsilon(guarantee['epsilon'])} at delta ="
            f" {format_exact(guarantee['delta'])} under"
            f" {name.upper()}, between data sets where {guarantee['neighbors']}."
            for name, guarantee in guarantees
            if guarantee["unit"] is not None
        ]
        _, self.whose, unknown = ledger_words(self.statement)
        self.conditions = [*describe_conditions(self.statement), *filter(None, [unknown])]
        self.relation, self.own = guarantees[0]
        self.unit = self.own["unit"] or self.statement["unit"]  # of the total
        self.ledger = " ".join(line.strip() for line in describe_ledger(self.statement))
        metrics = {} if self.learned is None else self.learned.metrics
        student, constant = metrics.get("student", {}), metrics.get("all_majority", {})
        self.figures = [
            f"{title} {shown(student[name])} ({shown(constant[name])})"
            for name, title in SUMMARY.items()
            if name in student and name in constant
        ]
        positive = (labels.labels * labels.mask).sum(axis=0)
        pairs = zip(labels.label_names, positive, strict=True)
        self.rare = [name for name, count in pairs if not count]
        self.say: Any = _template("sentences.md").make_module(vars(self))

    @property
    def card(self) -> str:
        """The model card: Markdown below metadata in YAML, with all texts of the run escaped."""
        metadata = {
            "library_name": "pate",
            "model_name": self.name,
            "tags": ["differential-privacy", "multi-label-classification", "pate"],
        }
        return _template("card.md", finalize=_escaped).render(
            it=self,
            say=self.say,
            most=format_guess(self.own, self.today.total_variation),
            answer=_answer,
            metadata=Markup(_yaml(metadata).rstrip()),
            # an indented block has no end that a text could contain
            statement=Markup("\n".join(f"    {line}" for line in self.today.text.splitlines())),
        )

    @property
    def entry(self) -> dict[str, Any]:
        """The registry's entry, in the form of its template of 2026."""
        statement, own, say = self.statement, self.own, self.say
        release = statement["releases"][statement["release"] - 1]
        nominal = "" if statement["num_teachers"] is None else ", the nominal number of teachers"
        deployment = {
            "basic": {
                "name": self.name,
                "data_curators": [
                    _yours(
                        data_curator_name="who", data_curator_type="such as Government or Nonprofit"
                    )
                ],
                "description": say.product(),
                **_yours(intended_use="what it is for"),
                "data_product_type": "Machine learning model" if self.learned else "Dataset",
                **_yours(
                    data_product_region="which region the data describe",
                    data_product_sector="such as Healthcare or Education",
                    publication_date="when it was published, YYYY-MM-DD; its labels were drawn on"
                    f" {str(release['at'])[:10]}",
                ),
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                **_yours(data_domain="which data sets could have been used"),
                "unprotected_quantities": "What is taken to be public: the samples that were"
                " asked about, the names of"
                f" the labels, the settings of the mechanism{nominal}. {say.unprotected()}",
            },
            "privacy_loss": {
                "privacy_unit": f"{self.unit}-level",
                "privacy_unit_details": f"Two data sets are adjacent where {own['neighbors']}."
                f" {say.reach()}",
                "privacy_parameters": {
                    key: own[key] for key in ("epsilon", "delta") if own[key] is not None
                },
                "privacy_parameters_details": " ".join([*self.guarantee, *self.conditions]),
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": say.trust(),
                **_yours(
                    actors="who holds the data, who draws the noise, and who sees what is published"
                ),
                "release_type": "One release"
                if len(statement["releases"]) == 1
                else "Many releases",
                "release_type_details": self.ledger,
                **_yours(data_source_type="Static or Dynamic"),
                "access_type": "Non-interactive",
                "access_type_details": say.not_interactive(),
            },
            "implementation": {
                **_yours(
                    preprocessing_and_hyperparameter_tuning="what was chosen by looking at"
                    " private data"
                ),
                "mechanisms": f"{say.mechanism()} {say.noise()} {say.versions()}",
                "composition": say.composition(),
                "post_processing": "Everything that is computed from the released labels, such"
                " as the student.",
                **_yours(justification="why these parameters"),
                "utility": say.utility(),
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [f"{YOURS} who writes this entry"],
                "tier": 3,
            },
        }
        return {
            "url_slug": re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "run",
            "deployment": deployment,
        }


def _yours(**wishes: str) -> dict[str, str]:
    """Return fields that are the publisher's to fill in."""
    return {name: f"{YOURS} {wish}" for name, wish in wishes.items()}


def _answer(question: str, derived: str, yours: str = "") -> Markup:
    """Return a question as Markdown, with what follows from public files, and the rest to say."""
    parts = [f"### {_escaped(question)}", _escaped(derived)]
    parts += [f"**{YOURS}** {_escaped(yours)}"] if yours else []
    return Markup("\n\n".join(filter(None, parts)))


def _escaped(value: object) -> str:
    """Return a text on one line, escaped for Markdown and HTML."""
    if isinstance(value, Markup):
        return value
    return re.sub(
        r"([\\`*_{}\[\]<>#|~$!]|&(?=[#\w])|(?<=:)/)", r"\\\1", " ".join(str(value).split())
    )


def _rendered(value: Any) -> Any:
    """Return plain data with all texts escaped, because the registry shows them as Markdown."""
    if isinstance(value, Mapping):
        return {name: _rendered(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item) for item in value]
    return _escaped(value) if isinstance(value, str) else value


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=100)
