"""Statements of labels, compared with the files next to them, and all of these in one archive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from pate._data_file import load_ledger, require_data_config
from pate._files import atomic_write, locked
from pate._runs import LABEL, Run, labels_file
from pate._runs.released import ReleasedLabels, published_files, unexpected_public_files
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


def require_stated(run: Run) -> int:
    """Raise ``ValueError`` unless existing labels bear the run's seal and match their statement.

    Returns the number of later releases in the ledger, by other runs on the same data.
    """
    statement = run.root / LABEL.outputs[1]
    if labels_file(run).is_file():
        ReleasedLabels.load(run.root)
        if statement.is_file():
            ledger = run.ledger_path if run.ledger_path.is_file() else None
            return _verify(statement, ledger, None)[0]
    return 0


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
    since, kind = _verify(statement, ledger, released)
    require_newest(since if kind == "labels" else 0)
    return since


def require_newest(since: int) -> None:
    """Raise ``ValueError`` if there were releases ``since`` a statement on labels."""
    require(
        since == 0,
        "a statement on all releases of the ledger; the same `pate label` makes it",
        more=since,
    )


def _verify(statement: Path, ledger: Path | None, released: Path | None) -> tuple[int, str]:
    """Verify a statement; return the number of releases after it, and the kind of its own."""
    stated, facts = Statement.read(statement), {}
    if stated.kind == "labels":
        file = statement.with_name(LABEL.outputs[0].name) if released is None else released
        facts = ReleasedLabels.read(file).facts
    else:
        name = statement.name.removesuffix(".privacy.json")
        lists = [statement.with_name(f"{name}{suffix}") for suffix in (".csv", ".json", ".npz")]
        file = (
            next((path for path in lists if path.is_file()), lists[0])
            if released is None
            else released
        )
    since = stated.verify(ledger=ledger, released=file, facts=facts)
    text = statement.with_suffix(".txt")
    if text.is_file():
        same = text.read_text(encoding="utf-8") == stated.text
        made_by = stated["versions"].get("pate")
        other = f"; pate {made_by} worded it: verify with that version, or remove the text"
        hint = "" if made_by == __version__ else other
        require(same, f"the words of the statement in {text}{hint}")
    return since, stated.kind


def pack(root: Path, output: Path) -> None:
    """Write the public folder of a run as one zip archive, with equal bytes for equal files.

    Args:
        root: the run's folder.
        output: the archive.

    Raises:
        ValueError: if labels are missing or disagree with their statement, the statement disagrees
            with the ledger, or a file in the folder must not be published.
    """
    run = replace(Run(root), ledger=load_ledger(root))
    inside = output.resolve().is_relative_to(run.public.resolve())
    require(not inside, f"an archive outside of {run.public}, which it holds", output=str(output))
    with locked(root):
        run.require_finished(LABEL)
        require_data_config(run)  # it names the ledger that the statement is compared with
        require_newest(require_stated(run))
        for problem in unexpected_public_files(run):
            raise ValueError(problem)
        with atomic_write(output) as file, ZipFile(file, "w") as archive:
            for name in published_files(run):
                # without times and modes, which differ between copies of a run
                entry = ZipInfo(name.as_posix())
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, (root / name).read_bytes())
