"""The private top k of a histogram."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pate._files.hashing import code_version, digest
from pate._files.locks import locked_output
from pate._files.writing import cell, remove_drafts, write_text
from pate._histogram import Histogram, HistogramSource
from pate._release.pending import PendingRelease, pending_release
from pate._release.top_k_settings import TopKSettings
from pate._release.transaction import Releasable, ReleaseOutcome, ReservationRequest, release
from pate._validation import require
from pate._version import __version__
from pate.accounting import Ledger, LedgerEntry, Statement, read_ledger
from pate.mechanisms import LimitedDomain, Mechanism, NotStatedError
from pate.mechanisms._noise import draw_key, private_generator

_LIKELY = 0.9  # the probability of an answer at the stated gap


def release_top_k(
    source: HistogramSource, settings: TopKSettings, *, output: Path, ledger: Path
) -> Statement:
    """Release the top k of a histogram, and return the statement.

    The cost is in the ledger before the noise is drawn. After a kill, the same call (files,
    settings and output) continues with its reservation and its noise: it neither pays nor draws
    twice. Until then the seed of its noise is kept next to the ledger, in a folder with the suffix
    ``.pending``. Once finished, the same call returns the existing statement, provided that the
    files are older than the list.

    Args:
        source: the source of the histogram.
        settings: the mechanism and the budget.
        output: the file to write, a ``.csv`` or a ``.json``; the statement is next to it, in
            ``<name>.privacy.json`` and ``<name>.privacy.txt``.
        ledger: the ledger of the private data, one for all releases from them; created if it is
            missing.

    Raises:
        ValueError: before anything is spent, on settings that cannot be met, files that cannot be
            written or belong to another call, or a budget that does not suffice.
    """
    settings.require_public_items(public=source.public)
    known = output.suffix in (".csv", ".json")
    require(known, "an output that is a .csv or a .json", output=str(output))
    folder = output.absolute().parent
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    require(writable, "a folder that can be written to", output=str(output))
    with locked_output(output.resolve()):
        names = [
            output.stem + suffix for suffix in (output.suffix, ".privacy.json", ".privacy.txt")
        ]
        remove_drafts(folder.glob(".*"), names)
        publication = _TopK(source, settings, output, ledger)
        return publication.finished() or release(publication)


def top_k_statement_fields(
    settings: TopKSettings, mechanism: Mechanism[Any], histogram: Histogram
) -> dict[str, Any]:
    """Return the published facts of a top k and its mechanism, by the keys of their statement."""
    # the number of items counts only if they are public
    num_ranks = len(histogram.items) if histogram.public else getattr(mechanism, "kbar", 0) + 1
    try:
        counts = mechanism.gap_to_answer(probability=_LIKELY, num_items=num_ranks)
        gap = {"counts": counts, "probability": _LIKELY}
    except NotStatedError:
        gap = None
    return {
        "kind": "topk",
        "neighboring_relation": settings.relation.value,
        "delta": settings.delta,
        "contributions": histogram.bound,
        "max_teachers_per_unit": settings.max_teachers_per_unit,
        "mechanism": {"class": type(mechanism).__name__}
        | {field.name: getattr(mechanism, field.name) for field in fields(mechanism)},
        "num_items": len(histogram.items) if histogram.public else None,
        "ordered": settings.ordered,
        "gap": gap,
        "versions": {"pate": __version__, "numpy": np.__version__},
    }


class _TopK(Releasable):
    """A list of items."""

    _histogram: Histogram
    _mechanism: Mechanism[Any]
    _facts: Mapping[str, Any]
    _text: str

    def __init__(
        self, source: HistogramSource, settings: TopKSettings, output: Path, ledger: Path
    ) -> None:
        self._source, self._settings, self._ledger = source, settings, ledger
        self.file, self.statement_file = output, output.with_suffix(".privacy.json")
        self.seeds = ledger.resolve().with_suffix(".pending")
        self.noise_seed = settings.noise_seed

    def request_digest(self) -> str:
        """Return a digest of the request and of the path of its output."""
        facts = {
            name: str(value)
            for name, value in (self._source.facts() | vars(self._settings)).items()
        }
        facts["output"] = str(self.file.resolve())
        return digest(
            json.dumps([facts, code_version(), np.__version__], sort_keys=True), *self._source.files
        )

    @contextmanager
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> Iterator[ReservationRequest]:
        settings = self._settings
        self._require_new(pending)
        self._histogram = self._source.read(generator)
        # the noise belongs to the files as they were digested
        same = self.request_digest() == pending.file.stem
        require(
            same, "files that nobody writes while they are read", changed=str(self._source.path)
        )
        self._mechanism = settings.mechanism_for(self._histogram)
        # fails before anything is paid if the list could not be stated
        self._facts = top_k_statement_fields(settings, self._mechanism, self._histogram)
        yield ReservationRequest(
            ledger=Ledger(
                self._ledger,
                home=self._ledger.resolve(),
                max_teachers_per_unit=settings.max_teachers_per_unit,
            ),
            events=self._mechanism.events(),
            count=1,
            relation=settings.relation,
            delta=settings.delta,
            budget=settings.budget,
            run=self.file.absolute().stem,
            description=type(self._mechanism).__name__,
        )

    def finished(self) -> Statement | None:
        """Return the statement of this release if it is finished, or None.

        The ledger holds the request but nothing of private files, so none of these may be newer
        than the list.
        """
        outputs = (self.statement_file, self.statement_file.with_suffix(".txt"), self.file)
        begun = pending_release(self.seeds, self.request_digest(), draw_key()).file.is_file()
        if begun or not all(path.is_file() for path in (*outputs, self._ledger)):
            return None
        newest = max(path.stat().st_mtime_ns for path in self._source.files)
        if newest > self.file.stat().st_mtime_ns:
            return None
        histogram = self._source.read(private_generator())
        mechanism = self._settings.mechanism_for(histogram)
        try:
            statement = Statement.read(self.statement_file)
            facts = top_k_statement_fields(self._settings, mechanism, histogram)
            statement.verify(ledger=self._ledger, released=self.file, facts=facts)
        except ValueError:
            return None  # of another call
        book, budget = read_ledger(self._ledger), self._settings.budget
        entry = book.entries[statement["release"] - 1]
        same = entry.events == mechanism.events() and entry.seeded == (self.noise_seed is not None)
        return statement if same and budget in (None, book.budget) else None

    def _require_new(self, pending: PendingRelease) -> None:
        """Raise ``ValueError`` if outputs exist, unless this release wrote them and was killed."""
        places = (self.file, self.statement_file, self.statement_file.with_suffix(".txt"))
        existing = ", ".join(str(path) for path in places if path.exists())
        same_release = existing and pending.matches_statement(self.statement_file, self._ledger)
        unpaid = "another output, because every release is paid for"
        require(not existing or same_release, unpaid, existing=existing)

    def draw(self, release: int, generator: np.random.Generator) -> None:
        items = _chosen(self._mechanism, self._histogram, generator)
        ordered = self._settings.ordered
        # the same draw gives the same text, so that a killed call settles the same again
        if self.file.suffix == ".csv":
            self._text = _table(items, ordered)
        else:
            self._text = json.dumps({"items": items, "ordered": ordered}, indent=2) + "\n"

    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        published = {
            **self._facts,
            "ledger": (entry.published or {}).get("ledger")
            or self._source.counted_by(self._ledger),
            "sha256": hashlib.sha256(self._text.encode()).hexdigest(),
        }
        return ReleaseOutcome(published=published)

    def publish(self) -> None:
        """Write the list last, so that no list exists without its statement."""
        write_text(self.file, self._text)


def _chosen(
    mechanism: Mechanism[Any], histogram: Histogram, generator: np.random.Generator
) -> list[str]:
    """Return the names of the chosen items: k of them, with some mechanisms fewer or none."""
    if histogram.public or not isinstance(mechanism, LimitedDomain):
        chosen = mechanism.choose(histogram.scores, generator=generator)
    else:
        chosen = mechanism.choose_unknown(histogram.scores, generator=generator)
    return [histogram.items[i] for i in chosen.tolist()]


def _table(items: list[str], ordered: bool) -> str:
    """Return items as lines of a CSV, with their ranks if these were released."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", "item") if ordered else ("item",))
    cells = [cell(item) for item in items]
    writer.writerows(enumerate(cells, 1) if ordered else ((item,) for item in cells))
    return text.getvalue()
