"""Statements of labels, and their comparison with the files next to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pate._runs import LABEL, Run, labels_file
from pate._runs.released import ReleasedLabels
from pate._validation import require
from pate._version import __version__
from pate.accounting import Statement


@dataclass(frozen=True, kw_only=True, eq=False)
class StatedLabels(ReleasedLabels):
    """Released labels with the statement on their cost and the cost of earlier releases. PUBLIC.

    Attributes:
        statement: the content of ``privacy.json``; its `verify` computes it again.
    """

    statement: Statement

    def describe(self) -> str:
        """Return the statement as text, the content of ``privacy.txt``."""
        return self.statement.text


def require_stated(run: Run) -> None:
    """Raise ``ValueError`` unless existing labels bear the run's seal and match their statement."""
    statement = run.root / LABEL.outputs[1]
    if labels_file(run).is_file():
        ReleasedLabels.load(run.root)
        if statement.is_file():
            verify_published(statement, run.ledger_path if run.ledger_path.is_file() else None)


def verify_published(statement: Path, ledger: Path | None, released: Path | None = None) -> int:
    """Verify the statement of labels or of a list of ``pate topk``, with the files next to it.

    Args:
        statement: the file.
        ledger: the file of the ledger; None to verify only the releases that the statement lists.
        released: the released file; None for the one next to the statement.

    Returns:
        The number of releases in the ledger after the release of a list; 0 for labels.

    Raises:
        ValueError: in one line, at the first figure that differs, or if a file is missing or
            damaged; also if the ledger holds releases after the statement on labels.
    """
    stated, facts = Statement.read(statement), {}
    if stated.kind == "labels":
        file = statement.with_name(LABEL.outputs[0].name) if released is None else released
        facts = ReleasedLabels.read(file).facts
    else:
        name = statement.name.removesuffix(".privacy.json")
        lists = [statement.with_name(f"{name}{suffix}") for suffix in (".csv", ".json")]
        file = (
            next((path for path in lists if path.is_file()), lists[0])
            if released is None
            else released
        )
    since = stated.verify(ledger=ledger, released=file, facts=facts)
    if stated.kind == "labels":
        require(
            since == 0,
            "a statement on all releases of the ledger; the same `pate label` makes it",
            more=since,
        )
    text = statement.with_suffix(".txt")
    if text.is_file():
        same = text.read_text(encoding="utf-8") == stated.text
        made_by = stated["versions"].get("pate")
        other = f"; pate {made_by} worded it: verify with that version, or remove the text"
        hint = "" if made_by == __version__ else other
        require(same, f"the words of the statement in {text}{hint}")
    return since
