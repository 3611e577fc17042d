"""Everything that determines labels, except the noise: votes, settings and side information."""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np

from pate._data_file import load_data, public_digest
from pate._files import code_version, digest
from pate._release.label_settings import LabelSettings
from pate._runs import Run, StageInputs, first_stage
from pate._runs.released import Queries
from pate._settings import encode, encode_fields
from pate._validation import IntArray, require
from pate._votes import MaskedTotal, Moments, Votes, drawn_rows
from pate._votes.loading import require_features, require_predictions
from pate._votes.store import VoteManifest, VoteStore
from pate._votes.voter_store import fingerprint_of_voters
from pate.aggregators._base import Aggregator


def label_inputs(
    run: Run, settings: LabelSettings, store: VoteStore, queries: Queries
) -> StageInputs:
    """Return everything that determines labels, except the noise. PRIVATE.

    The manifest holds the digests of all votes, which were compared with their files. Raises
    ``ValueError`` if the votes are moments of other records than the teachers'.
    """
    manifest = store.manifest()
    if manifest.kind is Moments:
        same = fingerprint_of_voters(run) == manifest.made_by.get("teachers")
        again = "`pate teachers vote` with `overwrite` takes those that are there"
        require(same, f"the teachers of {run.root} that have voted: {again}")
    digests = {"votes": digest(store.manifest_file)}
    if settings.query_choice is not None:
        digests["queries"] = digest(json.dumps(queries.ids.tolist()))
    if settings.predictions is not None:
        require_predictions(settings.predictions)
        digests["predictions"] = digest(settings.predictions)
    if "features" in settings.mechanism.needs and not store.has_features():
        described = run.inputs_of(first_stage(run)).settings.get("data")
        name = type(settings.mechanism).__name__
        require_features(described, name, manifest.kind, len(manifest.ids))
        if described is not None:
            digests["public"] = public_digest(load_data(run))
    return StageInputs(encode_fields(settings), digests)


def queries_on(
    manifest: VoteManifest, settings: LabelSettings, rows: IntArray | None = None
) -> Queries:
    """Return the queries of a release: samples in their public order, and the aggregator.

    Args:
        manifest: of the votes.
        settings: the settings of the release.
        rows: ``[Q]``, the rows of `chosen_rows`; None for those that are first in a seeded order.
    """
    ids = np.array(manifest.ids)
    if rows is None:
        number = settings.num_queries or len(ids)
        rows = drawn_rows(len(ids), number, seed=settings.query_seed)
    return Queries(
        ids=ids[rows],
        label_names=tuple(manifest.label_names),
        num_teachers=manifest.num_teachers,
        delta=float(settings.delta),
        aggregator=encode(Aggregator, settings.mechanism),
    )


def digest_of(aggregator: Aggregator, inputs: StageInputs, votes: Votes) -> str:
    """Return a digest of the budget and of all that determines the answers but noise. PRIVATE.

    Other code may turn the same noise into other answers, so that it makes another release. Voters
    follow from votes, which the inputs name, and from features.
    """
    arrays = (
        b"" if array is None else array.tobytes() for array in (votes.predictions, votes.features)
    )
    total = (votes.total.identity,) if isinstance(votes, MaskedTotal) else ()
    return digest(
        inputs.digest, code_version(), np.__version__, *arrays, *total, *code_of(aggregator)
    )


def code_of(aggregator: Aggregator) -> Iterator[Path]:
    """Yield the source files of an aggregator and of the aggregators within it, of any package."""
    file = getattr(sys.modules[type(aggregator).__module__], "__file__", None)
    if file is not None:
        yield Path(file)
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Aggregator):
                yield from code_of(item)
