"""The disclosure of a run: each figure is the statement's, and nothing of the run is markup."""

import copy
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import norm

from pate import cli
from pate._core.accounting.cost import format_epsilon, format_exact, format_guess, gaussian_delta
from pate._labeling.runs.released import unexpected_public_files
from pate._labeling.runs.run import Run
from pate.accounting import Statement
from pate.lab.report.page import Findings, read_findings
from pate.lab.report.report import YOURS, Disclosure
from tests.lab.report.conftest import NAMES, label_votes

TEMPLATE = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector"
    " publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters"
    " privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details"
    " data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification"
    " utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
"""The fields of the registry's template, as of commit 057e5d8 of
opendp/deployments-registry-data."""


def disclose(root: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Write the disclosure of a run by the command, and return its card and its entry."""
    assert cli.main(["report", str(root), "--disclosure", *words]) == 0
    folder = root / "public" / "disclosure"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "registry.yaml"]
    return (folder / "README.md").read_text(), yaml.safe_load(
        (folder / "registry.yaml").read_text()
    )


def prose(card: str) -> str:
    """Return a card without its metadata and its indented statement, with escapes undone."""
    lines = [
        line for line in card.split("\n---\n", 1)[1].splitlines() if not line.startswith("    ")
    ]
    return undone("\n".join(lines))


def undone(text: str) -> str:
    """Return Markdown without its backslashes."""
    return re.sub(r"\\([^A-Za-z0-9\s])", r"\1", text)


def test_every_figure_is_the_statements(of_votes: Path) -> None:
    card, entry = disclose(of_votes)
    statement = Statement.read(of_votes / "public" / "privacy.json")
    own = statement["guarantees"][statement["neighboring_relation"]]
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {
        name: own[name] for name in ("epsilon", "delta")
    }
    assert all(f"    {line}\n" in card for line in statement.text.splitlines())
    shown = prose(card)
    for name, guarantee in statement["guarantees"].items():
        figures = f"epsilon = {format_epsilon(guarantee['epsilon'])} at delta = {format_exact(guarantee['delta'])}"
        assert (
            f"{figures} under {name.upper()}, between data sets where {guarantee['neighbors']}."
            in shown
        )
    stated = {format_epsilon(figures["epsilon"]) for figures in statement["guarantees"].values()}
    assert set(re.findall(r"epsilon = ([\d.]+\d)", shown)) == stated
    for row in statement["reach"]:
        assert (
            f"{format_epsilon(row[statement['neighboring_relation']])} for {row['teachers']}"
            in shown
        )
    assert f"right at most {format_guess(own, statement.total_variation)} of the time" in shown
    assert "30 of 30 queries were answered" in shown
    assert "12 teachers" in shown


def changed(findings: Findings, *place: str | int, to: Any) -> Disclosure:
    """Return the disclosure of a run whose statement says something else."""
    assert findings.released is not None
    content = copy.deepcopy(findings.released.today.content)
    inner: Any = content
    for key in place[:-1]:
        inner = inner[key]
    assert inner[place[-1]] != to
    inner[place[-1]] = to
    return Disclosure(
        replace(findings, released=replace(findings.released, today=Statement(content)))
    )


def test_it_changes_with_the_statement(of_votes: Path) -> None:
    findings = read_findings(of_votes)
    before = Disclosure(findings)
    guarantee = ("guarantees", "replace_record")
    edits: list[tuple[tuple[str | int, ...], Any, str]] = [
        ((*guarantee, "epsilon"), 0.77, "0.770"),
        ((*guarantee, "delta"), 2e-7, "2e-07"),
        ((*guarantee, "neighbors"), "one silo moves", "one silo moves"),
        (("reach", 2, "replace_record"), 71.0, "71.000 for 3"),
        ((*guarantee, "unit"), "hospital", "One hospital"),
        (("num_teachers",), 77, "77 teachers"),
        (("num_teachers",), None, "a teacher for each record"),
        (("num_labels",), 78, "78 labels"),
        (("num_answered",), 5, "5 of 30 queries"),
        (("versions", "pate"), "9.9", "pate 9.9"),
        (("conversion",), "a theorem", "by a theorem"),
        (("ledger", "counts"), "run", "this run alone"),
    ]
    for place, value, words in edits:
        after = changed(findings, *place, to=value)
        assert words not in prose(before.card), place
        assert words in prose(after.card), place
        assert after.entry != before.entry, place
    assert (
        changed(findings, *guarantee, "epsilon", to=0.77).entry["deployment"]["privacy_loss"][
            "privacy_parameters"
        ]["epsilon"]
        == 0.77
    )
    # the unit of the total, which may be another than the release's own
    other = changed(findings, *guarantee, "unit", to="hospital").entry["deployment"]["privacy_loss"]
    assert other["privacy_unit"] == "hospital-level"
    nothing = {
        "epsilon": None,
        "delta": 1e-6,
        "delta0": 1.0,
        "fixed_by": "reservation",
        "neighbors": "any",
        "unit": "record",
        "missing": None,
    }
    unbounded = changed(findings, *guarantee, to=nothing)
    assert "epsilon" not in unbounded.entry["deployment"]["privacy_loss"]["privacy_parameters"]


def test_what_the_statement_cannot_know_is_marked(of_votes: Path) -> None:
    card, entry = disclose(of_votes)
    asked = re.findall(r"^### (.*)\n\n(.*)$", prose(card), flags=re.M)
    unknown = {question for question, answer in asked if answer.startswith(f"**{YOURS}**")}
    assert unknown == {"Security and access control", "Data collection exposure"}
    assert len(asked) == 15
    basic = entry["deployment"]["basic"]
    marked = [name for name, value in basic.items() if YOURS in str(value)]
    assert marked == [
        "data_curators",
        "intended_use",
        "data_product_region",
        "data_product_sector",
        "publication_date",
    ]
    for part, fields in entry["deployment"].items():
        assert set(fields) <= set(TEMPLATE[part].split())
    assert list(entry["deployment"]) == list(TEMPLATE)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a\n---\n# b: c",
        "[x](http://y) `z` *w* _v_ ~u~ | $t$ &lt; !",
        "'\"{{ 7 * 7 }}{% if %}\\",
        "null",
        "é\u2028# ε",
    ],
)
def test_names_are_no_markup(of_votes: Path, name: str) -> None:
    findings = read_findings(of_votes)
    assert findings.released is not None
    labels = replace(findings.released.labels, label_names=(name, *NAMES[1:]))
    labels.labels[:] = 0
    content = findings.released.today.content | {
        "unit": name,
        "aggregator": {"class_path": name, "init_args": {}},
    }
    released = replace(findings.released, labels=labels, today=Statement(content))
    disclosure = Disclosure(replace(findings, released=released))
    disclosure.name = name
    _, metadata, body = re.split(r"^---$", disclosure.card, maxsplit=2, flags=re.M)
    assert yaml.safe_load(metadata)["model_name"] == name
    lines = [line for line in body.split("\n") if not line.startswith("    ")]
    text = re.sub(r"\*\*Yours to say:\*\*", "", "\n".join(lines))
    assert not re.search(r"[`*_{}\[\]<>|~$!\\]|&\w", re.sub(r"\\[^A-Za-z0-9\s]", "", text))
    assert len(re.findall(r"^#{1,3} ", text, flags=re.M)) == 1 + 3 + 15
    assert all("#" not in re.sub(r"\\[^A-Za-z0-9\s]|^#+ ", "", line) for line in text.split("\n"))
    assert " ".join(name.split()) in undone(text)
    assert "---" not in lines


def test_nothing_private_is_read(of_votes: Path) -> None:
    before = disclose(of_votes)
    shutil.rmtree(of_votes / "private")
    assert disclose(of_votes) == before


def test_it_may_be_given_away(of_votes: Path) -> None:
    disclose(of_votes)
    assert list(unexpected_public_files(Run(of_votes))) == []


def test_what_the_ledger_does_not_know_is_said(of_votes: Path) -> None:
    findings = read_findings(of_votes)
    alone = changed(findings, "ledger", "counts", to="run")
    assert "sees all releases of these data, says" in prose(Disclosure(findings).card)
    assert "sees all releases of this run, says" in prose(alone.card)
    assert (
        prose(alone.card).count("What other runs released of the same private data is not in it")
        == 4
    )
    assert "is not in it" in alone.entry["deployment"]["privacy_loss"]["privacy_parameters_details"]


def test_other_labels_delete_it(of_votes: Path) -> None:
    disclose(of_votes)
    label_votes(of_votes, "--num_queries=9", "--overwrite")
    assert not (of_votes / "public" / "disclosure").exists()
    _, entry = disclose(of_votes)
    assert entry["deployment"]["deployment_model"]["release_type"] == "Many releases"
    details = entry["deployment"]["privacy_loss"]["privacy_parameters_details"]
    assert "No budget keeps this" in details


def test_the_students_figures_are_its_own(of_faces: Path, tmp_path: Path) -> None:
    shutil.copytree(of_faces / "public", tmp_path / "run" / "public")
    shutil.copy(of_faces / "data.yaml", tmp_path / "run")
    card, entry = disclose(tmp_path / "run")
    metrics = json.loads((of_faces / "public" / "student" / "metrics.json").read_text())
    assert (
        f"macro-F1 {metrics['student']['macro_f1']:.3f} ({metrics['all_majority']['macro_f1']:.3f})"
        in prose(card)
    )
    assert entry["deployment"]["basic"]["data_product_type"] == "Machine learning model"
    assert "The test records on which the student was measured." in prose(card)


def test_what_is_no_release_is_not_disclosed(
    copied: Path, of_votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, expected in [
        ([str(copied)], "none of an audit or drawn from a fixed seed"),
        ([str(of_votes), "--private"], "a disclosure without --private"),
        ([str(tmp_path)], "Expected"),
    ]:
        assert cli.main(["report", "--disclosure", *words]) == 2
        error = capsys.readouterr().err
        assert expected in error and len(error.splitlines()) == 1
    assert not (copied / "public" / "disclosure").exists()


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (0.3, 1e-6), (1.5, 0.1), (4.0, 0.0), (30.0, 0.2)]
)
def test_nobody_guesses_better(epsilon: float, delta: float) -> None:
    """The worst mechanism of a guarantee, by all of its tests, and a Gaussian one, which is no
    worse."""
    stated = _percent(format_guess({"epsilon": epsilon, "delta": delta}))
    share = (1 - delta) / (1 + np.exp(epsilon))
    # says which, leans to it, leans away, never
    first = np.array([delta, np.exp(epsilon) * share, share, 0.0])
    best = max(
        (first[list(rows)].sum() + 1 - first[::-1][list(rows)].sum()) / 2
        for rows in [(0,), (0, 1), (0, 1, 2)]
    )
    assert best <= stated + 1e-12
    assert stated - best <= 0.00101  # of the rounding
    if delta:
        mu = next(mu for mu in np.arange(9, 0, -0.01) if _gaussian_delta(mu, epsilon) <= delta)
        assert norm.cdf(mu / 2) <= stated


@pytest.mark.parametrize("mu", [0.1, 0.448, 2.0])
def test_nobody_guesses_better_of_noisy_sums(mu: float) -> None:
    """Whoever says which of two normal laws by the point half-way is right as often as is stated,
    and no more."""
    stated = _percent(
        format_guess({"epsilon": 9.0, "delta": 0.001}, gaussian_delta(0.0, mu) + 0.001)
    )
    draws = np.random.default_rng(0).normal([[0.0], [mu]], size=(2, 100_000))
    right = ((draws[0] < mu / 2).mean() + (draws[1] > mu / 2).mean()) / 2
    error = 0.5 / np.sqrt(draws.size)
    assert right <= stated + 4 * error and stated - right <= 0.0005 + 0.001 + 4 * error
    assert stated < _percent(format_guess({"epsilon": 9.0, "delta": 0.0}))


def _percent(text: str) -> float:
    return float(text.rstrip("%")) / 100


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def test_a_disclosure_shows_no_samples(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(copied), "--disclosure", "--num_samples", "3"]) == 2
    assert (
        "Expected a disclosure without --num_samples, got num_samples=3" in capsys.readouterr().err
    )
