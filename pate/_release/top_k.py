"""The private top k of a histogram."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pate._histogram import Histogram, HistogramFiles
from pate._release.pending import PendingRelease
from pate._release.top_k_settings import TopKSettings
from pate._release.transaction import Publication, Settlement, Terms, release
from pate._runs.files import code_version, digest, write_text
from pate._runs.locks import locked_output
from pate._validation import expect
from pate._version import __version__
from pate.accounting._history import Entry
from pate.accounting._ledger import Ledger, read_ledger
from pate.accounting._log import Head
from pate.accounting._statement import Statement
from pate.mechanisms._base import TopKMechanism
from pate.mechanisms._limited_domain import LimitedDomain
from pate.mechanisms._success import gap_for_top_k

_FILES = ("pairs", "counts", "items")
_LIKELY = 0.9  # the probability for which the gap is told


def release_top_k(source: HistogramFiles, settings: TopKSettings, *, output: Path, ledger: Path) -> Statement:
    """Release the top k of a histogram, and return the statement.

    The cost is in the ledger before the noise is drawn. A call that was killed goes on with what it reserved and the
    noise that it began with, if it is given again with the same files, settings and output: it neither pays nor draws
    twice. Until then the seed of its noise is kept beside the ledger, in a folder with the suffix ``.pending``.

    Args:
        source: the files of the histogram.
        settings: what is asked for, and the budget.
        output: the file that is written, a ``.csv`` or a ``.json``; the statement is beside it, in
            ``<name>.privacy.json`` and ``<name>.privacy.txt``.
        ledger: the ledger of the private data, one for all releases from them; made if it is missing.

    Raises:
        ValueError: before anything is spent, on settings that cannot be met, files that cannot be written or exist
            already, or a budget that does not suffice.
    """
    settings.expect_list(public=source.public)
    expect(output.suffix in (".csv", ".json"), "an output that is a .csv or a .json", output=str(output))
    folder = output.absolute().parent
    expect(folder.is_dir() and os.access(folder, os.W_OK), "a folder that can be written to", output=str(output))
    with locked_output(output.resolve()):
        return release(_TopK(source, settings, output, ledger))


class _TopK(Publication):
    """A list of items."""

    _histogram: Histogram
    _mechanism: TopKMechanism | LimitedDomain
    _text: str

    def __init__(self, source: HistogramFiles, settings: TopKSettings, output: Path, ledger: Path) -> None:
        self._source, self._settings, self._ledger = source, settings, ledger
        self.file, self.statement_file = output, output.with_suffix(".privacy.json")
        self.seeds = ledger.resolve().with_suffix(".pending")
        self.noise_seed = settings.noise_seed

    def question(self) -> str:
        """Return a digest of the request and of the path of its output."""
        source = self._source
        for name in _FILES:
            path = getattr(source, name)
            expect(path is None or path.is_file(), f"a file of {name}", path=str(path))
        # what is in the files counts, not by which path they were named
        source_facts = vars(source) | {name: path is not None for name, path in vars(source).items() if name in _FILES}
        facts = {name: str(value) for name, value in (source_facts | vars(self._settings)).items()}
        facts["output"] = str(self.file.resolve())
        return digest(json.dumps([facts, code_version(), np.__version__], sort_keys=True), *source.files)

    @contextmanager
    def prepared(self, pending: PendingRelease, generator: np.random.Generator) -> Iterator[Terms]:
        settings = self._settings
        self._expect_new(pending)
        self._histogram = self._source.read(generator)
        # its noise belongs to the files that were asked for
        same = self.question() == pending.file.stem
        expect(same, "files that nobody writes while they are read", changed=str(self._source.path))
        self._mechanism = settings.mechanism_for(self._histogram)
        yield Terms(
            ledger=Ledger(self._ledger, home=self._ledger.resolve()),
            events=self._mechanism.events(),
            count=1,
            relation=settings.relation,
            delta=settings.delta,
            budget=settings.budget,
            run=self.file.absolute().stem,
            description=type(self._mechanism).__name__,
        )

    def _expect_new(self, pending: PendingRelease) -> None:
        """Raise ``ValueError`` if there are outputs, unless they are of this very release, which was killed.

        It writes its statement first, and that names a release and a row of the ledger.
        """
        places = (self.file, self.statement_file, self.statement_file.with_suffix(".txt"))
        existing = [path for path in places if path.exists()]
        same_release = False
        if existing and pending.file.is_file() and self._ledger.is_file():
            book = read_ledger(self._ledger)
            with suppress(OSError, ValueError, KeyError, TypeError):
                statement = json.loads(self.statement_file.read_text(encoding="utf-8"))
                head = Head(statement["ledger"]["rows"], statement["ledger"]["digest"])
                number = next((entry.release for entry in book.entries if entry.token == pending.token), None)
                same_release = number is not None and number == statement["release"] and book.follows(head)
        there = ", ".join(map(str, existing))
        expect(same_release or not existing, "another output, because every release is paid for", existing=there)

    def draw(self, release: int, generator: np.random.Generator) -> None:
        items, ordered = _chosen(self._mechanism, self._histogram, generator), self._settings.ordered
        # the same draw gives the same text, so that whoever was killed here settles the same once more
        if self.file.suffix == ".csv":
            self._text = _table(items, ordered)
        else:
            self._text = json.dumps({"items": items, "ordered": ordered}, indent=2) + "\n"

    def settlement(self, entry: Entry) -> Settlement:
        settings, mechanism, histogram = self._settings, self._mechanism, self._histogram
        # of a limited domain the number of items does not matter
        num_ranks = mechanism.kbar + 1 if isinstance(mechanism, LimitedDomain) else len(histogram.items)
        gap = gap_for_top_k(mechanism, probability=_LIKELY, num_items=num_ranks)
        beside = self._ledger.resolve() == self._source.ledger_path.resolve()
        published: dict[str, Any] = {
            "kind": "topk",
            "neighboring_relation": settings.relation.value,
            "delta": settings.delta,
            "contributions": histogram.bound,
            "max_teachers_per_unit": 1,
            "mechanism": {"class": type(mechanism).__name__}
            | {field.name: getattr(mechanism, field.name) for field in fields(mechanism)},
            "num_items": len(histogram.items) if histogram.public else None,
            "ordered": settings.ordered,
            "gap": {"counts": gap, "probability": _LIKELY},
            "versions": {"pate": __version__, "numpy": np.__version__},
            "ledger": "private data" if beside else "named",
            "sha256": hashlib.sha256(self._text.encode()).hexdigest(),
        }
        return Settlement(published=published)

    def reveal(self) -> None:
        """Write the list last, so that none is anywhere without its statement."""
        write_text(self.file, self._text)


def _chosen(
    mechanism: TopKMechanism | LimitedDomain, histogram: Histogram, generator: np.random.Generator
) -> list[str]:
    """Return the names of the items that are chosen, at most k of them with a limited domain."""
    if not isinstance(mechanism, LimitedDomain):
        chosen = mechanism(histogram.scores, generator=generator)
    elif histogram.public:
        selection = mechanism(histogram.scores, generator=generator)
        chosen = selection.items[selection.listed]
    else:
        chosen = mechanism.choose_unknown(histogram.scores, generator=generator)
    return [histogram.items[i] for i in chosen.tolist()]


def _table(items: list[str], ordered: bool) -> str:
    """Return items as lines of a CSV, with their ranks where these were released."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", "item") if ordered else ("item",))
    writer.writerows(enumerate(items, 1) if ordered else ((item,) for item in items))
    return text.getvalue()
