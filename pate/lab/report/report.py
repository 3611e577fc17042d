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


_TRUST = (
    "One party is trusted: it holds the private data or the votes, draws the noise and keeps"
    " the ledger. Readers of the publication need not be trusted, however many they are and"
    " whatever they know."
)
_TRUST_OF_PARTIES = (
    "No party is trusted with the data or the votes of all: each of several draws a share of"
    " the noise, and only the"
    " sum is opened. What is stated holds against those who take part, as many of them together"
    " as the settings say."
)

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

    not_interactive = "Files are published, and nobody can query the private data."
    noise = (
        "Noise comes from AES in counter mode, with a key that the operating system draws for each"
        " release. Outside the guarantee are"
        " time, memory and power of the machine while teachers were trained and noise was drawn."
        " What of the noise is drawn"
        " exactly and what in float64 is said in the documentation of pate, under Privacy."
    )

    def __init__(self, findings: Findings) -> None:
        run = findings.run.root
        released = require_given(findings.released, "a run that has released labels", run=run.name)
        self.today, self.labels, self.learned = released.today, released.labels, findings.learned
        require(
            self.today["private"],
            "releases of which none is of an audit or drawn from a fixed seed",
            run=run.name,
        )
        self.name, self.statement = run.resolve().name, self.today.content
        unit, teachers = self.statement["unit"], self.statement["num_teachers"]
        voters = f"a teacher for each {unit}" if teachers is None else f"{teachers:,} teachers"
        made = "A multi-label classifier that learned from" if self.learned else "Labels for"
        self.product = (
            f"{made} {self.statement['num_answered']:,} public samples, on"
            f" {self.statement['num_labels']:,} labels. The labels"
            f" come from the votes of {voters}, which learned from private data, and were"
            " released with noise"
            f" ({self.statement['num_queries']:,} samples were asked about)."
        )
        self.guarantee = [
            f"epsilon = {format_epsilon(guarantee['epsilon'])} at delta ="
            f" {format_exact(guarantee['delta'])} under"
            f" {name.upper()}, between data sets where {guarantee['neighbors']}."
            for name, guarantee in by_relation(self.statement, "guarantees")
            if guarantee["unit"] is not None
        ]
        _, self.whose, unknown = ledger_words(self.statement)
        self.conditions = [
            *describe_conditions(self.statement),
            *([] if unknown is None else [unknown]),
        ]
        name, stated = by_relation(self.statement, "guarantees")[0]
        reach = ", ".join(
            f"{format_epsilon(row[name])} for {row['teachers']}" for row in self.statement["reach"]
        )
        self.unit = stated["unit"] or unit  # of the total
        self.reach = stated["missing"] or ""
        if stated["unit"] is not None:
            self.reach = (
                "Epsilon of all releases, as reserved, by the number of teachers that a"
                f" {stated['unit']} reaches: {reach}."
            )
        mechanism = self.statement["aggregator"]["class_path"].rpartition(".")[2]
        self.mechanism = f"{mechanism}, with the settings in the statement."
        self.trust = _TRUST_OF_PARTIES if "world" in self.statement else _TRUST
        self.ledger = " ".join(line.strip() for line in describe_ledger(self.statement))
        self.composition = (
            f"Epsilon follows from the events of all releases by {self.statement['conversion']}."
        )
        measured = self.learned is not None and bool(self.learned.metrics)
        self.unprotected_figures = (
            " The test records on which the student was measured." if measured else ""
        )
        self.versions = ", ".join(
            f"{name} {version}" for name, version in self.statement["versions"].items()
        )

    @property
    def card(self) -> str:
        """The model card: Markdown below metadata in YAML, with all texts of the run escaped."""
        metadata = {
            "library_name": "pate",
            "model_name": self.name,
            "tags": ["differential-privacy", "multi-label-classification", "pate"],
        }
        relation, own = by_relation(self.statement, "guarantees")[0]
        return _template("card.md", finalize=_escaped).render(
            it=self,
            relation=relation,
            own=own,
            most=format_guess(own, self.today.total_variation),
            answer=_answer,
            metadata=Markup(_yaml(metadata).rstrip()),
            # an indented block has no end that a text could contain
            statement=Markup("\n".join(f"    {line}" for line in self.today.text.splitlines())),
        )

    @property
    def entry(self) -> dict[str, Any]:
        """The registry's entry, in the form of its template of 2026."""
        statement, own = self.statement, by_relation(self.statement, "guarantees")[0][1]
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
                "description": self.product,
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
                f" the labels, the settings of the mechanism{nominal}." + self.unprotected_figures,
            },
            "privacy_loss": {
                "privacy_unit": f"{self.unit}-level",
                "privacy_unit_details": f"Two data sets are adjacent where {own['neighbors']}."
                f" {self.reach}",
                "privacy_parameters": {
                    key: own[key] for key in ("epsilon", "delta") if own[key] is not None
                },
                "privacy_parameters_details": " ".join([*self.guarantee, *self.conditions]),
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": self.trust,
                **_yours(
                    actors="who holds the data, who draws the noise, and who sees what is published"
                ),
                "release_type": "One release"
                if len(statement["releases"]) == 1
                else "Many releases",
                "release_type_details": self.ledger,
                **_yours(data_source_type="Static or Dynamic"),
                "access_type": "Non-interactive",
                "access_type_details": self.not_interactive,
            },
            "implementation": {
                **_yours(
                    preprocessing_and_hyperparameter_tuning="what was chosen by looking at"
                    " private data"
                ),
                "mechanisms": f"{self.mechanism} {self.noise} Made with {self.versions}.",
                "composition": self.composition,
                "post_processing": "Everything that is computed from the released labels, such"
                " as the student.",
                **_yours(justification="why these parameters"),
                "utility": self.utility(),
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

    def utility(self) -> str:
        statement = self.statement
        answered = (
            f"{statement['num_answered']:,} of {statement['num_queries']:,} queries were answered."
        )
        if self.learned is None or not self.learned.metrics:
            return f"{answered} No student was measured."
        student, constant = self.learned.metrics["student"], self.learned.metrics["all_majority"]
        figures = ", ".join(
            f"{title} {shown(student[name])} ({shown(constant[name])})"
            for name, title in SUMMARY.items()
            if name in student and name in constant
        )
        number = "the" if self.learned.num_test is None else f"{self.learned.num_test:,}"
        older = " They are older than the labels." if self.learned.older else ""
        return (
            f"{answered} On {number} test records the student's figures (the best"
            f" constant's): {figures}.{older}"
        )

    def bias(self) -> str:
        positive = (self.labels.labels * self.labels.mask).sum(axis=0)
        rare = [
            name for name, count in zip(self.labels.label_names, positive, strict=True) if not count
        ]
        if not rare:
            return f"Each of {len(positive)} labels was released as positive at least once."
        return (
            f"{len(rare)} of {len(positive)} labels were never released as positive:"
            f" {', '.join(rare)}."
        )


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
