"""The stage `label`: a mechanism turns PRIVATE votes into PUBLIC labels."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import IO

import numpy as np

from pate._files import atomic_write
from pate._release.label_settings import LabelSettings, digest_of, label_inputs, queries_on
from pate._release.ledger_file import ledger_scope, open_ledger
from pate._release.query_choice import chosen_rows
from pate._release.rehearsal import rehearse
from pate._release.statements import StatedLabels
from pate._release.transaction import (
    PendingRelease,
    Releasable,
    ReleaseOutcome,
    ReservationRequest,
    release,
    write_statement,
)
from pate._runs import LABEL, Run, first_stage, labels_file
from pate._runs.released import Queries, ReleasedLabels, sealing_key
from pate._validation import expecting, require
from pate._version import __version__
from pate._votes import NoisyTotal, Votes
from pate._votes.store import VoteStore, load_votes
from pate.accounting import LedgerEntry
from pate.accounting._statement import sha256
from pate.aggregators import Release

_STATEMENT_BYTES = 1 << 20


@contextmanager
def preallocate_labels(run: Run, queries: Queries) -> Iterator[IO[bytes]]:
    """Open the file that becomes labels.npz after the block, with its space reserved on disk.

    Raises ``ValueError`` if the folders cannot be written, their files cannot be replaced, or the
    disk is full.
    """
    # labels, mask, noisy counts and steps, the queries, and the statement
    names = queries.ids.nbytes + len(json.dumps([queries.label_names, queries.aggregator]))
    size = 18 * len(queries.ids) * len(queries.label_names) + names + _STATEMENT_BYTES
    with ExitStack() as stack:
        with expecting(
            "a run that labels can be written to", OSError, got=f"run={str(run.root)!r}"
        ):
            for folder in (run.public, run.root, run.private):
                probe = run.private / f".probe.{secrets.token_hex(8)}"
                probe.touch()
                # a rename is atomic within one file system only
                probe.replace(folder / probe.name).unlink()
            for left in (LABEL.state, LABEL.config, *LABEL.outputs):
                if (run.root / left).exists():
                    # a second name can be made only if the first one may be removed
                    probe = (run.root / left).with_name(f".probe.{secrets.token_hex(8)}")
                    os.link(run.root / left, probe)
                    probe.unlink()
            # labels without a statement are not public: a killed command leaves them private
            file: IO[bytes] = stack.enter_context(
                atomic_write(labels_file(run), folder=run.private)
            )
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        yield file


def label(
    run: Run, votes: VoteStore, settings: LabelSettings, total: NoisyTotal | None = None
) -> StatedLabels:
    """Label public samples through a private mechanism, and state the cost of all releases.

    The cost is written to the ledger before the noise is drawn. After a kill, the same command
    continues with its reservation and its noise: it neither pays nor draws twice. Labeling again
    after that is a new release, and its cost adds up.

    Args:
        run: the run; its teachers have voted.
        votes: their votes, complete and unchanged.
        settings: the queries, the mechanism and the budget, for these votes.
        total: the sum over silos that mask their votes, opened once it is paid for; None for other
            votes.

    Raises:
        ValueError: if the release cannot be made or would exceed the budget; nothing is spent.
    """
    labels = LabelsRelease(run, votes, settings, total)
    run.needs(LABEL, labels.inputs)  # raises on labels of other settings
    released = (
        None
        if run.overwrite and run.input_changes(LABEL, labels.inputs)
        else _find_labels(run, labels.queries)
    )
    # other runs may have released since, so the statement on existing labels is made again
    statement = (
        release(labels)
        if released is None
        else write_statement(labels, open_ledger(run), released.release)
    )
    run.finish(LABEL)
    return StatedLabels(**vars(labels.released), statement=statement)


def _find_labels(run: Run, queries: Queries) -> ReleasedLabels | None:
    """Return the labels that this command wrote before, or None if there are none.

    Raises ``ValueError`` on other labels, unless they are to be overwritten.
    """
    begun = run.state(LABEL)
    try:
        if not labels_file(run).is_file() and (begun is None or not begun.finished):
            return None
        released = ReleasedLabels.load(run.root)
        changed = [
            name
            for name, value in vars(queries).items()
            if not np.array_equal(value, getattr(released, name))
        ]
        same = begun is not None and begun.release == released.release and not changed
        require(
            same, f"labels in {labels_file(run)} that this command left", changed=changed or "all"
        )
    except ValueError as error:
        if run.overwrite:
            return None
        raise ValueError(
            f"{error}. With `overwrite` new labels are released, and paid for"
        ) from None
    return released


class LabelsRelease(Releasable):
    """The labels of a run.

    The old statement is removed before the old labels, and the old labels before the new ones
    appear, so that no statement ever describes labels that do not exist.
    """

    replaces_earlier = True
    released: ReleasedLabels
    _votes: Votes
    _room: IO[bytes]

    def __init__(
        self, run: Run, votes: VoteStore, settings: LabelSettings, total: NoisyTotal | None
    ) -> None:
        self._run, self._store, self._settings, self._total = run, votes, settings, total
        # labels that could not be sealed would be paid for and lost
        self._key = sealing_key(run)
        chosen = settings.query_choice is not None
        rows = chosen_rows(run, votes, settings) if chosen else None
        self.queries = queries_on(votes.manifest(), settings, rows)
        self.inputs = label_inputs(run, settings, votes, self.queries)
        self.noise_seed = settings.noise_seed
        self.file, self.statement_file = labels_file(run), run.root / LABEL.outputs[1]
        self.seeds = run.private / "label"

    def request_digest(self) -> str:
        aggregator = self._settings.mechanism
        self._votes = load_votes(
            self._run,
            self._store,
            self.queries.ids,
            aggregator.needs,
            predictions=self._settings.predictions,
            total=self._total,
        )
        return digest_of(aggregator, self.inputs, self._votes)

    @contextmanager
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> Iterator[ReservationRequest]:
        settings, shape, votes = self._settings, self.queries.shape, self._votes
        aggregator, relation = settings.mechanism, settings.mechanism.neighboring_relation
        events = aggregator.events(shape)
        ledger = open_ledger(self._run, settings.max_teachers_per_unit)
        rehearse(aggregator, shape, like=votes)
        with preallocate_labels(self._run, self.queries) as self._room:
            yield ReservationRequest(
                ledger=ledger,
                events=events,
                count=len(self.queries.ids),
                relation=relation,
                delta=self.queries.delta,
                budget=settings.budget,
                run=self._run.root.resolve().name,
                description=type(aggregator).__name__,
            )

    def draw(self, release: int, generator: np.random.Generator) -> None:
        answers = self._settings.mechanism.aggregate(self._votes, generator=generator)
        released = ReleasedLabels(**vars(self.queries), release=release, **answers._asdict())
        released.save(self._room, self._key)
        self._run.clear(LABEL)
        # only the reserved number shows that the labels are this command's
        self._run.begin(LABEL, self.inputs, release=release)

    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        self.released = ReleasedLabels.load(self._run.root)
        settled, released, aggregator = (
            entry.published or {},
            self.released,
            self._settings.mechanism,
        )
        realised = None
        if released.tiers is not None:
            answers = Release(released.labels, released.mask, tiers=released.tiers)
            realised = aggregator.charges(answers, released.shape)
        packages = {name: version(name) for name in ("numpy", "scipy", "torch")}
        facts = dict(released.facts)
        del facts["release"], facts["num_queries"]  # the ledger holds these
        if self._settings.query_choice is not None:
            facts["query_choice"] = self._settings.query_choice
        unit = self._run.inputs_of(first_stage(self._run)).settings.get("unit", "record")
        published = {
            "neighboring_relation": aggregator.neighboring_relation.value,
            "max_teachers_per_unit": self._settings.max_teachers_per_unit,
            "kind": "labels",
            "unit": str(unit),
            "ledger": settled.get("ledger") or ledger_scope(self._run),
            **facts,
            "sha256": sha256(self.file),
            "versions": settled.get("versions", {"pate": __version__} | packages),
        }
        return ReleaseOutcome(published=published, realised=realised)
