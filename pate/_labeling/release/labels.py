"""The stage `label`: a mechanism turns PRIVATE votes into PUBLIC labels, which bear a statement.

First the labels, which are written where space is reserved for them, and the rehearsal of an
aggregator on synthetic votes. At the end statements are compared with the files next to them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from pate._core.accounting.cost import format_epsilon, format_exact
from pate._core.accounting.history import LedgerEntry
from pate._core.accounting.statement import Statement, sha256
from pate._core.files.reading import read_text
from pate._core.files.writing import atomic_write
from pate._core.package import __version__
from pate._core.transaction import (
    PendingRelease,
    Releasable,
    ReleaseOutcome,
    ReservationRequest,
    release,
    require_no_other,
    write_statement,
)
from pate._core.validation import IntArray, expecting, require
from pate._labeling.aggregators.base import LEAST_ANSWERED, Aggregator, Release
from pate._labeling.release.between_runs import ledger_scope, open_ledger, unit_by
from pate._labeling.release.forecast import REMEDY
from pate._labeling.release.label_settings import (
    LabelSettings,
    digest_of,
    label_inputs,
    queries_on,
)
from pate._labeling.runs.released import (
    Queries,
    ReleasedLabels,
    sealing_key,
)
from pate._labeling.runs.run import (
    LABEL,
    Run,
    first_stage,
    labels_file,
)
from pate._labeling.runs.vote_store import VoteStore, load_votes
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Moments,
    NoisyTotal,
    Scores,
    Votes,
    VoteShape,
    serves,
)
from pate._labeling.votes.voters import RecordVoters


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatedLabels(ReleasedLabels):
    """Released labels with the statement on their cost and the cost of earlier releases. PUBLIC.

    Attributes:
        statement: the content of ``privacy.json``; its `verify` computes it again.
    """

    statement: Statement

    def describe(self) -> str:
        """Return the statement as text, the content of ``privacy.txt``."""
        return self.statement.text

    @property
    def advice(self) -> list[str]:
        """Lines on labels that few queries have, and on samples unlike the private records."""
        return [line for line in (self.unanswered, self.unlike) if line is not None]

    @property
    def unanswered(self) -> str | None:
        """A line on labels with no or few answers, or None if all have enough."""
        answered, count = int(self.answered.sum()), len(self.ids)
        if answered >= LEAST_ANSWERED * count:
            return None
        cost = self.statement["this_release"][self.statement["neighboring_relation"]]
        price = (
            f"epsilon = {format_epsilon(cost['epsilon'])} at delta = {format_exact(cost['delta'])}"
        )
        number = f"Only {answered}" if answered else "None"
        return (
            f"{number} of {count} queries {'were' if answered > 1 else 'was'} answered, and"
            f" {price} is spent. {REMEDY}; to ask again costs again."
        )


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
            probe = run.private / f".probe.{secrets.token_hex(8)}"
            for folder in (run.public, run.root, run.private):
                probe.touch()
                # a rename is atomic within one file system only
                probe.replace(folder / probe.name).unlink()
            left = (run.root / name for name in (LABEL.state, LABEL.config, *LABEL.outputs))
            for path in filter(Path.exists, left):
                # a file gets a second name only if the first one may be removed
                os.link(path, probe)
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
        run: the run. Its teachers have voted.
        votes: their votes, complete and unchanged.
        settings: the queries, the mechanism and the budget, for these votes.
        total: the sum over silos that mask their votes, opened once it is paid for. None for other
            votes.

    Raises:
        ValueError: if the release cannot be made or would exceed the budget. Nothing is spent.
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
    if not labels_file(run).is_file() and (begun is None or not begun.finished):
        return None
    try:
        released = ReleasedLabels.load(run.root)
        changed = [
            name
            for name, value in vars(queries).items()
            if not np.array_equal(value, getattr(released, name))
        ]
        require(
            begun is not None and begun.release == released.release and not changed,
            f"labels in {labels_file(run)} that this command left",
            changed=changed or "all",
        )
    except ValueError as error:
        if run.overwrite:
            return None
        raise ValueError(
            f"{error}. With `overwrite` new labels are released, and paid for"
        ) from None
    return released


def rehearse(
    aggregator: Aggregator,
    shape: VoteShape,
    *,
    like: Votes | None = None,
) -> None:
    """Run an aggregator on synthetic votes and discard its answers.

    It touches neither real votes nor the noise of a release. It tries batches of zero, one and
    several queries, because a screen may pass on any number of them. Counts are equal, nearly tied,
    or in even steps. The latter two also come with one count as large and one as small as possible.

    Args:
        aggregator: the aggregator.
        shape: the numbers of teachers and labels.
        like: the votes to be released. Only their kind and public parts are read. None
            for votes without public parts.

    Raises:
        ValueError: if the aggregator raises it, or its release does not have the shape of the
            votes.
    """
    synthetic = _synthetic_votes(aggregator, shape, like)
    for count in (0, 1, synthetic.num_queries):
        votes, size = synthetic[:count], (count, shape.num_labels)
        try:
            release = aggregator.aggregate(
                votes, generator=np.random.Generator(np.random.Philox(key=0))
            )
        except (ValueError, OSError):
            raise
        except Exception as error:
            raise ValueError(
                f"Expected {type(aggregator).__name__} to answer made-up votes, got"
                f" {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            ) from error
        shapes = {
            name: np.shape(array)
            for name in ("labels", "mask", "noisy_counts")
            if (array := getattr(release, name)) is not None
        }
        require(
            set(shapes.values()) == {size},
            f"a release of {count} queries and {shape.num_labels} labels",
            **shapes,
        )
        if release.noisy_counts is not None and not release.linear:
            require(
                release.noise_std is not None and release.noise_std > 0,
                "noise_std > 0, of noisy counts",
                noise_std=release.noise_std,
            )
        if release.tiers is not None:
            require(
                release.tiers.shape == (count,),
                f"the tiers of {count} queries",
                shape=release.tiers.shape,
            )
        aggregator.charges(release, shape)


_REHEARSED = 256  # public samples, at most


def _synthetic_votes(aggregator: Aggregator, shape: VoteShape, like: Votes | None) -> Votes:
    """Return synthetic votes that an aggregator takes, with the public side of ``like``."""
    counts, needs, moments = _synthetic_counts(shape), aggregator.needs, None
    known: dict[str, Any] = {
        name: np.resize(array, (len(counts), array.shape[1]))
        for name in ("predictions", "features")
        if (array := getattr(like, name, None)) is not None
    }
    # voters of ballots have a geometry if the aggregator asks for moments
    asks = any(serves(Scores, {need}) for need in needs if not isinstance(need, str))
    if isinstance(like, Scores | Moments) or (isinstance(like, Ballots) and asks):
        geometry = like.voters.geometry
        voters = RecordVoters(
            # a student of some samples fails as one of all does
            geometry=replace(geometry, samples=geometry.samples[:_REHEARSED]),
            num_voters=shape.num_teachers,
            num_labels=shape.num_labels,
            coordinates=np.resize(geometry.samples, (len(counts), geometry.num_directions)),
            labels=(2 * counts > shape.num_teachers).astype(np.uint8),
            unknown_labels=like.voters.unknown_labels,
            shifted=like.voters.shifted,
        )
        moments = Moments(voters=voters, **known)
        if serves(Moments, needs):
            return moments
    if serves(Counts, needs):
        return Counts(counts=counts, num_teachers=shape.num_teachers, **known)
    ballots = np.arange(shape.num_teachers)[None, :, None] < counts[:, None, :]
    return Ballots(ballots=ballots.astype(np.uint8), whole=moments, **known)


def _synthetic_counts(shape: VoteShape) -> IntArray:
    """Return counts ``[Q, C]``: equal, nearly tied, in steps, and the latter two with outliers."""
    most, half, labels = shape.num_teachers, shape.num_teachers // 2, np.arange(shape.num_labels)
    equal = [np.full_like(labels, count) for count in (0, most, half)]
    near_ties, stairs = half - labels % 2, np.maximum(half - labels, 0)
    with_outliers = [
        np.where(labels == 0, most, np.where(labels == labels[-1], 0, counts))
        for counts in (near_ties, stairs)
    ]
    return np.array([*equal, near_ties, stairs, *with_outliers])


class LabelsRelease(Releasable):
    """The labels of a run.

    The old statement is removed before the old labels, and the old labels before the new ones
    appear, so that no statement ever describes labels that do not exist.
    """

    released: ReleasedLabels
    _votes: Votes
    _room: IO[bytes]

    def __init__(
        self, run: Run, votes: VoteStore, settings: LabelSettings, total: NoisyTotal | None
    ) -> None:
        self._run, self._store, self._settings, self._total = run, votes, settings, total
        # labels that could not be sealed would be paid for and lost
        self._key = sealing_key(run)
        self.queries = queries_on(votes.facts(), settings)
        self.inputs = label_inputs(run, settings, votes)
        self._versions = versions_here()
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
        aggregator = settings.mechanism
        events = aggregator.events(shape)
        ledger = open_ledger(self._run, settings.max_teachers_per_unit)
        if not self._run.overwrite:
            require_no_other(pending, ledger)
        rehearse(aggregator, shape, like=votes)
        with preallocate_labels(self._run, self.queries) as self._room:
            yield ReservationRequest(
                ledger=ledger,
                events=events,
                count=len(self.queries.ids),
                relation=settings.relation,
                delta=self.queries.delta,
                budget=settings.budget,
                run=self._run.root.resolve().name,
                description=type(aggregator).__name__,
                privacy_unit=unit_by(self._run.begun(first_stage(self._run)), self._key),
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
        settled, released, settings = entry.published or {}, self.released, self._settings
        realised = None
        if released.tiers is not None:
            answers = Release(released.labels, released.mask, tiers=released.tiers)
            realised = settings.mechanism.charges(answers, released.shape)
        facts = released.facts
        del facts["release"], facts["num_queries"]  # which the ledger holds
        return ReleaseOutcome(
            published={
                "neighboring_relation": settings.relation.value,
                "max_teachers_per_unit": settings.max_teachers_per_unit,
                "kind": "labels",
                "unit": str(
                    self._run.inputs_of(first_stage(self._run)).settings.get("unit", "record")
                ),
                "ledger": settled.get("ledger") or ledger_scope(self._run),
                **facts,
                "sha256": sha256(self.file),
                "versions": settled.get("versions", self._versions),
            },
            realised=realised,
        )


def versions_here() -> dict[str, str]:
    """Return the versions of the packages that make a release; absent ones are left out."""
    found = {"pate": __version__}
    for name in ("numpy", "scipy", "torch"):
        with suppress(PackageNotFoundError):  # a release needs no torch
            found[name] = version(name)
    return found


def require_stated(run: Run) -> int:
    """Raise ``ValueError`` unless existing labels bear the run's seal and match their statement.

    Returns the number of later releases in the ledger, by other runs on the same data.
    """
    statement = run.root / LABEL.outputs[1]
    if labels_file(run).is_file():
        ReleasedLabels.load(run.root)
    if not (labels_file(run).is_file() and statement.is_file()):
        return 0
    return _verify(statement, run.ledger_path if run.ledger_path.is_file() else None, None)


def verify_published(
    statement: Path, ledger: Path | None = None, released: Path | None = None
) -> None:
    """Verify the statement of labels, with the files next to it.

    Args:
        statement: the file.
        ledger: the file of the ledger. None for the releases that the statement lists.
        released: the released file. None for the one next to the statement, if there is one.

    Raises:
        ValueError: in one line, at the first figure that differs, if a file is missing or damaged,
            or if the ledger holds releases after the statement.
    """
    since = _verify(statement, ledger, released)
    require(
        since == 0,
        "a statement on all releases of the ledger; the same `pate label` makes it",
        more=since,
    )


def _verify(statement: Path, ledger: Path | None, released: Path | None) -> int:
    """Verify a statement; return the number of releases after it."""
    stated = Statement.read(statement)
    file = released or statement.with_name(LABEL.outputs[0].name)
    if released is None and not file.exists():  # as with an exported student
        since = stated.verify(ledger=ledger)
    else:
        since = stated.verify(ledger=ledger, released=file, facts=ReleasedLabels.read(file).facts)
    text = statement.with_suffix(".txt")
    if text.is_file():
        made_by = stated["versions"].get("pate")
        other = f"; pate {made_by} worded it: verify with that version, or remove the text"
        require(
            read_text(text) == stated.text,
            f"the words of the statement in {text}{'' if made_by == __version__ else other}",
        )
    return since
