"""Checks of a release by public facts, before teachers are trained for it."""

from collections.abc import Sequence

import numpy as np

from pate._release.label_settings import LabelSettings
from pate._release.rehearsal import rehearse, require_answers
from pate._release.transaction import require_payable_release
from pate._runs import LABEL, Run
from pate._settings import encode_fields
from pate._votes import VoteShape, drawn_rows
from pate._votes.loading import read_predictions
from pate.accounting import ComposedEvent, RepeatedEvent
from pate.accounting._charges import Charge
from pate.data import DataSource, Role


def require_possible(
    run: Run,
    settings: LabelSettings,
    shape: VoteShape,
    data: DataSource,
    *,
    unpaid: Sequence[Charge] = (),
) -> None:
    """Raise ``ValueError`` if the labels that a run is yet to release would be refused.

    Existing labels and releases under way are not checked: they have been paid for. Writes nothing.

    Args:
        run: the run, with the ledger that will pay.
        settings: the queries, the mechanism and the budget, complete.
        shape: the numbers of teachers and labels.
        data: the source of the public samples.
        unpaid: releases that the same command makes before this one. The ledger must be able to
            pay for all, so that none is refused after another was paid for.
    """
    if is_paid(run, settings):
        return
    aggregator, ids = settings.mechanism, data.load(Role.PUBLIC).ids
    count = len(ids) if settings.num_queries is None else settings.num_queries
    charge = aggregator.events(shape), count
    if unpaid:
        charge = _together(*unpaid, charge)
    relation = aggregator.neighboring_relation
    require_payable_release(
        run.ledger_path,
        charge,
        relation=relation,
        delta=settings.delta,
        budget=settings.budget,
        max_teachers_per_unit=settings.max_teachers_per_unit,
    )
    predictions = None
    if settings.predictions is not None:
        # chosen queries are not known yet, and may be any
        number = count if settings.query_choice is None else len(ids)
        queries = np.array(ids)[drawn_rows(len(ids), number, seed=settings.query_seed)]
        predictions = read_predictions(settings.predictions, queries, data.label_names)
    if "features" in aggregator.needs:
        require_answers(aggregator, shape)  # the stage rehearses the rest with its votes
    else:
        rehearse(aggregator, shape, predictions=predictions)


def _together(*charges: Charge) -> Charge:
    """Return several charges as one that is paid at once."""
    events = {
        relation: ComposedEvent(
            events=tuple(
                RepeatedEvent(event=event[relation], count=count) for event, count in charges
            )
        )
        for relation in charges[0][0]
    }
    return events, 1


def is_paid(run: Run, settings: LabelSettings) -> bool:
    """Return whether labels by these settings exist, or the ledger may hold their cost."""
    seeds = run.private / "label"
    if seeds.is_dir() and any(seeds.iterdir()):
        return True
    changed = run.overwrite and run.inputs_of(LABEL).settings != encode_fields(settings)
    return run.is_finished(LABEL) and not changed
