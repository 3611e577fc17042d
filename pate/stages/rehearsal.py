"""A rehearsal of an aggregator on constant votes, so that it fails, if it does, before anything is spent."""

from __future__ import annotations

import numpy as np

from pate.aggregators.base import Aggregator
from pate.typing import FloatArray
from pate.validation import expect
from pate.votes import Panel, Votes


def rehearse(
    aggregator: Aggregator,
    panel: Panel,
    *,
    predictions: FloatArray | None = None,
    features: FloatArray | None = None,
) -> None:
    """Run an aggregator on constant votes and discard its answers.

    Neither real votes nor the noise of a release are touched. Batches of zero, one and several queries are tried,
    because a screen may pass on any number of them.

    Args:
        aggregator: the aggregator.
        panel: the numbers of teachers and labels.
        predictions: ``[Q, C]``, a student's predictions for the queries, for an aggregator that needs them.
        features: ``[Q, F]``, the public features of the queries, for an aggregator that needs them.

    Raises:
        ValueError: if the aggregator raises it, or if its release does not have the shape of the votes.
    """
    levels = np.array([0, panel.num_teachers, panel.num_teachers // 2] * 2)
    for count in (0, 1, len(levels)):
        given, shape = levels[:count], (count, panel.num_labels)
        ballots = None
        if aggregator.needs_ballots:
            teachers = np.arange(panel.num_teachers)[None, :, None] < given[:, None, None]
            ballots = np.repeat(teachers, panel.num_labels, axis=2).astype(np.uint8)
        votes = Votes(
            counts=np.repeat(given[:, None], panel.num_labels, axis=1),
            num_teachers=panel.num_teachers,
            ballots=ballots,
            predictions=None if predictions is None else np.resize(predictions, shape),
            features=None if features is None else np.resize(features, (count, features.shape[1])),
        )
        found = aggregator.aggregate(votes, generator=np.random.Generator(np.random.Philox(key=0)))
        shapes = {
            name: np.shape(array)
            for name in ("labels", "mask", "noisy_counts")
            if (array := getattr(found, name)) is not None
        }
        expect(set(shapes.values()) == {shape}, f"a release of {count} queries and {panel.num_labels} labels", **shapes)
        if found.tiers is not None:
            expect(found.tiers.shape == (count,), f"the tiers of {count} queries", shape=found.tiers.shape)
        aggregator.charges(found, panel)
