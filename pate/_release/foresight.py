"""Checks of a release by public facts, before teachers are trained for it."""

from __future__ import annotations

import numpy as np

from pate._release.label_settings import LabelSettings
from pate._release.rehearsal import rehearse, require_answers
from pate._release.transaction import require_payable_release
from pate._runs import LABEL, Run
from pate._settings import encode_fields
from pate._votes import VoteShape, drawn_rows
from pate._votes.loading import read_predictions
from pate.data import DataSource, Role


def require_possible(run: Run, settings: LabelSettings, shape: VoteShape, data: DataSource) -> None:
    """Raise ``ValueError`` if the labels that a run is yet to release would be refused.

    Existing labels and releases under way are not checked: they have been paid for. Writes nothing.

    Args:
        run: the run, with the ledger that will pay.
        settings: the queries, the mechanism and the budget, complete.
        shape: the numbers of teachers and labels.
        data: the source of the public samples.
    """
    if _is_paid(run, settings):
        return
    aggregator, ids = settings.mechanism, data.load(Role.PUBLIC).ids
    count = len(ids) if settings.num_queries is None else settings.num_queries
    charge = aggregator.events(shape), count
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
        queries = np.array(ids)[drawn_rows(len(ids), count, seed=settings.query_seed)]
        predictions = read_predictions(settings.predictions, queries, data.label_names)
    if "features" in aggregator.needs:
        require_answers(aggregator, shape)  # the stage rehearses the rest with its votes
    else:
        rehearse(aggregator, shape, predictions=predictions)


def _is_paid(run: Run, settings: LabelSettings) -> bool:
    """Return whether labels by these settings exist, or the ledger may hold their cost."""
    seeds = run.private / "label"
    if seeds.is_dir() and any(seeds.iterdir()):
        return True
    changed = run.overwrite and run.inputs_of(LABEL).settings != encode_fields(settings)
    return run.is_finished(LABEL) and not changed
