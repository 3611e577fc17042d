"""Runs that reports are made of, and a reader of pages."""

import shutil
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml

from pate import NamedVotes, cli
from tests.networks.conftest import finished as finished

NAMES = ("<b>bold</b>", "a & b", '"quoted"')
VOID = {"wbr", "meta", "img"}


class Reader(HTMLParser):
    """A page as its tags, its texts and the texts of each section; refuses tags that are not closed
    in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []
        self.sections: dict[str, str] = {}
        self._open: list[str] = []
        self._section = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = str(dict(attrs)["id"])
            self.sections[self._section] = ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._section:
            self.sections[self._section] += data

    def of(self, tag: str) -> list[Mapping[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return "".join(self.texts)


def report(root: Path, *words: str, at: Path | None = None) -> str:
    """Make the report of a run by the command, and return the page, which is ``at`` another place
    if one is given."""
    place = at or root / "public" / "report.html"
    assert cli.main(["report", str(root), *words]) == 0
    return place.read_text()


def read(root: Path, *words: str) -> Reader:
    return Reader(report(root, *words))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run with its ledger as it is, that its statement is about."""
    root = tmp_path / "run"
    shutil.copytree(finished, root)
    described = yaml.safe_load((root / "data.yaml").read_text())
    shutil.copy(described["ledger"], root / "ledger.sqlite")
    (root / "data.yaml").write_text(yaml.safe_dump(described | {"ledger": None}, sort_keys=False))
    return root


@pytest.fixture
def of_votes(tmp_path: Path) -> Path:
    """A run of imported votes without data, with names that are markup."""
    generator = np.random.default_rng(0)
    ids = np.array([f"<script>alert({number})</script>" for number in range(30)])
    ballots = generator.integers(0, 2, size=(30, 12, len(NAMES))).astype(np.uint8)
    NamedVotes(ids=ids, label_names=NAMES, ballots=ballots).save(tmp_path / "votes.npz")
    label_votes(tmp_path / "<i>run&amp;")
    return tmp_path / "<i>run&amp;"


def label_votes(root: Path, *words: str) -> None:
    """Label the votes beside a run, which count in one ledger for all runs there."""
    options = [
        f"--votes={root.parent}/votes.npz",
        "--run",
        str(root),
        "--aggregator=NoisyVotes",
        "--delta=1e-3",
    ]
    assert cli.main(["label", *options, "--aggregator.sigma_votes=2", *words]) == 0
