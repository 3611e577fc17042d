"""The stage `label`: the one place where something PRIVATE becomes public, through a mechanism and a ledger."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import IO

import numpy as np

from pate.accounting.budget import BudgetExceededError
from pate.accounting.charges import expect_delta_beyond_tests
from pate.accounting.ledger import Ledger
from pate.accounting.statement import Statement
from pate.aggregators.base import Aggregator, Release
from pate.data_file import load_data, public_digest
from pate.mechanisms.noise import draw_seed, private_generator, seeded_generator
from pate.release.label_settings import LabelSettings
from pate.release.ledger_file import open_ledger
from pate.release.pending import destroy_others, destroy_settled, pending_release
from pate.release.rehearsal import rehearse
from pate.release.side_information import expect_features, expect_predictions, read_features, read_predictions
from pate.release.stating import is_stated, published_facts
from pate.runs import LABEL, Inputs, Run, digest, first_stage, labels_file, replacing, write_json, write_text
from pate.runs.files import code_version
from pate.runs.released import Queries, ReleasedLabels, sealing_key
from pate.settings import encode, encode_fields
from pate.typing import IntArray
from pate.validation import expect
from pate.vote_store import VoteStore, finished_votes
from pate.votes import Votes

_RELEASE = "release"  # key in the stage's state and in the statement: the number of their release
_STATEMENT_BYTES = 1 << 20


def label(run: Run, settings: LabelSettings) -> None:
    """Label public samples through a private mechanism, and state what all releases from the private data cost.

    The cost is written to the ledger before the noise is drawn. A command that was killed goes on with what it
    reserved and the noise that it began with: it neither pays nor draws twice. Labelling again after that is a new
    release, whose cost adds up.

    Args:
        run: the run, whose teachers have voted.
        settings: the queries, the mechanism and the budget.

    Raises:
        ValueError: if the votes are missing, the release would exceed the budget, or it cannot be made; nothing is
            spent then.
    """
    store = finished_votes(run)
    # labels that could not be sealed would be paid for and lost
    sealing_key(run)
    manifest = store.manifest()
    settings = settings.resolved(manifest.panel, len(manifest.ids))
    rows = np.random.default_rng(settings.query_seed).permutation(len(manifest.ids))[: settings.num_queries]
    queries = Queries(
        ids=np.array(manifest.ids)[rows],
        label_names=tuple(manifest.label_names),
        num_teachers=manifest.num_teachers,
        delta=float(settings.delta),
        aggregator=encode(Aggregator, settings.mechanism),
    )
    inputs = _inputs_of(run, settings, store)
    todo = run.needs(LABEL, inputs)
    redo = run.overwrite and bool(run.changes(LABEL, inputs))
    released = None if redo else _find_labels(run, queries)
    if released is None:
        released = _pay_and_release(run, settings, queries, store, rows, inputs)
    elif not todo and is_stated(run, released):
        return
    _settle_and_state(run, settings, released)
    run.finish(LABEL)


def _find_labels(run: Run, queries: Queries) -> ReleasedLabels | None:
    """Return the labels that this command wrote before, or None if there are none.

    Raises ``ValueError`` on any others, unless they are to be overwritten.
    """
    state = run.state(LABEL)
    try:
        if not labels_file(run).is_file() and (state is None or not state["finished"]):
            return None
        released = ReleasedLabels.load(run)
        others = released.differences(queries)
        known = state is not None and state.get(_RELEASE) == released.release
        expect(known and not others, f"labels in {labels_file(run)} that this command left", others=others or "all")
    except ValueError as error:
        if run.overwrite:
            return None
        raise ValueError(f"{error}. With --overwrite others are released, and paid for") from None
    return released


def _pay_and_release(
    run: Run, settings: LabelSettings, queries: Queries, store: VoteStore, rows: IntArray, inputs: Inputs
) -> ReleasedLabels:
    """Reserve a release, draw its noise and write its labels; return them as read back from disk.

    Whatever can fail is tried before the reservation. If the same command was killed before its labels were written,
    its reservation and its noise are taken up again. The old statement is removed before the old labels, and those
    before the new ones appear, so that no statement ever describes labels that do not exist.

    Args:
        run: the run.
        settings: the queries, the mechanism and the budget.
        queries: the queries as published.
        store: the votes.
        rows: ``[Q]``, the rows of the queries among the votes.
        inputs: what the labels follow from but for the noise.
    """
    aggregator, budget, panel = settings.mechanism, settings.budget, queries.panel
    events = aggregator.events(panel)
    # before features, which do not help an aggregator that lacks ballots
    votes, _ = store.load(rows=rows, ballots=aggregator.needs_ballots)
    predictions = features = None
    if settings.predictions is not None:
        predictions = read_predictions(settings.predictions, queries.ids, queries.label_names)
    if aggregator.needs_features:
        brought = store.features(rows)
        features = read_features(run, queries.ids, store.manifest().made_by) if brought is None else brought
    with ExitStack() as stack:
        ledger = open_ledger(run)
        asked: Votes = replace(votes, predictions=predictions, features=features)
        rehearse(aggregator, panel, predictions=predictions, features=features)
        file = _reserve_room(stack, run, queries)
        pending = pending_release(_pending_folder(run), _digest_of(aggregator, inputs, asked), draw_seed())
        charge, relation = (events, len(rows)), aggregator.neighboring_relation
        expect_delta_beyond_tests([charge], relation, queries.delta)
        with _naming_ledger(ledger):
            book = ledger.book()
            if not any(entry.token == pending.token for entry in book.entries):
                expect_delta_beyond_tests([*book.charges(), charge], relation, queries.delta)
                ledger.expect_affordable(events, count=len(rows), budget=budget)
        pending.write()
        with _naming_ledger(ledger):
            release = ledger.reserve(
                events,
                count=len(rows),
                run=run.root.resolve().name,
                description=type(aggregator).__name__,
                seeded=settings.noise_seed is not None,
                budget=budget,
                delta=queries.delta,
                token=pending.token,
            )
        destroy_others(pending)
        generator = private_generator((pending.key, pending.counter))
        if settings.noise_seed is not None:
            generator = seeded_generator(settings.noise_seed, release=release)
        answers = aggregator.aggregate(asked, generator=generator)
        ReleasedLabels(
            **{field.name: getattr(queries, field.name) for field in fields(queries)},
            release=release,
            labels=answers.labels,
            mask=answers.mask,
            noisy_counts=answers.noisy_counts,
            noise_std=answers.noise_std,
            tiers=answers.tiers,
        ).save(file, run)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
        for statement in LABEL.outputs[:0:-1]:
            (run.root / statement).unlink(missing_ok=True)
        run.clear(LABEL)
        run.begin(LABEL, inputs)
        # labels are recognised as this command's only by the number that it reserved
        write_json(run.root / LABEL.state, (run.state(LABEL) or {}) | {_RELEASE: release})
        # leaving the context renames the file to labels.npz
    return ReleasedLabels.load(run)


def _pending_folder(run: Run) -> Path:
    return run.private / "label"


def _inputs_of(run: Run, settings: LabelSettings, store: VoteStore) -> Inputs:
    """Return all that labels follow from but for the noise. PRIVATE.

    The manifest holds the digests of all votes, which were compared with their files.
    """
    digests = {"votes": digest(store.manifest_file)}
    if settings.predictions is not None:
        expect_predictions(settings.predictions)
        digests["predictions"] = digest(settings.predictions)
    if settings.mechanism.needs_features and not store.has_features():
        described = (run.state(first_stage(run)) or {"config": {}})["config"].get("data")
        expect_features(described, needed_by=type(settings.mechanism).__name__)
        digests["public"] = public_digest(load_data(run))
    return Inputs(encode_fields(settings), digests)


def _digest_of(aggregator: Aggregator, inputs: Inputs, asked: Votes) -> str:
    """Return a digest of all that the answers follow from but for the noise, and of the budget. PRIVATE.

    Other code may make other answers of the same noise, and so is asked for another release.
    """
    arrays = (b"" if array is None else array.tobytes() for array in (asked.predictions, asked.features))
    return digest(inputs.digest, code_version(), np.__version__, *arrays, *_code_of(aggregator))


def _code_of(aggregator: Aggregator) -> Iterator[Path]:
    """Yield the files of the classes of an aggregator and of those within it, which may be another package's."""
    file = getattr(sys.modules[type(aggregator).__module__], "__file__", None)
    if file is not None:
        yield Path(file)
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Aggregator):
                yield from _code_of(each)


def _reserve_room(stack: ExitStack, run: Run, queries: Queries) -> IO[bytes]:
    """Open the file that becomes labels.npz when ``stack`` is closed, with enough space reserved on disk.

    Raises ``ValueError`` if the folders cannot be written, their files cannot be replaced, or the disk is full.
    """
    # labels, mask, noisy counts and steps, what was asked, and the statement
    names = queries.ids.nbytes + len(json.dumps([queries.label_names, queries.aggregator]))
    size = 18 * len(queries.ids) * len(queries.label_names) + names + _STATEMENT_BYTES
    try:
        for folder in (run.private, run.public):
            for old in folder.glob(f".{labels_file(run).name}.*"):
                old.unlink()  # left half-written by a killed command; nobody else has the lock
        for folder in (run.public, run.root, run.private):
            probe = run.private / f".probe.{secrets.token_hex(8)}"
            probe.touch()
            # a rename is whole within one file system only
            probe.replace(folder / probe.name).unlink()
        for left in (LABEL.state, LABEL.config, *LABEL.outputs):
            if (run.root / left).exists():
                # a second name can be made only where the first one may be removed
                probe = (run.root / left).with_name(f".probe.{secrets.token_hex(8)}")
                os.link(run.root / left, probe)
                probe.unlink()
        # labels that nobody has stated yet are not public: a killed command leaves them where they belong
        file: IO[bytes] = stack.enter_context(replacing(labels_file(run), folder=run.private))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ValueError(f"Expected a run that labels can be written to, got run={str(run.root)!r} ({error})") from None
    return file


@contextmanager
def _naming_ledger(ledger: Ledger) -> Iterator[None]:
    """Add to an error of which ledger it speaks and, where earlier releases are too much, which runs made them."""
    try:
        yield
    except ValueError as error:
        said = f"The ledger {ledger.path}"
        earlier = sorted({entry.run for entry in ledger.entries()})
        if isinstance(error, BudgetExceededError) and earlier:
            raise ValueError(
                f"{error}. {said} counts what runs on these private data released before ({', '.join(earlier)}),"
                " deleted ones too: ask for less, label other data, or, if the records are nobody's, as drawn faces"
                " are, delete it to begin anew"
            ) from None
        if str(ledger.path) in str(error):
            raise
        raise ValueError(f"{error} ({ledger.path})") from None


def _settle_and_state(run: Run, settings: LabelSettings, released: ReleasedLabels) -> None:
    """Settle the release that is on disk, and write the statement of its labels."""
    aggregator, panel, realised = settings.mechanism, released.panel, None
    if released.tiers is not None:
        realised = aggregator.charges(Release(released.labels, released.mask, tiers=released.tiers), panel)
    ledger = open_ledger(run)
    published = {
        "neighboring_relation": aggregator.neighboring_relation.value,
        "max_teachers_per_unit": settings.max_teachers_per_unit,
        **published_facts(run, released, ledger.entries()[released.release - 1].published),
    }
    ledger.settle(released.release, realised=realised, published=published)
    destroy_settled(_pending_folder(run), ledger)
    statement = Statement.of(ledger.book(), released.release)
    write_json(run.root / LABEL.outputs[1], statement.content)
    write_text(run.root / LABEL.outputs[2], statement.text)
