"""The private top k of a histogram: what is released, what it costs, and where that is written down."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pate.accounting.budget import Budget, FilterName
from pate.accounting.ledger import Ledger, read_ledger
from pate.accounting.log import Head
from pate.accounting.statement import Statement
from pate.histogram import Histogram, HistogramFiles
from pate.mechanisms.base import TopKMechanism
from pate.mechanisms.limited_domain import LimitedDomain
from pate.mechanisms.noise import draw_seed, private_generator, seeded_generator
from pate.mechanisms.success import gap_for_top_k
from pate.release.pending import PendingRelease, pending_release
from pate.release.top_k_settings import TopKSettings
from pate.runs.files import code_version, digest, naming_output, write_json, write_text
from pate.runs.locks import locked_output
from pate.validation import expect
from pate.version import __version__

_FILES = ("pairs", "counts", "items")
_LIKELY = 0.9  # the probability for which the gap is told


def release_top_k(
    source: HistogramFiles,
    settings: TopKSettings,
    *,
    output: Path,
    ledger: Path,
    max_epsilon: float | None = None,
    max_delta0: float | None = None,
    budget_filter: FilterName | None = None,
) -> Statement:
    """Release the top k of a histogram, and return the statement.

    The cost is in the ledger before the noise is drawn. A call that was killed goes on with what it reserved and the
    noise that it began with, if it is given again with the same files, settings and output: it neither pays nor draws
    twice. Until then the seed of its noise is kept beside the ledger, in a folder with the suffix ``.pending``.

    Args:
        source: the files of the histogram.
        settings: what is asked for.
        output: the file that is written, a ``.csv`` or a ``.json``; the statement is beside it, in
            ``<name>.privacy.json`` and ``<name>.privacy.txt``.
        ledger: the ledger of the private data, one for all releases from them; made if it is missing.
        max_epsilon: the limit on all releases of the ledger together, at ``delta`` under the first relation.
        max_delta0: the part of delta that this limit sets aside for failures, as `Budget` has it.
        budget_filter: what keeps this limit, as `Budget` has it.

    Raises:
        ValueError: before anything is spent, on settings that cannot be met, files that cannot be written or exist
            already, or a budget that does not suffice.
    """
    settings.expect_list(public=source.public)
    budget = Budget.declared(
        max_epsilon,
        delta=settings.delta,
        neighboring_relation=settings.relation,
        max_delta0=max_delta0,
        budget_filter=budget_filter,
    )
    expect(output.suffix in (".csv", ".json"), "an output that is a .csv or a .json", output=str(output))
    folder = output.absolute().parent
    expect(folder.is_dir() and os.access(folder, os.W_OK), "a folder that can be written to", output=str(output))
    with locked_output(output.resolve()):
        return _release(source, settings, output, ledger, budget)


def _release(
    source: HistogramFiles, settings: TopKSettings, output: Path, ledger: Path, budget: Budget | None
) -> Statement:
    """Make a release, or go on with it, while nobody else writes the output; return the statement."""
    asked = _digest_of(source, settings, output, budget)
    pending = pending_release(ledger.resolve().with_suffix(".pending"), asked, draw_seed())
    begun = pending.file.is_file()
    _expect_new(output, ledger, pending.token if begun else None)
    generator = private_generator((pending.key, pending.counter))
    if settings.noise_seed is not None:
        generator = seeded_generator(settings.noise_seed)
    histogram = source.read(generator)
    # its noise belongs to the files that were asked for
    same = _digest_of(source, settings, output, budget) == asked
    expect(same, "files that nobody writes while they are read", changed=str(source.path))
    mechanism = settings.mechanism_for(histogram)
    book = Ledger(ledger, home=ledger.resolve())
    events = mechanism.events()
    pending.write()
    try:
        release = book.reserve(
            events,
            count=1,
            run=output.absolute().stem,
            description=type(mechanism).__name__,
            seeded=settings.noise_seed is not None,
            budget=budget,
            delta=settings.delta,
            token=pending.token,
        )
    except ValueError:
        # nothing was reserved
        if not begun:
            _destroy(pending)
        raise
    if settings.noise_seed is not None:
        generator = seeded_generator(settings.noise_seed, release=release)
    items = _chosen(mechanism, histogram, generator)
    ordered = settings.mechanism != "canonical"
    # the same draw gives the same text, so that whoever was killed here settles the same once more
    text = (
        _table(items, ordered)
        if output.suffix == ".csv"
        else json.dumps({"items": items, "ordered": ordered}, indent=2) + "\n"
    )
    published = _published(settings, mechanism, histogram)
    counts = "private data" if ledger.resolve() == source.ledger_path.resolve() else "named"
    published |= {"ledger": counts, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    head = book.settle(release, published=published)
    # whatever others add meanwhile
    statement = Statement.of(read_ledger(ledger, rows=head.rows), release)
    with naming_output(output):
        write_json(output.with_suffix(".privacy.json"), statement.content)
        write_text(output.with_suffix(".privacy.txt"), statement.text)
        # last, so that no list is anywhere without its statement
        write_text(output, text)
    _destroy(pending)
    return statement


def _published(
    settings: TopKSettings,
    mechanism: TopKMechanism | LimitedDomain,
    histogram: Histogram,
) -> dict[str, Any]:
    """Return what is published of a release apart from its cost and its items, by the keys of its statement."""
    # of a limited domain the number of items does not matter
    num_ranks = mechanism.kbar + 1 if isinstance(mechanism, LimitedDomain) else len(histogram.items)
    gap = gap_for_top_k(mechanism, probability=_LIKELY, num_items=num_ranks)
    return {
        "kind": "topk",
        "neighboring_relation": settings.relation.value,
        "delta": settings.delta,
        "contributions": histogram.bound,
        "max_teachers_per_unit": 1,
        "mechanism": {"class": type(mechanism).__name__}
        | {field.name: getattr(mechanism, field.name) for field in fields(mechanism)},
        "num_items": len(histogram.items) if histogram.public else None,
        "ordered": settings.mechanism != "canonical",
        "gap": {"counts": gap, "probability": _LIKELY},
        "versions": {"pate": __version__, "numpy": np.__version__},
    }


def _expect_new(output: Path, ledger: Path, token: str | None) -> None:
    """Raise ``ValueError`` if there are outputs, unless a call that was killed left them, whose ``token`` is given.

    Such a call writes its statement first, and that names a release and a row of the ledger.
    """
    statement_file = output.with_suffix(".privacy.json")
    existing = [path for path in (output, statement_file, output.with_suffix(".privacy.txt")) if path.exists()]
    own = False
    if existing and token is not None and ledger.is_file():
        book = read_ledger(ledger)
        with suppress(OSError, ValueError, KeyError, TypeError):
            left = json.loads(statement_file.read_text(encoding="utf-8"))
            head = Head(left["ledger"]["rows"], left["ledger"]["digest"])
            release = next((entry.release for entry in book.entries if entry.token == token), None)
            own = release is not None and release == left["release"] and book.follows(head)
    there = ", ".join(map(str, existing))
    expect(own or not existing, "another output, because every release is paid for", existing=there)


def _digest_of(source: HistogramFiles, settings: TopKSettings, output: Path, budget: Budget | None) -> str:
    """Return a digest of all that a release follows from but for the noise, and of where it is written. PRIVATE."""
    for name in _FILES:
        path = getattr(source, name)
        expect(path is None or path.is_file(), f"a file of {name}", path=str(path))
    # what is in the files counts, not by which path they were named
    given = vars(source) | {name: path is not None for name, path in vars(source).items() if name in _FILES}
    facts = {name: str(value) for name, value in (given | vars(settings)).items()}
    facts |= {"output": str(output.resolve()), "budget": str(budget)}
    return digest(json.dumps([facts, code_version(), np.__version__], sort_keys=True), *source.files)


def _destroy(pending: PendingRelease) -> None:
    """Delete the seed of a release, and the folder of releases under way if there are no others."""
    pending.file.unlink(missing_ok=True)
    with suppress(OSError):
        pending.file.parent.rmdir()


def _chosen(
    mechanism: TopKMechanism | LimitedDomain, histogram: Histogram, generator: np.random.Generator
) -> list[str]:
    """Return the names of the items that are chosen, at most k of them with a limited domain."""
    if not isinstance(mechanism, LimitedDomain):
        chosen = mechanism(histogram.scores, generator=generator)
    elif histogram.public:
        found = mechanism(histogram.scores, generator=generator)
        chosen = found.items[found.listed]
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
