"""The tables of an audit: of each test its subject, the attempt, its power and its verdict."""

import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from pate._labeling.runs.run import Run

Verdict = Literal["passed", "refuted", "not tested"]

# the first that any test gives is that of the table
VERDICTS: Mapping[Verdict, str] = {
    "refuted": "REFUTED: this program does not do what the statement says.",
    "not tested": "INCONCLUSIVE: nothing is refuted, and some parts have no test.",
    "passed": "Nothing is refuted. This is no proof of a theorem, but a test of this program.",
}
STATUS: Mapping[Verdict, int] = {"refuted": 1, "not tested": 3, "passed": 0}
"""The exit status of a command by the verdict of its tables."""


@dataclass(frozen=True)
class Trial:
    """A row of a table.

    Attributes:
        subject: the part of the program that is tested.
        tried: the attempt, with its size.
        power: the faults that it would have found at this size.
        result: the figures of this attempt.
        verdict: ``refuted`` if a program without faults would rarely give this result.
    """

    subject: str
    tried: str
    power: str
    result: str
    verdict: Verdict


def untested(subject: str, reason: str) -> Trial:
    """Return the row of a subject that has no test."""
    return Trial(subject, "no test", "nothing", reason, "not tested")


def text_of(title: str, tests: Sequence[Trial]) -> str:
    """Return a table in words, three lines for a test."""
    lines = [f"{title.capitalize()}: {verdict_of(tests)}"]
    for test in tests:
        lines += [
            f"  {test.verdict:<10}  {test.subject}: {test.tried}",
            f"  {'':<10}  would have found: {test.power}",
            f"  {'':<10}  found: {test.result}",
        ]
    return "\n".join(lines)


def verdict_of(tests: Sequence[Trial]) -> Verdict:
    """Return the verdict of a table: refuted if a test refutes, else untested if one is missing."""
    verdicts = {test.verdict for test in tests}
    return next(verdict for verdict in VERDICTS if verdict in verdicts)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of an audit.

    Attributes:
        tables: the tests by the name of their table.
    """

    tables: Mapping[str, Sequence[Trial]]

    @property
    def verdict(self) -> Verdict:
        """Whether a test refutes or, if none does, one is missing."""
        return verdict_of([test for tests in self.tables.values() for test in tests])

    @property
    def texts(self) -> list[str]:
        """Each table in words, and the verdict."""
        texts = [text_of(name, tests) for name, tests in self.tables.items() if tests]
        return [*texts, VERDICTS[self.verdict]]


@contextmanager
def scratch(run: Run, name: str) -> Iterator[Path]:
    """Yield an empty folder next to a run, and delete it; also one that a kill has left."""
    folder = run.root.parent / f".{run.root.name}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_DIGEST = re.compile(r"(.*\+)?[0-9a-f]{32,}")


def content_of(path: Path, own: Collection[str], *, digests: bool = True) -> Any:
    """Return the content of a file, of JSON or YAML without entries that are its ``own``."""
    if path.suffix not in (".json", ".yaml"):
        return path.read_bytes()

    def shared(content: Any) -> Any:
        if isinstance(content, dict):
            return {name: shared(part) for name, part in content.items() if name not in own}
        if isinstance(content, list):
            return [shared(part) for part in content]
        is_digest = isinstance(content, str) and _DIGEST.fullmatch(content)
        return None if is_digest and not digests else content

    read = json.loads if path.suffix == ".json" else yaml.safe_load
    return shared(read(path.read_text()))
