"""The stage `label`: a mechanism turns PRIVATE votes into PUBLIC labels, which bear a statement.

First the choice of the public samples that are asked about. It follows from public facts and costs
nothing. By a released student: ``entropy`` and ``margin`` take the samples where it is least
certain (Settles (2009)). By public features: ``k_center`` takes samples far from each other
(Gonzalez (1985); Sener & Savarese (2018)).

Then the release, whose labels are written where space is reserved for them. At the end statements
are compared with the files next to them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import IO

import numpy as np
from scipy.special import entr

from pate._core.accounting.history import LedgerEntry
from pate._core.accounting.statement import Statement, sha256
from pate._core.files.writing import atomic_write
from pate._core.registry import version_of
from pate._core.release.transaction import (
    PendingRelease,
    Releasable,
    ReleaseOutcome,
    ReservationRequest,
    release,
    require_no_other,
    write_statement,
)
from pate._core.validation import FloatArray, IntArray, expecting, given, require
from pate._core.version import __version__
from pate._labeling.aggregators.base import Release
from pate._labeling.data.records import Role
from pate._labeling.release.between_runs import Start, ledger_scope, open_ledger
from pate._labeling.release.label_settings import (
    LabelSettings,
    QueryChoice,
    digest_of,
    label_inputs,
    queries_on,
    rehearse,
)
from pate._labeling.release.privacy_units import unit_by
from pate._labeling.runs.released import (
    Queries,
    ReleasedLabels,
    sealing_key,
)
from pate._labeling.runs.run import (
    LABEL,
    TEACHERS_FIT,
    Run,
    first_stage,
    labels_file,
)
from pate._labeling.runs.vote_store import VoteStore, load_votes, public_features, voted_data
from pate._labeling.votes.kinds import NoisyTotal, Votes, rows_of


def least_margin(probabilities: FloatArray) -> FloatArray:
    """Return minus the distance ``[N]`` of the least certain label from one half."""
    return np.asarray(-np.abs(probabilities - 0.5).min(axis=1))


def total_entropy(probabilities: FloatArray) -> FloatArray:
    """Return the entropy ``[N]`` of all labels, in nats, as if they were independent."""
    return np.asarray((entr(probabilities) + entr(1 - probabilities)).sum(axis=1))


_BY_STUDENT: dict[QueryChoice, Callable[[FloatArray], FloatArray]] = {
    "entropy": total_entropy,
    "margin": least_margin,
}
"""The uncertainty ``[N]`` of a student's probabilities ``[N, C]``, by choice."""


def require_student_for(choice: QueryChoice | None, start_from: str | None) -> None:
    """Raise ``ValueError`` if a choice takes a released student, and teachers start from none."""
    require(
        choice not in _BY_STUDENT or start_from is not None,
        "teachers with start_from, a released student that chooses the queries",
        query_choice=choice,
    )


def chosen_rows(run: Run, store: VoteStore, settings: LabelSettings) -> IntArray:
    """Return the rows ``[Q]``, in order, of the samples with votes that are asked about.

    Ties go to the first samples in the public order of ``query_seed``.

    Raises:
        ValueError: if there are not enough samples, or no released student chooses among them.
    """
    manifest, choice, number = store.manifest(), settings.query_choice, settings.num_queries
    assert choice is not None and number is not None, "settings are complete"
    ids = np.array(manifest.ids)
    require(number <= len(ids), f"num_queries <= {len(ids)}", num_queries=number)
    order = settings.order_of(len(ids))
    if choice == "k_center":
        return order[farthest_first(public_features(run, store, order), number)]
    plan = run.inputs_of(TEACHERS_FIT).settings
    require_student_for(choice, plan.get("start_from"))
    data = voted_data(run, manifest)
    public = data.load(Role.PUBLIC)
    answers = Start.of(run, plan, data).answers(public.features[rows_of(ids[order], public.ids)])
    uncertainty = _BY_STUDENT[choice](answers)
    return order[np.argsort(-uncertainty, kind="stable")[:number]]


def farthest_first(features: FloatArray, number: int) -> IntArray:
    """Return the rows ``[number]`` of samples far from each other.

    The first comes first, then the one that is farthest from all before it. The largest distance of
    a sample from the nearest of them is at most twice the least possible (Gonzalez (1985), Theorem
    2.2).

    Args:
        features: ``[N, F]``.
        number: the number of samples, at most N.
    """
    squares = np.einsum("nf,nf->n", features, features)
    rows = np.zeros(number, dtype=np.int64)
    nearest = np.full(len(features), np.inf)
    for place in range(1, number):
        latest = rows[place - 1]
        distances = squares - 2 * (features @ features[latest]) + squares[latest]
        np.minimum(nearest, distances, out=nearest)
        nearest[rows[:place]] = -np.inf  # a copy of a sample is still another sample
        rows[place] = np.argmax(nearest)
    return rows


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
        rows = None if settings.query_choice is None else chosen_rows(run, votes, settings)
        self.queries = queries_on(votes.manifest(), settings, rows)
        self.inputs = label_inputs(run, settings, votes, self.queries)
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
                **given(query_choice=settings.query_choice),
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
            found[name] = version_of(name)
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
    return _verify(statement, run.ledger_path if run.ledger_path.is_file() else None, None)[0]


def verify_published(statement: Path, ledger: Path | None, released: Path | None = None) -> int:
    """Verify the statement of labels, with the files next to it.

    Args:
        statement: the file.
        ledger: the file of the ledger. None to verify only the releases that the statement lists.
        released: the released file. None for the one next to the statement.

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
    name = statement.name.removesuffix(".privacy.json")
    beside = [statement.with_name(f"{name}{suffix}") for suffix in (".csv", ".json", ".npz")]
    if stated.kind == "labels":
        beside = [statement.with_name(LABEL.outputs[0].name)]
    file = released or next((path for path in beside if path.is_file()), beside[0])
    if stated.kind == "labels":
        facts = ReleasedLabels.read(file).facts
    since = stated.verify(ledger=ledger, released=file, facts=facts)
    text = statement.with_suffix(".txt")
    if text.is_file():
        made_by = stated["versions"].get("pate")
        other = f"; pate {made_by} worded it: verify with that version, or remove the text"
        require(
            text.read_text(encoding="utf-8") == stated.text,
            f"the words of the statement in {text}{'' if made_by == __version__ else other}",
        )
    return since, stated.kind
