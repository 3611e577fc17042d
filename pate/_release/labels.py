"""The stage `label`: votes are PRIVATE, and the labels that a mechanism makes of them are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import IO

import numpy as np

from pate._release.label_inputs import digest_of, label_inputs, load_votes
from pate._release.label_settings import LabelSettings
from pate._release.ledger_file import open_ledger
from pate._release.pending import PendingRelease
from pate._release.rehearsal import rehearse
from pate._release.room import room_for_labels
from pate._release.stating import StatedLabels, published_facts
from pate._release.transaction import Publication, Settlement, Terms, release, state
from pate._runs import LABEL, Run, labels_file
from pate._runs.released import Queries, ReleasedLabels, sealing_key
from pate._settings import encode
from pate._validation import expect
from pate._vote_store import VoteStore
from pate._votes import Votes
from pate.accounting._charges import expect_delta_beyond_tests
from pate.accounting._history import Entry
from pate.aggregators._base import Aggregator, Release


def label(run: Run, votes: VoteStore, settings: LabelSettings) -> StatedLabels:
    """Label public samples through a private mechanism, and state what all releases from the private data cost.

    The cost is written to the ledger before the noise is drawn. A command that was killed goes on with what it
    reserved and the noise that it began with: it neither pays nor draws twice. Labelling again after that is a new
    release, whose cost adds up.

    Args:
        run: the run, whose teachers have voted.
        votes: their votes, all of them and unchanged.
        settings: the queries, the mechanism and the budget, for these votes.

    Raises:
        ValueError: if the release would exceed the budget, or it cannot be made; nothing is spent then.
    """
    labels = _Labels(run, votes, settings)
    run.needs(LABEL, labels.inputs)  # raises on labels of other settings
    released = None if run.overwrite and run.changes(LABEL, labels.inputs) else _find_labels(run, labels.queries)
    # others may have released since: labels that are there are stated on all that the ledger holds by now
    statement = release(labels) if released is None else state(labels, open_ledger(run), released.release)
    run.finish(LABEL)
    return StatedLabels(**vars(labels.released), statement=statement)


def _find_labels(run: Run, queries: Queries) -> ReleasedLabels | None:
    """Return the labels that this command wrote before, or None if there are none.

    Raises ``ValueError`` on any others, unless they are to be overwritten.
    """
    begun = run.state(LABEL)
    try:
        if not labels_file(run).is_file() and not run.is_finished(LABEL):
            return None
        released = ReleasedLabels.load(run)
        changed = released.differences(queries)
        same_release = begun is not None and begun.release == released.release
        expect(
            same_release and not changed,
            f"labels in {labels_file(run)} that this command left",
            changed=changed or "all",
        )
    except ValueError as error:
        if run.overwrite:
            return None
        raise ValueError(f"{error}. With --overwrite new labels are released, and paid for") from None
    return released


class _Labels(Publication):
    """The labels of a run.

    The old statement is removed before the old labels, and those before the new ones appear, so that no statement ever
    describes labels that do not exist.
    """

    renewed = True
    released: ReleasedLabels
    _room: IO[bytes]

    def __init__(self, run: Run, votes: VoteStore, settings: LabelSettings) -> None:
        # labels that could not be sealed would be paid for and lost
        sealing_key(run)
        manifest = votes.manifest()
        self._run, self._store, self._settings = run, votes, settings
        self._rows = np.random.default_rng(settings.query_seed).permutation(len(manifest.ids))
        self._rows = self._rows[: settings.num_queries]
        self.queries = Queries(
            ids=np.array(manifest.ids)[self._rows],
            label_names=tuple(manifest.label_names),
            num_teachers=manifest.num_teachers,
            delta=float(settings.delta),
            aggregator=encode(Aggregator, settings.mechanism),
        )
        self.inputs = label_inputs(run, settings, votes)
        self.noise_seed = settings.noise_seed
        self.file, self.statement_file = labels_file(run), run.root / LABEL.outputs[1]
        self.seeds = run.private / "label"

    @cached_property
    def _votes(self) -> Votes:
        return load_votes(self._run, self._settings, self._store, self._rows, self.queries)

    def question(self) -> str:
        return digest_of(self._settings.mechanism, self.inputs, self._votes)

    @contextmanager
    def prepared(self, pending: PendingRelease, generator: np.random.Generator) -> Iterator[Terms]:
        settings, panel, votes = self._settings, self.queries.panel, self._votes
        aggregator, relation = settings.mechanism, settings.mechanism.neighboring_relation
        events, ledger = aggregator.events(panel), open_ledger(self._run)
        rehearse(aggregator, panel, predictions=votes.predictions, features=votes.features, voters=votes.voters)
        expect_delta_beyond_tests([(events, len(self._rows))], relation, self.queries.delta)
        with room_for_labels(self._run, self.queries) as self._room:
            yield Terms(
                ledger=ledger,
                events=events,
                count=len(self._rows),
                relation=relation,
                delta=self.queries.delta,
                budget=settings.budget,
                run=self._run.root.resolve().name,
                description=type(aggregator).__name__,
            )

    def draw(self, release: int, generator: np.random.Generator) -> None:
        answers = self._settings.mechanism.aggregate(self._votes, generator=generator)
        ReleasedLabels(
            **vars(self.queries),
            release=release,
            **{name: getattr(answers, name) for name in ("labels", "mask", "noisy_counts", "noise_std", "tiers")},
        ).save(self._room, self._run)
        self._run.clear(LABEL)
        # labels are recognised as this command's only by the number that it reserved
        self._run.begin(LABEL, self.inputs, release=release)

    def settlement(self, entry: Entry) -> Settlement:
        released = self.released = ReleasedLabels.load(self._run)
        aggregator, realised = self._settings.mechanism, None
        if released.tiers is not None:
            answers = Release(released.labels, released.mask, tiers=released.tiers)
            realised = aggregator.charges(answers, released.panel)
        published = {
            "neighboring_relation": aggregator.neighboring_relation.value,
            "max_teachers_per_unit": self._settings.max_teachers_per_unit,
            **published_facts(self._run, released, entry.published),
        }
        return Settlement(published=published, realised=realised)
